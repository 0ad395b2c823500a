"""Answers as data: calls of relfit, and the numbers and verdicts that they must give (`expected.json`)."""
