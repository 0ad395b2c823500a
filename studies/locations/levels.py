"""Do the tests keep their level with UME and FSSD? The best models at the locations used are known exactly."""

import numpy as np

from relfit import FSSD, UME, compare
from relfit.paper.experiment import rate
from relfit.paper.problems import candidates, mean_shift_l10, mean_shift_pair
from studies.problems import all_tied, mirrored_points, true_ume
from studies.study import ALPHA, declared, level, unadjusted

PROBLEMS = {"pair": mean_shift_pair, "meanshift-l10": mean_shift_l10, "tied-l10": lambda: all_tied(10)}
DISCREPANCIES = {"ume": UME, "fssd": FSSD}
NAMES = {"ume": "UME", "fssd": "FSSD"}
LOCATIONS = {"given": "given, mirrored", "data": "drawn", "optimise": "optimised"}
TESTS = ("relpsi", "relmulti", "best-set", "carve")
FPR = "FPR, best at the locations"


def cells():
    """UME where the pair is tied; FSSD, for which mean shifts of one length tie everywhere; UME drawn."""
    drawn = [
        ("pair", "ume", "given"),
        ("pair", "fssd", "data"),
        ("tied-l10", "fssd", "data"),
        ("pair", "ume", "data"),
        ("meanshift-l10", "ume", "data"),
    ]
    return [{"problem": p, "measure": m, "choose": c, "n": 300, "tests": list(TESTS)} for p, m, c in drawn]


def optimised_cells():
    """The same with optimised locations."""
    problems = [("tied-l10", "fssd"), ("pair", "ume"), ("meanshift-l10", "ume")]
    tests = ["relpsi", "best-set"]
    return [{"problem": p, "measure": m, "choose": "optimise", "n": 300, "tests": tests} for p, m in problems]


def large_cells():
    """With many rows: two models tied in MMD are not tied at a few locations drawn or optimised."""
    return [
        {"problem": "pair", "measure": "ume", "choose": choose, "n": 10_000, "tests": ["best-set"]}
        for choose in ("data", "optimise")
    ]


def trial(setting, seed):
    """The models each test declares worse, and those that are best at the locations it used."""
    problem, measure = PROBLEMS[setting["problem"]](), setting["measure"]
    reference, models = candidates(problem, "ksd" if measure == "fssd" else "mmd", setting["n"], seed)
    points = {"locations": mirrored_points(problem.dim)} if setting["choose"] == "given" else {}
    discrepancy = DISCREPANCIES[measure](**points or {"choose": setting["choose"]})
    out = {}
    for test in setting["tests"]:
        options = {"test": test, "correction": unadjusted(test), "alpha": ALPHA, "rng": seed, "progress": False}
        result = compare(reference, models, discrepancy=discrepancy, **options)
        out[test] = {"worse": declared(result.names, result.worse), "best": sorted(_best(problem, measure, result))}
    return out


def _best(problem, measure, result):
    """The models with the smallest true UME² at the locations.

    FSSD² is tied wherever KSD² is, for mean shifts.
    """
    if measure != "ume":
        return problem.best
    truth = true_ume(problem, result.locations, result.kernel.length)
    near = truth <= truth.min() * (1.0 + 1e-9)
    return frozenset(np.array(list(problem.models))[near].tolist())


def rows(setting, results):
    """A row per test: how often a model that is best at the locations, or tied in MMD or KSD, is declared worse."""
    tied = PROBLEMS[setting["problem"]]().best
    out = []
    for test in setting["tests"]:
        pairs = [(set(result[test]["worse"]), set(result[test]["best"])) for result in results]
        fpr = rate([len(worse & best) / len(best) for worse, best in pairs])
        out.append(
            {
                "problem": setting["problem"],
                "discrepancy": NAMES[setting["measure"]],
                "locations": LOCATIONS[setting["choose"]],
                "n": setting["n"],
                "test": test,
                "trials": len(pairs),
                FPR: fpr,
                "level": level(fpr),
                "declared worse though tied in MMD": rate([len(worse & tied) / len(tied) for worse, _ in pairs]),
            }
        )
    return out
