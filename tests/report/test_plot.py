"""The forest plot: the rows in order, marked by shape and colour, without pyplot and without warnings."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from relfit.report.plot import MARKS, forest, forest_svg


def _marks(ax):
    return {line.get_label(): line for line in ax.lines if line.get_marker() not in ("None", None, "")}


@pytest.mark.parametrize("count", [2, 10, 50])
def test_rows_in_order_and_readable(make, count):
    rng = np.random.default_rng(count)
    result = make(rng.normal(0, 1, count), names=[f"model-{k}" for k in range(count)])
    ax = forest(result)
    ax.figure.draw_without_rendering()
    labels = ax.get_yticklabels()
    assert [label.get_text() for label in labels] == [row["name"] for row in result.rows()]
    boxes = [label.get_window_extent() for label in labels]
    assert all(a.y0 >= b.y1 for a, b in itertools.pairwise(boxes)), "labels overlap, or the best is not on top"
    assert all(box.x0 >= 0 for box in boxes)


def test_marks_say_the_verdicts(make):
    result = make([0.0, 0.1, 9.0, 8.0])
    marks = _marks(forest(result))
    assert list(marks) == ["best of the sample", "no evidence that it is worse", "worse"]
    assert marks["worse"].get_xdata().tolist() == [8.0, 9.0]
    assert marks["worse"].get_ydata().tolist() == [2, 3]
    assert len({line.get_marker() for line in marks.values()}) == 3
    assert [to_hex(line.get_color()).upper() for line in marks.values()] == [MARKS[k][0] for k in MARKS]


def test_bars_are_1_96_standard_errors(make):
    ax = forest(make([0.0, 9.0], errors=[0.5, 0.25]))
    ends = sorted(tuple(path.vertices[:, 0]) for bars in ax.collections for path in bars.get_paths())
    np.testing.assert_allclose(ends, [(-0.98, 0.98), (8.51, 9.49)])


def test_own_axes_are_used_and_labels_fit(make):
    figure = Figure(figsize=(5, 4))
    ax = figure.add_subplot()
    assert forest(make(np.arange(50.0)), ax) is ax
    assert ax.get_legend() is not None
    row = ax.bbox.height / figure.dpi * 72 / 50
    assert ax.get_yticklabels()[0].get_fontsize() <= row


def test_names_are_text_without_warnings(odd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = forest(odd)
        ax.figure.savefig(io.BytesIO(), format="png")
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert "$\\frac$ & $x_1$" in labels
    assert "two\\nlines" in labels
    assert "rocket □" in labels
    assert len(set(labels)) == len(labels)


def test_tex_settings_do_not_touch_the_names(make):
    with matplotlib.rc_context({"text.usetex": True}):
        label = forest(make([0.0, 1.0], names=["a_b", "c%"])).get_yticklabels()[0]
    assert not label.get_usetex()


def test_notebooks_get_a_picture(make):
    assert forest(make([0.0, 1.0]))._repr_png_().startswith(b"\x89PNG")


def test_svg_is_the_same_each_time_and_keeps_its_text(odd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = forest_svg(odd)
    assert svg == forest_svg(odd)
    assert svg.startswith("<svg")
    assert "rocket 🚀" in svg
    assert "<script" not in svg
    assert "&lt;script&gt;" in svg
    assert "currentColor" in svg


def test_svg_does_not_depend_on_the_users_settings(make):
    result = make([0.0, 1.0])
    plain = forest_svg(result)
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert forest_svg(result) == plain


def test_pyplot_is_not_touched(tmp_path):
    """In a fresh process without a screen: nothing of pyplot is even imported, so no figure can leak."""
    code = (
        "import sys, relfit;"
        "r = relfit.decide(relfit.JointEstimate(('a', 'b'), [0, 1], [[1, 0], [0, 1]]));"
        "r.plot().figure.savefig(sys.argv[1]); r.report(sys.argv[2]);"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND")
    env = {key: value for key, value in os.environ.items() if key not in screens}
    args = [sys.executable, "-c", code, str(tmp_path / "a.png"), str(tmp_path / "a.html")]
    done = subprocess.run(args, capture_output=True, text=True, env=env)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_constant_scores_and_huge_ones(make):
    forest_svg(make([1.0, 1.0], errors=0.0))
    forest_svg(make([1e12, 3.0], errors=[1.0, 1e-9]))
