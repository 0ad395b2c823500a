"""Run the notebooks of examples/, and keep what they print and draw; docs/conf.py shows them with `as_markdown`.

    python scripts/notebooks.py                                  all of them
    python scripts/notebooks.py examples/posteriors.ipynb        some

The code cells run in order in one namespace, in an empty folder. As in Jupyter, the last value of a cell is shown
unless a semicolon follows it. Only the standard library and matplotlib are needed; no path of this machine is kept.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
os.environ.setdefault("MPLBACKEND", "Agg")


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def written(notebook):
    """The file's text: the form in which Jupyter saves it, so that differences are small."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def source(cell):
    return "".join(cell["source"])


def run(notebook, names=None):
    """The notebook with new outputs; its code runs in the current folder, with and into `names`."""
    names, cells, count = {} if names is None else names, [], 0
    names["__name__"] = "__main__"
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _outputs(source(cell), names, count)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(code, names, count):
    """What a cell shows: its printed lines, then its last value."""
    tree = ast.parse(code)
    shows = tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";")
    last = ast.Expression(tree.body.pop().value) if shows else None
    printed, complaints, value = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
        exec(compile(tree, f"<cell {count}>", "exec"), names)
        if last is not None:
            value = eval(compile(last, f"<cell {count}>", "eval"), names)
    streams = {"stdout": printed.getvalue(), "stderr": complaints.getvalue()}
    outputs = [{"name": name, "output_type": "stream", "text": _lines(text)} for name, text in streams.items() if text]
    if value is not None:
        shown = {"data": _data(value), "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        outputs.append(shown)
    return [*outputs, *_open_figures()]


def _open_figures():
    """The figures that a cell has left open in pyplot, as Jupyter shows them after it."""
    pyplot, outputs = sys.modules.get("matplotlib.pyplot"), []
    for number in () if pyplot is None else pyplot.get_fignums():
        png = io.BytesIO()
        pyplot.figure(number).savefig(png, format="png", dpi=72, bbox_inches="tight")
        outputs.append({"data": _picture(png.getvalue()), "metadata": {}, "output_type": "display_data"})
        pyplot.close(number)
    return outputs


def _picture(png):
    """A picture has no text, which would only name its class."""
    return {"image/png": base64.b64encode(png).decode() + "\n", "text/plain": ["<picture>"]}


def _data(value):
    """The forms in which a notebook keeps a value."""
    if hasattr(value, "_repr_png_"):
        return _picture(value._repr_png_())
    html = {"text/html": _lines(value._repr_html_())} if hasattr(value, "_repr_html_") else {}
    return {**html, "text/plain": _lines(repr(value))}


def _lines(text):
    return text.splitlines(keepends=True)


def as_markdown(notebook):
    """The notebook as a page: code, then what it printed as text, tables as HTML and pictures inside the page."""
    parts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        parts += [_shown(output) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _shown(output):
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="What the code above draws" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        # A blank line would end the HTML.
        return "\n".join(line for line in "".join(data["text/html"]).splitlines() if line.strip())
    return f"```text\n{''.join(data['text/plain'])}\n```"


def main(paths):
    for path in map(Path.resolve, map(Path, paths or sorted(EXAMPLES.glob("*.ipynb")))):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = written(run(read(path)))
        path.write_text(text, encoding="utf-8")
        print(f"{path.name}: {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
