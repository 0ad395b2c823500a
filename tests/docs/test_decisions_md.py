"""The examples of docs/decisions.md run, in order, and say what the page says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "decisions.md"


def test_the_examples_run(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.S | re.M)
    assert len(blocks) >= 6
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    assert "'d': 'clearly worse by more than 0.05'" in said
    assert "equivalent within 0.05" in said
    assert "(100, 100, 100, 100, 100)" in said
    assert "With probability 95%, all ranks lie in these sets." in said
    assert "Holm correction" in said
