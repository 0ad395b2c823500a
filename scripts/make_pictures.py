"""Draw the pictures: docs/images/demo.png is what `relfit demo` finds, report.png the page of the README's example.

The page is drawn by Chromium, which must be on the path (tools/browser.py).
"""

import re
import sys
import tempfile
from pathlib import Path

from relfit.cli.demo import run

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1100, 900


def readme_result():
    """What the README's example compares, and the data."""
    code = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)[1]
    seen = {}
    exec(code.replace("print(", "result = ("), seen)
    return seen["result"], (seen["data"], seen["models"])


def draw_page(path):
    """The top of the example's page."""
    sys.path.insert(0, str(ROOT))
    from tools.browser import executable, start

    result, data = readme_result()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        result.report(page, data, title="Five candidate models")
        browser = start(executable())
        browser.open(page, WIDTH, HEIGHT)
        browser.picture(path, HEIGHT)
        browser.close()


def main() -> None:
    axes = run(seed=0).plot()
    axes.figure.savefig(IMAGES / "demo.png", dpi=150, bbox_inches="tight", metadata={"Software": None})
    draw_page(IMAGES / "report.png")


if __name__ == "__main__":
    main()
