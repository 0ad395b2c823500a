"""docs/command-line.md lists every option there is, and none that is not."""

from pathlib import Path

from scripts.options import HEADING, every_option

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def test_the_page_was_written_by_the_script():
    assert PAGE.read_text(encoding="utf-8").endswith(every_option().partition(HEADING)[2])
