"""The tests of models, one file each."""
