"""Run the examples of documentation pages, and write what they print and draw back into the pages.

    python scripts/run_pages.py docs/quickstart.md docs/guides/*.md

On a page every ```python block is run, in order and in one namespace, and every line `$ relfit …` of a ```console
block. A ```text block that follows a python block, and what follows a command, are the output. Pictures that an example
saves go to docs/images/pages/. The tests run the same pages and compare.
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from relfit.cli import main as relfit

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "images" / "pages"
BLOCK = re.compile(r"^```(python|text|console)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def run_page(text):
    """The page's text with its output renewed; runs in the current folder, which keeps the files it makes."""
    names, printed, pieces, end = {"__name__": "page"}, None, [], 0
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        follows = printed is not None and not text[end : block.start()].strip()
        pieces.append(text[end : block.start()])
        end = block.end()
        if kind == "python":
            printed = _captured(lambda body=body: exec(compile(body, "the page", "exec"), names))
        elif kind == "console":
            printed, body = None, _console(body)
        elif follows:
            printed, body = None, printed
        pieces.append(f"```{kind}\n{body}```")
    return "".join([*pieces, text[end:]])


def _console(body):
    """The commands, each followed by its output; commands of other programs stay as they are."""
    lines, ours = [], False
    for line in body.splitlines():
        if line.startswith("$ "):
            ours = line.startswith("$ relfit ")
            lines.append(line)
            if ours:
                lines += _captured(lambda line=line: relfit(shlex.split(line[2:])[1:])).splitlines()
        elif not ours:
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _captured(work):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        work()
    stream.flush()
    return stream.buffer.getvalue().decode()


def main(pages):
    PICTURES.mkdir(parents=True, exist_ok=True)
    for page in pages:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            page.write_text(run_page(page.read_text(encoding="utf-8")), encoding="utf-8")
            for picture in Path().glob("*.png"):
                shutil.copy(picture, PICTURES / picture.name)
        print(f"{page.name}: done")


if __name__ == "__main__":
    main([Path(page).resolve() for page in sys.argv[1:]])
