"""Ten pages of real comparisons, and a check that nothing on a page contradicts anything else on it.

    python -m tools.pages FOLDER [--pictures]

writes the pages into a folder and checks them; with --pictures Chromium also takes a picture of each at three widths,
light and dark. The tests make and check the same pages.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from html import unescape
from pathlib import Path

import numpy as np

import relfit
from relfit.cli.demo import TITLE, problem, run
from relfit.report.gate import judge
from relfit.results.scale import is_worse, kind_of

WIDTHS = (390, 820, 1500)


def demo(_folder):
    result = run(0)
    return result, {"data": problem(0), "title": TITLE}


def scores(skills, items, seed, spread=1.2):
    """0/1 scores of models with these skills on items of unequal difficulty."""
    rng = np.random.default_rng(seed)
    hard = spread * rng.normal(size=(items, 1))
    return (rng.random((items, len(skills))) < 1.0 / (1.0 + np.exp(hard - np.array(skills)))).astype(float)


def evals(_folder):
    right = scores([1.2, 1.1, 0.95, 0.8, 0.3], 600, 4)
    tasks = np.repeat(["arithmetic", "reading", "world knowledge"], 200)
    options = {"names": ["large", "tuned", "base", "small", "tiny"], "strata": tasks, "higher_is_better": True}
    read = relfit.scores(right, **options)
    return relfit.compare_losses(read, rng=0), {"data": read, "title": "Five language models on three tasks"}


def table(folder):
    rng = np.random.default_rng(1)

    def written(name, shift=0.0, odds=0.0, stretch=1.0, n=500):
        age = rng.normal(40, 12, n)
        income = np.exp(10 + 0.4 * stretch * rng.normal(size=n) + 0.01 * age + shift)
        children = rng.poisson(1.2 + odds, n)
        region = rng.choice(["north", "south", "west"], n, p=[0.5 - odds, 0.3 + odds, 0.2])
        rows = [f"{a:.1f},{b:.0f},{c},{d}" for a, b, c, d in zip(age, income, children, region, strict=True)]
        path = Path(folder) / f"{name}.csv"
        path.write_text("\n".join(["age,income,children,region", *rows]))
        return str(path)

    data, models = written("census"), {"bootstrap": written("bootstrap"), "copula": written("copula", odds=0.02)}
    models |= {"network": written("network", 0.05, 0.08), "forest": written("forest", 0.1, 0.2, 2.0)}
    result = relfit.compare(data, models, rng=0).changed(reference="census.csv")
    return result, {"data": (data, models), "title": "Synthetic census tables"}


def posterior(_folder):
    rng = np.random.default_rng(2)
    target = relfit.Density(score=lambda x: -x / np.array([1.0, 4.0]), dim=2)
    scale = np.array([1.0, 2.0])
    draws = {
        "NUTS": scale * rng.normal(size=(600, 2)),
        "variational": 0.8 * scale * rng.normal(size=(600, 2)),
        "Laplace": scale * rng.normal(size=(600, 2)) + 0.08,
        "too narrow": 0.5 * scale * rng.normal(size=(600, 2)),
    }
    return relfit.compare(target, draws, rng=0), {"data": (target, draws), "title": "Draws from a posterior"}


def fifty(_folder):
    skills = np.linspace(1.5, 0.2, 50)
    names = [f"checkpoint {1000 * (k + 1)}" for k in range(50)]
    right = scores(skills, 800, 5)
    read = relfit.scores(right, names=names, higher_is_better=True)
    return relfit.compare_losses(read, rng=0, correction="none"), {"title": "Fifty checkpoints"}


def long_names(_folder):
    rng = np.random.default_rng(6)
    data = rng.normal(size=(300, 3))
    models = {
        f"organisation-with-a-name/model-family-{k}b-instruct-v2.{k}-quantised-4bit-temperature-0.7": rng.normal(
            shift, 1, (300, 3)
        )
        for k, shift in enumerate((0.05, 0.12, 0.2, 0.26, 0.6))
    }
    return relfit.compare(data, models, rng=0), {"data": (data, models)}


def two(_folder):
    rng = np.random.default_rng(7)
    data, models = (
        rng.normal(size=(250, 2)),
        {"old": rng.normal(0.33, 1, (250, 2)), "new": rng.normal(0.1, 1, (250, 2))},
    )
    return relfit.compare(data, models, rng=0), {"data": (data, models)}


def tied(_folder):
    rng = np.random.default_rng(8)
    data = rng.normal(size=(300, 2))
    models = {name: rng.normal(0.1, 1, (300, 2)) for name in ("a", "b", "c", "d", "e", "f")}
    models["a again"] = models["a"]
    return relfit.compare(data, models, rng=0), {"data": (data, models)}


def margin(_folder):
    rng = np.random.default_rng(9)
    data = rng.normal(size=(500, 2))
    shifts = {"a": 0.05, "b": 0.1, "c": 0.25, "d": 0.4, "e": 0.8}
    models = {name: rng.normal(shift, 1, (500, 2)) for name, shift in shifts.items()}
    return relfit.compare(data, models, margin=0.02, rng=0), {
        "data": (data, models),
        "title": "Differences that matter",
    }


def gate_failure(_folder):
    rng = np.random.default_rng(10)
    data = rng.normal(size=(300, 2))
    models = {"production": rng.normal(0.1, 1, (300, 2)), "candidate": rng.normal(0.5, 1, (300, 2))}
    models["last month"] = rng.normal(0.2, 1, (300, 2))
    result = relfit.compare(data, models, rng=0)
    return result, {"data": (data, models), "gate": judge(result, "candidate"), "command": "relfit compare …"}


CASES = dict(
    demo=demo,
    evals=evals,
    table=table,
    posterior=posterior,
    fifty=fifty,
    long_names=long_names,
    two=two,
    tied=tied,
    margin=margin,
    gate_failure=gate_failure,
)


def write(name, folder):
    """Make one page; returns the comparison, the gate or None, and the file."""
    result, options = CASES[name](folder)
    page = Path(folder) / f"{name}.html"
    result.report(page, **options)
    return result, options.get("gate"), page


def check(result, gate, html):
    """Everything the page has about a model, compared with its verdict in the result file. Raises AssertionError."""
    rows = result.rows()
    verdicts = json.loads(result.to_json())["verdicts"]
    expected = [verdicts[result.names.index(row["name"])] for row in rows]
    shown = _models(html)
    assert shown == expected, (shown, expected)
    intervals = _intervals(html)
    for k, row in enumerate(rows):
        low, high = intervals.get(k, (math.nan, math.nan))
        kind = kind_of(expected[k])
        if math.isnan(low):
            assert kind == "best" or row["name"] in result.impossible, row["name"]
        else:
            assert (low > result.margin) == is_worse(expected[k]), (row["name"], expected[k], low)
            assert not result.margin or kind == "best" or (high <= result.margin) == (kind == "equal")
    for k, cells in _pairs(html).items():
        assert bool({"worse", "weak"} & {*cells}) == is_worse(expected[k]), (rows[k]["name"], cells)
    _check_sentence(result, html)
    headline = {what: int(number) for number, what in _headline(html)}
    assert headline == dict(Counter(verdicts))
    assert len(", ".join(headline)) < 100
    if gate is not None:
        sentence = re.search(r"Gate (passed|failed): ([^<]*)", html)
        assert (sentence[1] == "failed") == gate.failed
        own = verdicts[result.names.index(gate.name)]
        assert gate.fixed or ("significantly worse" in sentence[2]) == (gate.failed and kind_of(own) == "worse")


def _models(html):
    body = html[html.index('<table class="models') :]
    rows = re.findall(
        r'<tr class="(\w+)" role="row" data-model="(\d+)">(.*?)</tr>', body[: body.index("</table>")], re.S
    )
    found = []
    for kind, _, cells in rows:
        shown = re.search(r'class="verdict"[^>]*>\s*<span[^>]*>[^<]*</span>\s*([^<]*)', cells)[1].strip()
        # What is remarked on the verdict stands in brackets after it.
        verdict = re.sub(r" \((?!unadjusted|FDR).*\)$", "", shown)
        assert kind == kind_of(verdict), (kind, verdict)
        found.append(verdict)
    return found


def _intervals(html):
    """From the picture of the differences, the numbers beside it, by the model's place in the table."""
    drawn = html.split('<table class="forest"')[2]
    found = {}
    for place, numbers in re.findall(
        r'data-model="(\d+)">.*?<td class="numbers" role="cell">([^<]*)</td>', drawn, re.S
    ):
        text = unescape(numbers).replace("−", "-").replace("∞", "inf")
        found[int(place)] = tuple(map(float, text.split(" to "))) if " to " in text else (math.nan, math.nan)
    return found


def _pairs(html):
    if 'id="pairs"' not in html:
        return {}
    body = html[html.index('id="pairs"') :]
    rows = re.findall(r'<tr data-model="(\d+)">(.*?)</tr>', body[: body.index("</table>")], re.S)
    return {int(place): re.findall(r'<td class="([\w-]+)">', cells) for place, cells in rows}


def _headline(html):
    tally = re.search(r'class="tally">(.*?)</(?:h1|p)>', html, re.S)[1]
    return re.findall(r"</span>(\d+) ([^<]*)</span>", tally)


def _check_sentence(result, html):
    sentence = unescape(re.search(r'<p class="answer">([^<]*)</p>', html)[1])
    verdicts = dict(zip(result.names, result.verdicts, strict=True))
    others = {verdict for name, verdict in verdicts.items() if name != result.best}
    for verdict in others:
        assert f"{verdict}: " in sentence.lower(), (verdict, sentence)
        clause = sentence[sentence.lower().index(f"{verdict}: ") :].partition(". ")[0]
        named = [
            name for name in verdicts if re.search(rf"(?<![\w ]){re.escape(name)}(?![\w ])|'{re.escape(name)}'", clause)
        ]
        assert all(verdicts[name] == verdict for name in named), (clause, named)


def pictures(folder):
    """A picture of every page at each width, light and dark."""
    from tools.browser import executable, start

    browser = start(executable())
    for name in CASES:
        for width in WIDTHS:
            for dark in (False, True):
                browser.open(Path(folder) / f"{name}.html", width, dark=dark)
                browser.picture(Path(folder) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
    browser.close()


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", action="store_true", help="take pictures with Chromium, too")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        result, gate, page = write(name, options.folder)
        check(result, gate, page.read_text(encoding="utf-8"))
        print(f"{name}: {', '.join(result.verdicts)}"[:200])
    if options.pictures:
        pictures(options.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
