"""Everything that docs/evidence/robustness.md calls found and closed has a test that names its number."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence" / "robustness.md").read_text(encoding="utf-8")
FOUND = PAGE.partition("<!-- found -->")[2].partition("<!-- end of found -->")[0]


def numbers_in_tests(path):
    """The numbers, such as D12, that the test functions of a file name."""
    source = (ROOT / path).read_text(encoding="utf-8")
    tests = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    named = [ast.get_source_segment(source, node) for node in tests if node.name.startswith("test_")]
    return set(re.findall(r"\b[DN]\d+\b", "\n".join(named)))


def test_every_number_has_a_test():
    """All but D20, which is the publication on PyPI."""
    rows = [line.strip("| ").split(" | ") for line in FOUND.splitlines() if re.match(r"\| [DN]\d", line)]
    without = [
        row[0] for row in rows if not any(row[0] in numbers_in_tests(p) for p in re.findall(r"`(.+?)`", row[-1]))
    ]
    assert without == []
    numbers = {row[0] for row in rows}
    assert numbers == {f"N{k}" for k in range(1, 14)} | {f"D{k}" for k in range(1, 52)} - {"D20"}
