"""Programs that exercise relfit beyond its tests, and what they share with the tests: `python -m tools.NAME`."""
