"""Tables for papers, and the methods paragraph: escaped, complete, and true for the settings used."""

from __future__ import annotations

import csv
import html
import io
import re

import numpy as np
import pytest
from refusals import refused
from scipy.stats import multivariate_normal

import relfit
from relfit.kernels.composite import Decay, Tilted
from relfit.report.page import render_report
from relfit.results.formats import references, to_csv, to_latex, to_markdown


def test_csv_holds_the_rows_exactly(make, odd):
    for result in (make([0.1, 1 / 3, 5.0]), odd):
        read = list(csv.DictReader(io.StringIO(to_csv(result))))
        assert [row["name"] for row in read] == [row["name"] for row in result.rows()]
        assert [float(row["difference"]) for row in read] == [row["difference"] for row in result.rows()]
        assert [row["worse"] for row in read] == [str(row["worse"]) for row in result.rows()]
        assert list(read[0]) == list(result.rows()[0])


def entry_of(bib, key):
    """The BibTeX entry of a key."""
    return next(entry for entry in bib.split("\n\n") if f"{{{key},\n" in entry)


def test_a_result_is_read_from_files_and_by_the_names_of_models(make, tmp_path):
    """D38: from_json refused the path that to_json takes."""
    result = make([0.1, 1 / 3, 5.0])
    file = tmp_path / "result.json"
    text = result.to_json(file)
    for source in (text, file, str(file)):
        assert relfit.Comparison.from_json(source).rows() == result.rows()
    missing = str(tmp_path / "none.json")
    refused(lambda: relfit.Comparison.from_json(missing), "none.json': No such file or directory")
    refused(lambda: relfit.Comparison.from_json(7), "source: expected JSON written by to_json, or its file, got int")
    # D38: rows by name, the verdict and the sentence.
    result = make([0.1, 1 / 3, 5.0])
    assert list(result) == list(result.names)
    for row in result.rows():
        assert result[row["name"]] == row
        assert result.verdict(row["name"]) == row["verdict"]
    assert result.summary() in str(result).splitlines()
    assert "nobody" not in result
    refused(lambda: result["nobody"], "name: expected the name of a model")
    refused(lambda: result.verdict("nobody"), "got 'nobody'")


def test_markdown_and_latex_escape_every_name(odd):
    lines = to_markdown(odd).splitlines()
    assert len(lines) == 2 + len(odd.names)
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    assert {len(row) for row in cells} == {7}
    assert "\\<script\\>alert(1)\\</script\\>" in to_markdown(odd)
    assert lines[2].startswith("| **")
    made = to_latex(odd)
    rows = [line for line in made.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + len(odd.names)
    for row in rows:
        bare = re.sub(r"\\[&%$#_{}]", "", row)
        assert bare.count("&") == 6
        assert "%" not in bare
        assert bare.count("$") % 2 == 0
        assert bare.count("{") == bare.count("}")
    assert r"\textbackslash{}frac" in made
    assert made.count(r"\textbf") == 1


SETTINGS = {
    "relpsi": (
        {"test": "relpsi"},
        ["lim2019kernel", "lee2016exact", "gretton2012kernel"],
        ["RelPSI", "median distance"],
    ),
    "relmulti": (
        {"test": relfit.RelMulti(0.3)},
        ["lim2019kernel", "benjamini2001control"],
        ["RelMulti", "random 30%", "false discovery rate"],
    ),
    "best-set": ({"test": "best-set", "alpha": 0.01}, ["andrews2010inference", "hansen2011model"], ["α = 0.01"]),
    "carve": ({"test": "carve"}, ["fithian2014optimal", "tian2018selective"], ["Gaussian noise"]),
    "holm": ({"correction": "holm"}, ["holm1979simple"], ["familywise error rate"]),
    "bh": ({"correction": "bh"}, ["benjamini1995controlling"], ["Benjamini–Hochberg"]),
    "linear": ({"estimator": "linear"}, [], ["linear-time estimate"]),
    "shared": ({"dependence": "shared"}, [], ["common random numbers"]),
    "imq": ({"kernel": relfit.IMQ(2.0)}, [], ["IMQ kernel, scale 2"]),
    "kid": ({"preset": "kid"}, ["binkowski2018demystifying"], ["Polynomial kernel"]),
    "margin": ({"margin": 0.01}, [], ["by more than 0.01"]),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_methods_are_true_for_the_settings(rng, name):
    options, keys, said = SETTINGS[name]
    data = rng.normal(size=(60, 2))
    models = {k: rng.normal(m, 1, (60, 2)) for k, m in (("a", 0), ("b", 0.2), ("c", 1))}
    result = relfit.compare(data, models, rng=7, **options)
    text, bib = result.methods_text(), result.methods_text(cite="bibtex")
    paragraph = text.split("\n")[0]
    assert text.split("\n")[1] == ""
    for words in (*said, "3 models", "seed 7", f"relfit {relfit.__version__}"):
        assert words in paragraph
    for key in keys:
        assert references()[key].cited in paragraph
        assert references()[key].line() in text
        # D47: journals and proceedings are not @misc with a note.
        kind = {"fithian2014optimal": "misc"}.get(key) or (
            "article" if "journal" in entry_of(bib, key) else "inproceedings"
        )
        assert f"@{kind}{{{key}," in bib
        assert "  note = " not in entry_of(bib, key)
    cited = {key for found in re.findall(r"\\cite(?:p|alp)\{(.*?)\}", bib) for key in found.split(",")}
    assert cited == set(re.findall(r"@\w+\{(\w+),", bib))
    assert len(text.split("\n")) == 2 + len(cited)
    assert "[" not in paragraph


CALLS = {
    "default": {},
    "everything": {
        "test": relfit.RelMulti(0.4),
        "alpha": 0.1,
        "correction": "holm",
        "dependence": "shared",
        "kernel": relfit.IMQ(2.0),
    },
    "sum": {"kernel": relfit.Gaussian(1.0) + relfit.Matern(2.5, 2.0), "test": "best-set"},
    "linear": {"estimator": "linear", "test": "carve", "margin": 0.001},
    "cmmd": {"preset": "cmmd"},
    "projection": {"estimator": relfit.Complete(variance="projection"), "correction": "holm"},
    "incomplete": {"estimator": relfit.Incomplete(400)},
    "median imq": {"kernel": relfit.IMQ("median")},
    "relpsi": {"test": relfit.RelPSI(), "kernel": relfit.MultiScale()},
    "block": {"estimator": relfit.Block(16)},
    "polynomial": {"kernel": relfit.Polynomial(), "estimator": "incomplete"},
    "groups": {"groups": np.arange(80) // 2, "dependence": "paired"},
    "tilted": {"kernel": Tilted(relfit.Gaussian(2.0), Decay(exponent=1.0, scale=3.0, centre=0.0))},
    "densities": {},
    "drawn": {"discrepancy": "mmd"},
    "target": {"test": "relmulti"},
    "chains": {"dependence": "chain"},
}


@pytest.mark.parametrize("name", CALLS)
def test_the_call_on_the_page_gives_the_same_answer(rng, name):
    reference = rng.normal(size=(80, 2))
    models = {k: rng.normal(m, 1, (80, 2)) for k, m in (("a", 0), ("b", 0.3), ("c", 1))}
    if name in ("densities", "drawn"):
        models = {k: multivariate_normal([m, 0.0]) for k, m in (("a", 0), ("b", 0.3), ("c", 1))}
    elif name in ("target", "chains"):
        reference = relfit.Density(score=lambda x: -x, dim=2)
    result = relfit.compare(reference, models, rng=11, **CALLS[name])
    (code,) = re.findall(r"<pre>(relfit\.compare\(.*?)</pre>", render_report(result))
    # Groups, and kernels that are no plain values, are left to the reader under these names.
    given = {"reference": reference, "models": models, **{k: CALLS[name].get(k) for k in ("groups", "kernel")}}
    again = eval(html.unescape(code), {"relfit": relfit, **given})
    ours, theirs = result.to_dict(), again.to_dict()
    # A bandwidth by the median rule is written as the number it came to.
    assert {k: v for k, v in ours.items() if k != "bandwidth_rule"} == {
        k: v for k, v in theirs.items() if k != "bandwidth_rule"
    }
