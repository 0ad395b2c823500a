"""plot_pairs, plot_witness, plot_power, plot_bandwidths: what is drawn is what was computed; own axes are used."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import relfit
from relfit.report.landscape import landscape
from relfit.report.recall import recall
from relfit.report.witness import differing_rows
from relfit.util.errors import InputError


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
    worse = result.pairs("holm").worse
    at = [result.names.index(name) for name in order]
    drawn = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in ax.texts}
    for i in range(3):
        for j in range(3):
            if i != j:
                expected = "▼" if worse[at[i], at[j]] else "▲" if worse[at[j], at[i]] else "·"
                assert drawn[i, j] == expected
    assert "▲" in drawn.values()
    assert len(ax.get_yticklabels()) == 3
    assert "b $x$" in ax.get_yticklabels()[1].get_text()


def test_bandwidths_show_the_differences_in_standard_errors(compared):
    result, data = compared
    ax = result.plot_bandwidths(data)
    lines = {line.get_label(): line for line in ax.lines if len(line.get_xdata()) == 7}
    assert list(lines) == [row["name"] for row in result.rows()]
    at_one = list(lines["c"].get_xdata()).index(pytest.approx(result.kernel.length))
    expected = result.difference[2] / result.difference_standard_error[2]
    assert lines["c"].get_ydata()[at_one] == pytest.approx(expected)
    assert not any(text.get_parse_math() for text in ax.get_legend().get_texts())


def test_kernels_without_bandwidth_are_refused(compared):
    data, models = compared[1]
    result = relfit.compare(data, models, kernel=relfit.Polynomial(), rng=0)
    with pytest.raises(InputError, match="has no bandwidth"):
        result.plot_bandwidths((data, models))


def test_witness_of_the_worst_by_default_and_of_any(compared):
    result, data = compared
    assert result.plot_witness(data).get_title() == "c"
    named = result.plot_witness(data, "b $x$")
    assert named.get_title() == "b $x$"
    assert (named.get_xlabel(), named.get_ylabel()) == ("column 0", "column 1")
    points = next(line for line in named.lines if line.get_marker() == ".")
    assert {tuple(row) for row in points.get_xydata()} <= {tuple(row) for row in data[0]}
    with pytest.raises(InputError, match="name: expected the name of a model"):
        result.plot_witness(data, "nobody")


def test_witness_of_one_column(rng):
    data, models = rng.normal(size=80), {"a": rng.normal(size=80), "b": rng.normal(1, 1, 80)}
    ax = relfit.compare(data, models, rng=0).plot_witness((data, models))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["±3.5 s.e.", "too much", "too little"]
    curve = next(line for line in ax.lines if len(line.get_xdata()) > 100)
    heights = dict(zip(curve.get_xdata().round(1), curve.get_ydata(), strict=True))
    assert heights[2.0] > 0.0 > heights[-0.5]


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


def test_power_is_that_of_the_plan(compared):
    """Two models have closed forms: Φ(r − z_{0.975}) with r the signal at n rows."""
    from scipy.special import ndtr, ndtri

    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.5], 0.02 * np.eye(2), sizes=(100,))
    ax = relfit.decide(joint, test="relpsi").plot_power()
    (curve,) = [line for line in ax.lines if len(line.get_xdata()) > 2]
    n = curve.get_xdata()
    signal = 0.5 / 0.2 * np.sqrt(n / 100)
    np.testing.assert_allclose(curve.get_ydata(), ndtr(signal + ndtri(0.025)), atol=1e-9)
    assert ax.get_legend().get_title().get_text() == "RelPSI"


def test_power_needs_sizes():
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.5], 0.02 * np.eye(2))
    with pytest.raises(InputError, match="how many rows"):
        relfit.decide(joint).plot_power()
