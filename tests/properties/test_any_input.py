"""Any input gives a finished result with valid fields, or one InputError of one line; never a warning.

The examples are drawn by a fixed seed: the same on every run and machine.
"""

import csv
import html.parser
import io
import json
import math
import unicodedata
import warnings
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

import relfit
from relfit.report.gate import junit_xml
from relfit.util.errors import InputError

fixed = settings(max_examples=300, deadline=None, database=None, derandomize=True)
TESTS = ("relpsi", "best-set", "carve", "relmulti")
# Control characters, marks of direction, half characters, line and paragraph separators.
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
JOINERS = "\u200c\u200d"
STATUS = ("tie", "indistinguishable", "deterministic", "near-degenerate", "duplicate of ")


# --- inputs

SHAPES = st.sampled_from([(0,), (0, 2), (1, 1), (5, 2), (24, 0), (24,), (24, 2, 2), (), (31, 1), (20, 4)])
NUMBERS = st.sampled_from(["f8", "f8", "f4", "f2", ">f8", ">f4", "g", "i1", "u1", ">i4", "u8", "?"])
KINDS = st.sampled_from(["c16", "O", "U4", "M8[s]", "V8"])
SPOILT = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0])


def _reversed(x):
    return x[::-1] if x.ndim else x


def _read_only(x):
    x = np.array(x)
    x.flags.writeable = False
    return x


def _every_second(x):
    return np.repeat(x, 2, axis=0)[::2] if x.ndim else x


LAYOUTS = st.sampled_from([np.asarray, np.asfortranarray, _reversed, _read_only, _every_second, np.ndarray.tolist])
EXPONENTS = st.one_of(st.just(0), st.just(0), st.integers(-20, 20), st.integers(-300, 300))


@st.composite
def arrays(draw, shape, scale=1.0, sound=True):
    """Normal numbers of any type and layout, some rows perhaps equal; unless `sound`, anything else may be wrong."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = np.asarray(rng.normal(draw(st.sampled_from([0.0, 1.0])), 1.0, shape if sound else draw(SHAPES)) * scale)
    if x.size and x.ndim and draw(st.integers(0, 5)) == 0:
        x[: len(x) // 2 + 1] = x.flat[0]
    if x.size and not sound and draw(st.booleans()):
        x.flat[rng.integers(x.size)] = draw(SPOILT)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return draw(LAYOUTS)(_converted(x, draw(NUMBERS if sound or draw(st.booleans()) else KINDS)))


def _converted(x, kind):
    if kind == "V8":
        return x.astype([("a", "f4"), ("b", "f4")])
    return np.clip(x, -100, 100).astype(kind) if np.dtype(kind).kind in "iu" else x.astype(kind)


@st.composite
def samples(draw):
    """A reference and models by name, all of one scale; mostly all of them are sound."""
    scale = 10.0 ** draw(EXPONENTS)
    all_sound = draw(st.integers(0, 3)) > 0
    shape = (draw(st.sampled_from([24, 40])), draw(st.integers(1, 3)))

    def one():
        return arrays(shape, scale, all_sound or draw(st.integers(0, 2)) > 0)

    models = {draw(NAMES): draw(one()) for _ in range(draw(st.sampled_from([1, 2, 2, 3, 3])))}
    if draw(st.integers(0, 3)) == 0:
        models["copy"] = next(iter(models.values()))
    return draw(one()), models


# Names that a page, a spreadsheet, a terminal or a file could trip over.
MARKS = (
    *("<xss-mark>", "</td><xss-mark>", '"><xss-mark onload="a">', "&lt;xss-mark&gt;", "{{7*7}}", "${x}", "\\input{x}"),
    *("=cmd|'/c calc'!A0", "+1", "-1", "@x", "\t=1", "|", "**b**", "`x`", "[a](b)"),
    *("two\nlines", "a\r\nb", "\x00", "\x1b[31m", "\u202eevil", "\u200f", "\u2028", "\ufeff"),
    *("🚀", "👩‍👩‍👧", "é", "e\u0301", "ﷺ", "日本語", "\ud800", "\udcff", " ", "", "x" * 10_000),
)
SOUND_MARKS = [name for name in MARKS if name.strip() and not any("\ud800" <= c <= "\udfff" for c in name)]
SOUND_NAMES = st.one_of(st.sampled_from(SOUND_MARKS), st.text(st.characters(codec="utf-8"), min_size=1, max_size=6))
NAMES = st.one_of(
    *[SOUND_NAMES] * 5,
    st.tuples(SOUND_NAMES, SOUND_NAMES).map("".join),
    st.one_of(st.sampled_from(MARKS), st.text(max_size=6)),
)


# --- outcomes


def settled(call):
    """What the call returns, or None if it is refused in one line; a warning of any kind fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return call()
        except InputError as error:
            message = str(error)
    assert len(message.splitlines()) == 1, message
    assert message.strip()
    return None


def checked(result):
    """Check the fields of a comparison, and every way to show it."""
    count = len(result.names)
    for key in ("discrepancy", "standard_error", "difference", "difference_standard_error"):
        assert np.isfinite(getattr(result, key)).all(), key
        assert getattr(result, key).shape == (count,)
    assert np.isfinite(result.covariance).all()
    assert ((result.pvalue >= 0.0) & (result.pvalue <= result.adjusted_pvalue) & (result.adjusted_pvalue <= 1.0)).all()
    assert (result.log_pvalue <= 0.0).all()
    assert result.names[result.best_index] == result.best
    assert all(word.startswith(STATUS) for words in result.status for word in words), result.status
    assert not np.isnan(result.confidence_interval()).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown(result)


class Page(html.parser.HTMLParser):
    """The tags of a page and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {key for key, _ in attrs}


def shown(result):
    """Check that every way to show a comparison keeps its names in their place."""
    back = relfit.Comparison.from_json(result.to_json())
    assert back.to_dict() == result.to_dict()
    json.loads(result.to_json().encode(), parse_constant=pytest.fail)
    lines = str(result).splitlines()
    table = lines[2 : 2 + len(result.names)]
    assert not {c for line in lines for c in line if unicodedata.category(c) in UNSEEN} - set(JOINERS), lines
    assert len(table) == len(result.names)
    for text in (result.to_latex(), result.to_markdown()):
        assert "\x1b" not in text
        text.encode()
    page = Page(result._repr_html_())
    assert "xss-mark" not in page.tags
    assert not any(key.startswith("on") for key in page.attributes)
    assert len(ET.fromstring(junit_xml(result, None)).findall(".//testcase")) == len(result.names)


# --- the laws


@fixed
@given(samples(), st.sampled_from(TESTS), st.sampled_from(["complete", "linear", "auto"]))
def test_compare(given_, test, estimator):
    reference, models = given_
    result = settled(lambda: relfit.compare(reference, models, test=test, estimator=estimator, rng=0))
    event("refused" if result is None else "compared")
    if result is not None:
        checked(result)


@fixed
@given(samples(), st.sampled_from(["auto", "mmd", "ume"]), st.sampled_from(["independent", "shared", "paired"]))
def test_estimate(given_, discrepancy, dependence):
    reference, models = given_
    settings_ = dict(discrepancy=discrepancy, dependence=dependence, rng=0)
    joint = settled(lambda: relfit.estimate(reference, models, **settings_))
    if joint is not None:
        assert np.isfinite(joint.values).all()
        assert np.isfinite(joint.covariance).all()
        assert (np.diag(joint.covariance) >= 0.0).all()


@fixed
@given(samples(), st.tuples(NAMES, NAMES), st.floats(0.0, 1e300))
def test_compare_pair(given_, names, margin):
    reference, models = given_
    a, *others = models.values()
    b = others[0] if others else a
    pair = settled(lambda: relfit.compare_pair(reference, a, b, names=names, margin=margin, rng=0))
    if pair is not None:
        assert 0.0 <= pair.pvalue <= 1.0
        assert pair.log_pvalue <= 0.0
        assert math.isfinite(pair.difference)
        assert math.isfinite(pair.standard_error)
        assert not math.isnan(pair.statistic)
        assert pair.worse == (pair.pvalue <= pair.alpha)
        assert json.loads(pair.to_json().encode(), parse_constant=pytest.fail)["names"] == list(names)
        assert not {c for c in str(pair).replace("\n", "") if unicodedata.category(c) in UNSEEN} - set(JOINERS)


NUMBERS_OF_ANY_SIZE = st.one_of(
    *[st.floats(-10, 10)] * 8, st.floats(), st.sampled_from([0.0, -0.0, 1e300, -1e300, 5e-324])
)


@fixed
@given(st.data(), st.sampled_from(TESTS[:3]), st.sampled_from([0.0, 0.1, 1e300]))
def test_decide(data, test, margin):
    """Any values with any covariance: full, singular, not symmetric, not positive, of any scale."""
    names = data.draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    count = len(names)
    values = data.draw(st.lists(NUMBERS_OF_ANY_SIZE, min_size=count, max_size=count))
    root = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(count, data.draw(st.integers(0, count))))
    scale = 10.0 ** data.draw(st.sampled_from([0, 0, 0, 0, -300, -160, -20, 20, 150, 300]))
    with np.errstate(over="ignore"):
        covariance = root @ root.T * scale
    if data.draw(st.integers(0, 4)) == 0:
        covariance[0, -1] += data.draw(NUMBERS_OF_ANY_SIZE)
    joint = settled(lambda: relfit.JointEstimate(names, values, covariance))
    result = None if joint is None else settled(lambda: relfit.decide(joint, test=test, margin=margin, rng=0))
    event("refused" if result is None else "decided")
    if result is not None:
        checked(result)


@fixed
@given(st.data(), st.sampled_from(TESTS[:3]))
def test_from_losses(data, test):
    scale = 10.0 ** data.draw(EXPONENTS)
    losses = data.draw(arrays((30, data.draw(st.integers(2, 3))), scale, data.draw(st.integers(0, 3)) > 0))
    joint = settled(lambda: relfit.from_losses(losses))
    result = None if joint is None else settled(lambda: relfit.decide(joint, test=test, rng=0))
    event("refused" if result is None else "decided")
    if result is not None:
        checked(result)


RESULT = relfit.decide(
    relfit.JointEstimate(("a", "b", "c"), [0.1, 0.2, 0.9], 0.01 * np.eye(3), sizes=(50, 50, 50, 50)),
    test="relpsi",
    rng=0,
).to_dict()
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(), NAMES, st.sampled_from("abc")),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)


@settings(fixed, max_examples=300)
@given(st.sampled_from(sorted(RESULT)), JSON)
@example("command", ["\x00"])
def test_a_stored_result_with_another_field(key, value):
    """It is refused, or can be shown in every way."""
    text = json.dumps({**RESULT, key: value})
    result = settled(lambda: relfit.Comparison.from_json(text))
    event("refused" if result is None else "shown")
    if result is not None:
        checked(result)


def test_a_page_with_any_name_is_a_page_and_spreadsheets_run_none(tmp_path):
    """The whole report, with the data, for every odd name at once."""
    rng = np.random.default_rng(0)
    reference, models = (
        rng.normal(size=(30, 2)),
        {name: rng.normal(k % 3, 1.0, (30, 2)) for k, name in enumerate(SOUND_MARKS)},
    )
    result = relfit.compare(reference, models, rng=0)
    result.report(tmp_path / "page.html", (reference, models))
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "xss-mark" not in page.tags
    assert not any(key.startswith("on") for key in page.attributes)
    checked(result)
    # A cell that begins with =, +, -, @ or a tab is a formula to them; numbers may be negative.
    names = ["=1+1", "+1", "-1", "@x", "\t=1", "a=b"]
    result = relfit.decide(relfit.JointEstimate(names, np.arange(6.0), np.eye(6)), test="relpsi")
    cells = [row[0] for row in csv.reader(io.StringIO(result.to_csv()))][1:]
    assert cells == ["'=1+1", "'+1", "'-1", "'@x", "'\t=1", "a=b"]
