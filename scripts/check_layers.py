"""The layers and the size of the package: wrong imports, cycles, tokens, long lines, files run through.

python scripts/check_layers.py             print the figures
python scripts/check_layers.py --check     fail on a wrong import, a cycle or a long line (part of make lint)
python scripts/check_layers.py --picture   draw the packages and their imports into docs/images/layers.svg

Imports inside functions count, and those for type checkers.
"""

import argparse
import ast
import io
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "relfit"
MOST_ENTRIES = 16
LONGEST_LINE = 100
PICTURE = ROOT / "docs" / "images" / "layers.svg"
# What each package is for, as the picture says it.
PACKAGES = {
    "cli": "one file a command",
    "monitor": "evidence at every look, its file",
    "paper": "the paper's problems and experiments",
    "report": "plots, notebooks, page and its panels",
    "features": "images and texts into rows",
    "api": "load → resolve → split → estimate → decide → result",
    "checks": "what could make a verdict wrong, one row a check",
    "results": "finished results, as text, as JSON and back",
    "settings": "every option: name, default, check; options and data into a plan",
    "estimators": "MMD, KSD, designs: data into a joint estimate",
    "data": "what the user brings, loaded and checked",
    "stats": "tests, bounds, ranks, power",
    "compute": "sums over kernel matrices",
    "kernels": "kernels as values",
    "util": "errors, files, text, random streams",
}


def layers() -> list[list[str]]:
    """The packages from top to bottom, as pyproject.toml lists them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    names = [[name.strip() for name in layer.split(":")] for layer in contracts[0]["layers"]]
    return [layer for layer in names if layer != ["__main__"]]


def imports() -> dict[str, set[str]]:
    """Every module of the package with the modules that it imports."""
    graph = grimp.build_graph("relfit", cache_dir=None)
    found = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # relfit/__init__.py imports names only for type checkers; it loads them when they are used.
    found["relfit"] = set()
    return found


def package(module: str) -> str:
    """The package of a module: its first name below relfit."""
    return [*module.split("."), ""][1]


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other in a circle (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for name in graph[module]:
            if name not in index:
                visit(name)
            if name in stack:
                low[module] = min(low[module], low[name])
        if low[module] == index[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for module in graph:
        if module not in index:
            visit(module)
    return found


def wrong_imports(graph: dict[str, set[str]]) -> Iterator[str]:
    """Imports from a package above the module's own."""
    height = {name: k for k, layer in enumerate(layers()) for name in layer}
    for module, names in graph.items():
        for name in names:
            if package(module) in height and height.get(package(name), 99) < height[package(module)]:
                yield f"{module} imports {name}"


# Tokens that are not code.
_NO_CODE = {
    tokenize.STRING,
    tokenize.COMMENT,
    tokenize.NEWLINE,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class Size:
    """The size of some files in code tokens, which packing more on a line does not hide."""

    files: int = 0
    tokens: int = 0
    code_lines: int = 0
    assignments: int = 0
    parallel_assignments: int = 0

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} code tokens, {self.tokens / self.code_lines:.1f} a code line, "
            f"{self.parallel_assignments / self.assignments:.1%} parallel assignments"
        )


def measure(files: list[Path]) -> tuple[Size, list[str]]:
    """The size of these files, and the places of code lines that are too long."""
    size = Size(len(files))
    too_long = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        rows = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in _NO_CODE:
                size.tokens += 1
                rows.add(token.start[0])
        size.code_lines += len(rows)
        lines = text.splitlines()
        too_long += [f"{path.relative_to(ROOT)}:{row}" for row in sorted(rows) if len(lines[row - 1]) > LONGEST_LINE]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign):
                size.assignments += 1
                size.parallel_assignments += isinstance(node.targets[0], ast.Tuple) and isinstance(
                    node.value, ast.Tuple
                )
    return size, too_long


def files_run_by(call: Callable[[], object]) -> set[str]:
    """The files of the package whose functions a call runs."""
    seen: set[str] = set()

    def note(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)) and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def plain_compare() -> set[str]:
    """The files that a plain call of `compare` runs through."""
    import numpy as np

    import relfit

    rng = np.random.default_rng(0)
    data, models = rng.normal(size=(300, 2)), {name: rng.normal(size=(300, 2)) for name in "ab"}
    relfit.compare(data, models, rng=0)
    return files_run_by(lambda: relfit.compare(data, models, rng=0))


def compare_to_page() -> set[str]:
    """The files that `relfit compare --html` runs through."""
    import contextlib
    import io

    import numpy as np

    from relfit.cli import main

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        files = [f"{folder}/{name}.npy" for name in ("data", "a", "b")]
        for name in files:
            np.save(name, rng.normal(size=(200, 2)))
        command = ["compare", *files, "--html", f"{folder}/report.html"]
        main(command)
        return files_run_by(lambda: main(command))


def picture(graph: dict[str, set[str]]) -> str:
    """The packages in their layers as SVG, with an arc for the imports between two, thicker for more of them."""
    counts = Counter(
        (package(module), package(name))
        for module, names in graph.items()
        for name in names
        if package(module) in PACKAGES and package(name) in PACKAGES and package(module) != package(name)
    )
    wide, high, gap = 700, 44, 16
    boxes, port = [], {}
    for k, layer in enumerate(layers()):
        width, top = (wide - 12 * (len(layer) - 1)) / len(layer), 8 + k * (high + gap)
        for place, name in enumerate(layer):
            x = 8 + place * (width + 12)
            # Packages of one layer have their ports below each other.
            port[name] = top + high * (place + 1) / (len(layer) + 1)
            boxes.append(
                f'<rect x="{x:.0f}" y="{top}" width="{width:.0f}" height="{high}" rx="5"/>'
                f'<text x="{x + 10:.0f}" y="{top + 18}" class="name">{name}</text>'
                f'<text x="{x + 10:.0f}" y="{top + 35}">{PACKAGES[name]}</text>'
                f'<text x="{x + width - 10:.0f}" y="{top + 18}" class="size">{_size(name)}</text>'
            )
    arcs = []
    for (above, below), count in sorted(counts.items()):
        y1, y2 = port[above], port[below]
        reach = wide + 14 + 0.42 * abs(y2 - y1)
        curve = f"M{wide + 8} {y1:.0f}C{reach:.0f} {y1:.0f} {reach:.0f} {y2:.0f} {wide + 8} {y2:.0f}"
        title = f"<title>{above} imports {below}: {count} times</title>"
        arcs.append(f'<path d="{curve}" stroke-width="{min(5.0, 0.7 + count / 10):.1f}">{title}</path>')
    style = (
        "path{fill:none;stroke:#5b7fa3;opacity:.5}rect{fill:#f4f7fa;stroke:#3b5b7a}text{font:11px sans-serif;fill:#223}"
        ".name{font-weight:bold;font-size:14px}.size{text-anchor:end;fill:#56708a}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {len(layers()) * (high + gap)}" role="img" '
        f'aria-label="The packages of relfit in their layers, and which of them import which"><style>{style}</style>\n'
        + "\n".join([*arcs, *boxes])
        + "\n</svg>\n"
    )


def _size(name: str) -> str:
    """The size of a package, roughly: the exact figures are printed."""
    files = sorted((PACKAGE / name).rglob("*.py")) or [PACKAGE / f"{name}.py"]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    return f"{len(files)} file{'s' if len(files) > 1 else ''}, {round(lines, -2):,} lines"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail on a wrong import, a cycle or a long line")
    parser.add_argument("--picture", action="store_true", help="write docs/images/layers.svg")
    arguments = parser.parse_args()
    graph = imports()
    entries = sorted(p.name for p in PACKAGE.iterdir() if not p.name.startswith("__"))
    files = sorted(PACKAGE.rglob("*.py"))
    circles = cycles(graph)
    wrong = list(wrong_imports(graph))
    size, too_long = measure(files)
    print(f"{len(entries)} entries, {len(files)} files, {size}, {len(layers())} layers, {len(circles)} cycles")
    for circle in circles:
        print("cycle:", ", ".join(circle))
    for line in wrong:
        print("wrong import:", line)
    for place in too_long:
        print(f"more than {LONGEST_LINE} characters:", place)
    if len(entries) > MOST_ENTRIES:
        print(f"more than {MOST_ENTRIES} entries in the package: put the new one into a folder")
    if arguments.picture:
        PICTURE.write_text(picture(graph), encoding="utf-8")
    if arguments.check or arguments.picture:
        return int(bool(circles or wrong or too_long or len(entries) > MOST_ENTRIES))
    print(f"a plain compare runs through {len(plain_compare())} files, compare --html through {len(compare_to_page())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
