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

from relfit.report.plots import BRACKET, MARKS, forest
from relfit.util.errors import InputError


def _marks(ax):
    shapes = {shape for _, shape, _ in MARKS.values()}
    return {line.get_label(): line for line in ax.lines if line.get_marker() in shapes}


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


def _bars(ax):
    return sorted(tuple(path.vertices[:, 0]) for bars in ax.collections for path in bars.get_paths())


def test_bars_are_1_96_standard_errors(make):
    np.testing.assert_allclose(
        _bars(forest(make([0.0, 9.0], errors=[0.5, 0.25]))), [(-0.98, 0.98), (8.51, 9.49)], rtol=1e-4
    )


def test_differences_have_the_intervals_of_the_test(make):
    """The best stands at 0 without a bar, the other has its selective interval and the bracket at its bound."""
    result = make([0.0, 1.0], errors=0.2)
    ax = forest(result, of="difference")
    np.testing.assert_allclose(_bars(ax), [(0.0, 0.0), tuple(result.confidence_interval(0.95)[1])])
    brackets = [line for line in ax.lines if line.get_marker() is BRACKET]
    assert [line.get_xdata()[0] for line in brackets] == [result.lower_bound(0.95)[1]]


def test_infinite_bars_are_cut_off(make):
    """A near tie: the selective interval reaches far beyond the picture, which stays at a few standard errors."""
    result = make([0.0, 0.001, 3.0], errors=0.2)
    assert not np.isfinite(result.confidence_interval(0.95)[1, 0]) or result.confidence_interval(0.95)[1, 0] < -2
    ax = forest(result, of="difference")
    low, high = ax.get_xlim()
    assert -3.0 < low < 0.0 < 3.0 < high < 6.0, (low, high)
    assert all(low <= end <= high for bar in _bars(ax) for end in bar)


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


@pytest.mark.parametrize("of", ["discrepancy", "difference"])
def test_constant_scores_and_huge_ones(make, of):
    for result in (make([1.0, 1.0], errors=0.0), make([1e12, 3.0], errors=[1.0, 1e-9])):
        forest(result, of=of).figure.savefig(io.BytesIO(), format="png")


def test_only_what_there_is(make):
    with pytest.raises(InputError, match="of: expected one of discrepancy, difference"):
        forest(make([0.0, 1.0]), of="rank")
