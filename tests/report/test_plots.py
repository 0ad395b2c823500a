"""Pictures and their numbers: what is drawn is what was computed, by shape and colour, without pyplot or warnings."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import relfit
from relfit.report.figures import difference_forest, discrepancy_forest, who_beats_whom
from relfit.report.plots import forest
from relfit.report.recall import recall
from relfit.report.witness import differing_rows, landscape
from relfit.results.scale import KINDS


def _marks(ax):
    shapes = {verdict.shape for verdict in KINDS.values()}
    return {line.get_label(): line for line in ax.lines if line.get_marker() in shapes}


def test_marks_say_the_verdicts_each_with_a_look_of_its_own(make):
    result = make([0.0, 0.1, 9.0, 8.0])
    marks = _marks(forest(result))
    assert list(marks) == ["best observed", "inconclusive", "worse (unadjusted)"]
    assert marks["worse (unadjusted)"].get_xdata().tolist() == [8.0, 9.0]
    assert marks["worse (unadjusted)"].get_ydata().tolist() == [2, 3]
    assert len({line.get_marker() for line in marks.values()}) == 3
    used = ("best", "open", "weak")
    assert [to_hex(line.get_color()).upper() for line in marks.values()] == [KINDS[kind].colour for kind in used]
    # No reader needs the colours: every kind has its own shape and filling.
    assert len({(verdict.shape, verdict.hollow) for verdict in KINDS.values()}) == len(KINDS)
    joint = relfit.JointEstimate(("a", "b", "c"), [0.0, 0.25, 5.0], 0.01 * np.eye(3), (500,))
    filled = _marks(forest(relfit.decide(joint, rng=0)))["significantly worse"]
    hollow = _marks(forest(relfit.decide(joint, correction="none", rng=0)))["worse (unadjusted)"]
    assert filled.get_marker() == hollow.get_marker() == "v"
    assert hollow.get_markerfacecolor() == "white" != filled.get_markerfacecolor()


def _bars(ax):
    return sorted(tuple(path.vertices[:, 0]) for bars in ax.collections for path in bars.get_paths())


def test_differences_have_the_intervals_of_the_test_and_pairs_their_verdicts(make):
    """The best stands at 0 without a bar, the other has its selective interval: a one-sided 95% bound at each end."""
    result = make([0.0, 1.0], errors=0.2)
    ax = forest(result, of="difference")
    np.testing.assert_allclose(_bars(ax), [(0.0, 0.0), (result.lower_bound(0.95)[1], result.upper_bound(0.95)[1])])
    # Values 0, 0.1, 5 with errors 0.1: only the last is told from the others, in both directions of reading.
    values, names = [5.0, 0.0, 0.1], ("c", "a", "b")
    result = relfit.decide(relfit.JointEstimate(names, values, 0.01 * np.eye(3)), rng=0)
    no, up, down, own = "inconclusive", "better", "worse", "itself"
    assert who_beats_whom(result) == [[own, no, up], [no, own, up], [down, down, own]]
    # RelPSI compares with the selected model only.
    assert who_beats_whom(make(values, names=names)) == [
        [own, no, up],
        [no, own, "not tested"],
        [down, "not tested", own],
    ]


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


@pytest.fixture(scope="module")
def compared():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(100, 2))
    models = {"a": rng.normal(size=(100, 2)), "b $x$": rng.normal(0.3, 1, (100, 2)), "c": rng.normal(1, 1, (100, 2))}
    return relfit.compare(data, models, rng=0), (data, models)


CALLS = {
    "plot": lambda result, data, ax: result.plot(ax=ax),
    "plot_pairs": lambda result, data, ax: result.plot_pairs(ax=ax),
    "plot_witness": lambda result, data, ax: result.plot_witness(data, ax=ax),
    "plot_power": lambda result, data, ax: result.plot_power(ax=ax),
    "plot_bandwidths": lambda result, data, ax: result.plot_bandwidths(data, ax=ax),
}


@pytest.mark.parametrize("name", CALLS)
def test_axes_are_made_or_used(compared, name):
    result, data = compared
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = CALLS[name](result, data, None)
        given = Figure(figsize=(6, 5)).add_subplot()
        assert CALLS[name](result, data, given) is given
        assert isinstance(own, Axes)
        for ax in (own, given):
            ax.figure.savefig(io.BytesIO(), format="png")
    assert own._repr_png_().startswith(b"\x89PNG")


def test_pairs_show_the_tests(compared):
    result, _ = compared
    ax = result.plot_pairs()
    order = [row["name"] for row in result.rows()]
    signs = {"worse": "▼", "inconclusive": "·", "better": "▲"}
    cells = result.verdict_pairs()
    at = [result.names.index(name) for name in order]
    drawn = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in ax.texts}
    for i in range(3):
        for j in range(3):
            if i != j:
                assert drawn[i, j] == signs[cells[at[i], at[j]]]
    assert "▲" in drawn.values()
    assert len(ax.get_yticklabels()) == 3
    assert "b $x$" in ax.get_yticklabels()[1].get_text()


def test_one_column_is_coloured_where_it_is_clear_of_the_noise(rng):
    """The difference of N(0,1) and N(1,1) is clear near −1 and 2; between them, and far out, it is not."""
    data, models = rng.normal(size=(300, 1)), {"a": rng.normal(1, 1, (300, 1)), "b": rng.normal(size=(300, 1))}
    result = relfit.compare(data, models, rng=0)
    drawn = landscape(recalled := recall(result, (data, models)), differing_rows(result, recalled, "a"))
    assert 0 < drawn.clear.sum() < drawn.clear.size
    _, much, little = result.plot_witness((data, models), "a").collections
    for area, sign in ((much, 1.0), (little, -1.0)):
        expected = np.where(drawn.clear, np.maximum(sign * drawn.values, 0.0), 0.0)
        corners = area.get_paths()[0].vertices
        heights = [sign * corners[np.isclose(corners[:, 0], x), 1] for x in drawn.grid[0]]
        np.testing.assert_allclose([at.max() for at in heights], expected, atol=1e-12)


def test_power_and_colours_are_those_of_the_plan_in_all_figures(compared):
    """Two models have closed forms: Φ(r − z_{0.975}) with r the signal at n rows."""
    from scipy.special import ndtr, ndtri

    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.5], 0.02 * np.eye(2), sizes=(100,))
    ax = relfit.decide(joint, test="relpsi").plot_power()
    (curve,) = [line for line in ax.lines if len(line.get_xdata()) > 2]
    n = curve.get_xdata()
    signal = 0.5 / 0.2 * np.sqrt(n / 100)
    np.testing.assert_allclose(curve.get_ydata(), ndtr(signal + ndtri(0.025)), atol=1e-9)
    assert ax.get_legend().get_title().get_text() == "RelPSI"
    # D45: colours went by the place in the table in one figure, and without the best model in the other.
    result, data = compared
    figures = [result.plot_bandwidths(data), result.plot_power(trials=100)]
    colours = [{line.get_label(): line.get_color() for line in ax.lines} for ax in figures]
    shared = set(colours[0]) & set(colours[1]) & set(result.names)
    assert len(shared) == 2
    assert all(colours[0][name] == colours[1][name] for name in shared)


def test_discrepancies_and_a_margin_by_hand(make):
    """α = 0.1: z = 1.6449, so 1 ± 1.6449 · 0.5 = 0.18 to 1.82; the line is the best's value."""
    drawn = discrepancy_forest(make([1.0, 5.0], errors=0.5, alpha=0.1))
    assert [(bar.name, bar.kind) for bar in drawn.bars] == [("m1", "best"), ("m2", "worse")]
    assert drawn.bars[0].low == pytest.approx(1.0 - 1.6448536 * 0.5)
    assert drawn.shown(drawn.bars[0]) == "0.18 to 1.82"
    assert (drawn.line, drawn.level) == (1.0, 0.9)
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.5], 0.001 * np.eye(2))
    drawn = difference_forest(relfit.decide(joint, margin=0.2))
    assert drawn.line == 0.2
    assert drawn.bars[1].kind == "worse"
    assert drawn.bars[1].low > 0.2


@pytest.mark.parametrize("test", ["relpsi", "best-set", "carve"])
def test_differences_are_the_tests_own(test):
    joint = relfit.JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3), sizes=(500,))
    result = relfit.decide(joint, test=test, rng=0)
    intervals = result.verdict_intervals()
    for bar in difference_forest(result).bars:
        i = result.names.index(bar.name)
        assert (bar.low, bar.high) == tuple(intervals[i])
        assert (bar.low > 0.0) == (bar.kind in ("weak", "worse"))
