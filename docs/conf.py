"""Settings of the documentation's generator: `make docs` builds the site into build/site."""

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
autodoc_typehints = "none"
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


def show_notebook(app, page, text):
    """A page of notebooks/ is only a link, for readers of the repository; the site shows the notebook in its place."""
    if page.startswith("notebooks/"):
        path = ROOT / "examples" / f"{Path(page).name}.ipynb"
        app.env.note_dependency(str(path))
        text[0] = f"---\norphan: true\n---\n\n{notebooks.as_markdown(notebooks.read(path))}"


def setup(app):
    app.connect("source-read", show_notebook)
