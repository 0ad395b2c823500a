"""Settings of the documentation's generator: `make docs` builds the site into build/site."""

import posixpath
import re
import sys
from pathlib import Path

from relfit import __version__

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import notebooks  # noqa: E402

project = "relfit"
author = "The relfit developers"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nitpicky = False

# Pages are plain Markdown that GitHub shows too: headings are link targets, formulas are text.
myst_heading_anchors = 3
highlight_language = "none"
pygments_style = "default"
pygments_dark_style = "github-dark"

# Docstrings use `name` for code, as Markdown does.
default_role = "literal"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = "relfit"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_theme_options = {"navigation_with_keys": True}
html_search_scorer = str(Path(__file__).with_name("scorer.js"))

# Pages that have moved, and where their readers are sent.
MOVED = {
    "adapters": "api/models",
    "api": "api/index",
    "backends": "scale#cpu-or-gpu",
    "discrepancies": "kernels#which-discrepancy",
    "evals": "guides/evals",
    "glossary": "faq#glossary",
    "guides/gans": "guides/images-texts",
    "guides/latent": "guides/flows#latent-variables",
    "guides/leaderboards": "guides/evals#tables-of-losses",
    "guides/loo": "guides/bayesian#models-by-psis-loo",
    "guides/posteriors": "guides/bayesian",
    "guides/text": "guides/images-texts#texts-of-language-models",
    "json": "api/results#the-result-file",
    **{
        name: f"evidence/{name}"
        for name in (
            *("benchmarks", "coverage", "estimators", "locations", "losses", "new-user", "peers"),
            *("relmulti", "reproduction", "robustness", "calibration/close"),
            *("calibration/index", "calibration/laws", "calibration/levels", "calibration/loglik"),
            *("calibration/monitor", "calibration/power", "calibration/tables"),
        )
    },
}
REDIRECT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>This page has moved</title><meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url={target}"></head>
<body><p>This page has moved to <a href="{target}">{target}</a>.</p></body></html>
"""
# Reached by links, not by the navigation: the reports behind the summary of the evidence, and a page for contributors.
OUTSIDE = ("evidence/", "design")


def setup(app):
    """Show notebooks and types, leave some pages out of the navigation, and write the redirects."""
    app.connect("source-read", _show_notebook)
    app.connect("autodoc-process-docstring", _split_names, priority=400)
    app.connect("autodoc-process-docstring", _shorten_attribute_types, priority=600)
    app.connect("object-description-transform", _shorten_types, priority=400)
    app.connect("doctree-read", _mark_outside)
    app.connect("build-finished", _write_redirects)


def _mark_outside(app, doctree):
    name = app.env.docname
    if name.startswith(OUTSIDE) and name != "evidence/index":
        app.env.metadata[name]["orphan"] = True


def _write_redirects(app, exception):
    if exception is not None or app.builder.format != "html":
        return
    for old, new in MOVED.items():
        page = Path(app.outdir, f"{old}.html")
        page.parent.mkdir(parents=True, exist_ok=True)
        name, mark, place = new.partition("#")
        target = posixpath.relpath(f"{name}.html", posixpath.dirname(old) or ".") + mark + place
        page.write_text(REDIRECT.format(target=target), encoding="utf-8")


def _show_notebook(app, page, text):
    """A page of notebooks/ is only a link, for readers of the repository; the site shows the notebook in its place."""
    if page.startswith("notebooks/"):
        path = ROOT / "examples" / f"{Path(page).name}.ipynb"
        app.env.note_dependency(str(path))
        text[0] = f"---\norphan: true\n---\n\n{notebooks.as_markdown(notebooks.read(path))}"


def _split_names(app, what, name, obj, options, lines):
    """Of `a, b: text` in a docstring make a line for each name, so that each is shown with its own type."""
    split = []
    for line in lines:
        found = re.fullmatch(r"( {4}|)((?:\w+, )+\w+): (.*)", line)
        if found is None:
            split.append(line)
            continue
        *others, last = found[2].split(", ")
        split += [f"{found[1]}{other}: see `{last}`." for other in others]
        split.append(f"{found[1]}{last}: {found[3]}")
    lines[:] = split


# NumPy's arrays have a shorter name in the code.
ARRAY = re.compile(r"~?numpy\.ndarray\[~?(?:\w+\.)*tuple\[[^]]*\], ~?numpy\.dtype\[~?(?:\w+\.)*(\w+)\]\]")


def _shorten_attribute_types(app, what, name, obj, options, lines):
    lines[:] = [ARRAY.sub(r"NDArray[\1]", line) for line in lines]


def _shorten_types(app, domain, kind, node):
    for annotations in app.env.current_document.autodoc_annotations.values():
        annotations.update({name: ARRAY.sub(r"NDArray[\1]", words) for name, words in annotations.items()})
