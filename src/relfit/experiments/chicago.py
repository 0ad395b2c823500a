"""Table 2: which density fits the robberies of Chicago? Mixtures, MADE and MAF by KSD on points no model has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from relfit.compare import compare, decide, estimate
from relfit.experiments import chicago_study as study
from relfit.experiments.chicago_data import robberies
from relfit.experiments.chicago_figure import draw
from relfit.experiments.chicago_study import MADE, MAF, MIXTURES, Study
from relfit.experiments.claims import ALPHA
from relfit.experiments.experiment import Cell, Check, Decision, Experiment, Results, Row, Setting
from relfit.experiments.given import Given, Tell
from relfit.experiments.lineups import beside, rejected, selected, verdicts
from relfit.experiments.summaries import rate
from relfit.kernels import IMQ, Gaussian, Kernel

KERNELS: dict[str, Kernel] = {"IMQ": IMQ(), "Gaussian": Gaussian()}
# The text of the paper, and the authors' code.
CORRECTION = {"IMQ": "by", "Gaussian": "bonferroni"}
WORDS = {"IMQ": "IMQ, BY", "Gaussian": "Gaussian, Bonferroni"}
SPLITS = {
    "50%, by": {"select_fraction": 0.5, "correction": "by"},
    "50%, bonferroni": {"select_fraction": 0.5, "correction": "bonferroni"},
    "50%, none": {"select_fraction": 0.5, "correction": "none"},
    "25%, by": {"select_fraction": 0.25, "correction": "by"},
}
WHOLE = {"RelPSI": "relpsi", "best set": "best-set", "carving": "carve"}
LINEUP = (*MIXTURES, MADE, MAF)
SHOWN_TOO = f"{MAF}, normal base, little L2"
PAPER_NLL = dict(zip(LINEUP, (2.64, 2.55, 2.38, 2.53, 2.25), strict=True))
NLL_REACH = dict(zip(LINEUP, (0.05, 0.05, 0.05, 0.05, 0.08), strict=True))
PAPER = {
    ("RelPSI", "rej."): dict(zip(LINEUP, (0.42, 0.28, 0.02, 0.26, 0.0), strict=True)),
    ("RelPSI", "sel."): dict(zip(LINEUP, (0.0, 0.01, 0.62, 0.01, 0.36), strict=True)),
    ("RelMulti", "rej."): dict(zip(LINEUP, (0.22, 0.07, 0.0, 0.04, 0.0), strict=True)),
    ("RelMulti", "sel."): dict(zip(LINEUP, (0.0, 0.08, 0.38, 0.03, 0.51), strict=True)),
}


def trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of n test points: the verdicts of every test, and the negative log-likelihoods."""
    known = study.load(setting["study"], setting["contents"])
    rows = np.random.default_rng(seed).choice(len(known.points), setting["n"], replace=False)
    lineup = [*MIXTURES, MADE, setting["flow"]]
    densities = {name: known.density(name) for name in lineup}
    points, kernel = known.points[rows], KERNELS[setting["kernel"]]
    joint = estimate(points, densities, kernel=kernel, rng=seed, progress=False)
    results = {words: decide(joint, test=test, alpha=ALPHA, rng=seed) for words, test in WHOLE.items()}
    for words, options in SPLITS.items():
        split: dict[str, Any] = {"test": "relmulti", "alpha": ALPHA, "rng": seed, "progress": False, **options}
        results[f"RelMulti {words}"] = compare(points, densities, kernel=kernel, **split)
    decisions = [decision for test, result in results.items() for decision in verdicts(test, result)]
    return {"decisions": decisions + _likelihoods(known, lineup, rows)}


def _likelihoods(known: Study, lineup: Sequence[str], rows: Any) -> list[Decision]:
    nll = {name: float(-known.log_probs[known.names.index(name)][rows].mean()) for name in lineup}
    best = min(nll, key=nll.__getitem__)
    unjudged: Decision = {"worse": False, "pvalue": None}
    return [
        {"test": "NLL", "model": name, **unjudged, "selected": name == best, "value": value}
        for name, value in nll.items()
    ]


def _known(results: Results) -> Study:
    setting = results[0].setting
    return study.load(setting["study"], setting["contents"])


def _relmulti(cell: Cell) -> str:
    return f"RelMulti 50%, {CORRECTION[cell.setting['kernel']]}"


def table(results: Results) -> list[Row]:
    """As the paper's: a row per setting and model, the paper's figure in brackets."""
    known = _known(results)
    return [_row(cell, model, known) for cell in results if cell.setting["flow"] == MAF for model in LINEUP]


def _row(cell: Cell, model: str, known: Study) -> Row:
    row: Row = {"kernel, correction": WORDS[cell.setting["kernel"]], "model": model}
    row["NLL (paper)"] = f"{known.nll(model):.2f} ({PAPER_NLL[model]:.2f})"
    row["NLL sel."] = f"{selected(cell, 'NLL', model)[0]:.2f}"
    for words, score in (("rej.", rejected), ("sel.", selected)):
        for name, test in (("RelPSI", "RelPSI"), ("RelMulti", _relmulti(cell))):
            row[f"{name} {words} (paper)"] = beside(score(cell, test, model), PAPER[name, words][model])
    return {**row, **{f"{name} rej.": rejected(cell, name, model) for name in ("best set", "carving")}}


def extras(results: Results) -> Mapping[str, list[Row]]:
    """The ablations: correction and split of RelMulti, base and penalty of the flow."""
    known = _known(results)
    splits: list[Row] = [
        {"kernel": cell.setting["kernel"], "model": model}
        | {f"select {words}": rejected(cell, f"RelMulti {words}", model) for words in SPLITS}
        for cell in results
        if cell.setting["flow"] == MAF
        for model in LINEUP
    ]
    return {
        "Rejection rates of RelMulti by its split and correction:": splits,
        "Another MAF in place of MAF (5), the other four models as before (the score is that at the test points):": [
            _flow_row(cell, known) for cell in results
        ],
    }


def _flow_row(cell: Cell, known: Study) -> Row:
    flow = cell.setting["flow"]
    size = np.linalg.norm(known.scores[known.names.index(flow)], axis=1)
    row: Row = {"kernel": cell.setting["kernel"], "flow": flow, "NLL": known.nll(flow)}
    row["lowest NLL"] = selected(cell, "NLL", flow)
    row["RelPSI sel."] = selected(cell, "RelPSI", flow)
    tests = {"RelPSI": "RelPSI", "RelMulti": _relmulti(cell), "best set": "best set"}
    row |= {f"{words} rej.": rejected(cell, test, flow) for words, test in tests.items()}
    row["KSD²"] = rate(d["value"] for trial in cell.decisions("RelPSI") for d in trial if d["model"] == flow)[0]
    others = [f"{rejected(cell, 'RelPSI', model)[0]:.2f}" for model in LINEUP[:-1]]
    return {**row, "largest score": f"{size.max():.0f}", "RelPSI rej. of the other four": ", ".join(others)}


def figure(results: Results) -> Figure:
    """The data and the densities above, the rejection rates below."""
    known = _known(results)
    shown = [*LINEUP, SHOWN_TOO]
    tests = {"RelPSI": "RelPSI", "RelMulti": "", "best set": "best set", "carving": "carving"}
    panels = {
        WORDS[cell.setting["kernel"]]: {
            name: [rejected(cell, test or _relmulti(cell), model) for model in LINEUP] for name, test in tests.items()
        }
        for cell in results
        if cell.setting["flow"] == MAF
    }
    papers = {name: list(PAPER[name, "rej."].values()) for name in ("RelPSI", "RelMulti")}
    return draw(known, shown, LINEUP, panels, papers)


def checks(results: Results) -> list[Check]:
    """The likelihoods; with the full recipe they are near the paper's."""
    known = _known(results)
    one, two, five = (known.nll(name) for name in MIXTURES)
    ordered = Check("more components, lower NLL", one > two > five, f"{one:.2f}, {two:.2f}, {five:.2f}")
    full = results[0].setting["n"] == study.FULL.draw
    return [ordered, *([_near(model, known.nll(model)) for model in LINEUP] if full else [])]


def _near(model: str, nll: float) -> Check:
    paper, reach = PAPER_NLL[model], NLL_REACH[model]
    return Check(f"{model}: NLL within {reach:.2f} of the paper's {paper:.2f}", abs(nll - paper) <= reach, f"{nll:.3f}")


def _settings(quick: bool) -> list[Setting]:
    recipe = study.QUICK if quick else study.FULL
    flows = [flow for flow in recipe.flows() if flow != MADE]
    return [{"kernel": kernel, "flow": flow, "n": recipe.draw} for flow in flows for kernel in KERNELS]


def _prepare(given: Given, quick: bool, tell: Tell) -> Setting:
    return dict(study.prepare(robberies(given, tell), study.QUICK if quick else study.FULL, tell))


CHICAGO = Experiment(
    name=study.NAME,
    title="Table 2: densities of the robberies in Chicago",
    setting="Locations of the robberies of 2016 (longitude and latitude, standardised): 7000 train, the rest test; a "
    "trial draws n = 2000 test points. Five densities: mixtures of 1, 2 and 5 Gaussians (scikit-learn), MADE (one "
    "autoregressive layer, normal base) and MAF (5) (five layers, base a mixture of 5 Gaussians), both with 512 "
    "hidden units (zuko), by maximum likelihood with L2 penalty .01 on the weights, Adam at .0001, early stopping on "
    "a tenth of the training rows. KSD, complete estimator, α = 0.05; RelMulti selects on half of the rows. The "
    "paper's text says IMQ and Benjamini–Yekutieli, the authors' code has a Gaussian with the median bandwidth and "
    "Bonferroni: both are run. Rej. is how often a model is declared worse, Sel. how often it is selected: has the "
    "smallest KSD, or NLL. Little L2 is a penalty of .000001.",
    paper="RelPSI declares MoG (1), MoG (2) and MADE worse, and is unsure of MoG (5) and MAF; RelMulti rejects less. "
    "NLL picks MAF every time. The paper's figures stand in brackets.",
    note="The training settings were fixed after KSD results of five trial networks had been seen (40 trials each; the "
    "step size is the published one and seed 0 was fixed beforehand); the rows of other seeds were added after "
    "seeing the main table. The checks cover likelihoods only. "
    "Likelihoods agree with the paper's. Rates are given this test set and these networks: all trials draw from "
    "the same test points, and the paper's split and networks are not published. The kernel matters most among "
    "the settings: with the Gaussian of the authors' code RelPSI rejects about half as often as with IMQ, and its "
    "rates stand closer to the paper's; correction and split change RelMulti less. But the last table shows that "
    "no single setting explains the rest: flows that differ in nothing but their random seed (first weights and "
    "order of the batches) have nearly the same NLL and are selected in anything from a few to nearly all of the "
    "trials, and with them the rejection rates of MoG (2), MoG (5) and MADE change too, so agreement with the "
    "paper in these is partly luck. KSD sees the gradient, which the likelihood hardly pins down: a flow trained "
    "in larger steps has the best NLL of its line-up and is rejected in most trials. Little L2 with a normal "
    "base, tried with three seeds, was hardly ever rejected here; little L2 with the MoG base was at times. The "
    "larger steps and little L2 with the MoG base are one trained network each: what was seen, not a law.",
    settings=_settings,
    trials=(100, 3),
    trial=trial,
    table=table,
    figure=figure,
    checks=checks,
    prepare=_prepare,
    takes=("--data", "--download"),
    extras=extras,
)
EXPERIMENTS: Sequence[Experiment] = (CHICAGO,)
