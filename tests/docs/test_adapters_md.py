"""The examples in docs/api/models.md run, each in a process of its own; where a library is missing, it is skipped."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "api" / "models.md"
SECTIONS = re.split(r"^###? ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
BLOCKS = [
    pytest.param(block, id=section.splitlines()[0])
    for section in SECTIONS
    for block in re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
]


def libraries(block):
    return {name.split(".")[0] for name in re.findall(r"^(?:import|from) ([\w.]+)", block, flags=re.MULTILINE)}


def test_the_page_has_its_examples():
    assert len(BLOCKS) == sum("```python" in section for section in SECTIONS) >= 7


@pytest.mark.parametrize("block", BLOCKS)
def test_the_example_runs(block, tmp_path):
    missing = sorted(name for name in libraries(block) if importlib.util.find_spec(name) is None)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if "stan" in libraries(block) and shutil.which("g++") is None:
        pytest.skip("pystan compiles models with g++, which is not here")
    script = tmp_path / "example.py"
    script.write_text(block, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
