"""What UME and FSSD find beside the complete MMD and KSD: drawn and optimised locations, few and many."""

import time

from relfit import FSSD, UME, Gaussian, decide, estimate
from relfit.paper.problems import blobs, candidates, mean_shift_l10, rbm_l7
from studies.study import ALPHA, declared, error_rates, unadjusted

PROBLEMS = {"blobs": blobs, "meanshift-l10": mean_shift_l10, "rbm-l7": lambda: rbm_l7(0.18)}
AT_LOCATIONS = {"mmd": UME, "ksd": FSSD}
TESTS = ("relpsi", "best-set")
FORMS = {
    "complete": None,
    "10 drawn": {"locations": 10},
    "50 drawn": {"locations": 50},
    "10 optimised": {"locations": 10, "choose": "optimise"},
}


def cells():
    """The paper's problems with the median bandwidth; blobs, which it cannot see, with a smaller one too."""
    problems = [
        ("meanshift-l10", 200, None),
        ("meanshift-l10", 500, None),
        ("rbm-l7", 1000, None),
        ("blobs", 500, None),
        ("blobs", 500, 1.5),
    ]
    return [
        {"problem": name, "measure": measure, "n": n, "bandwidth": bandwidth}
        for measure in ("mmd", "ksd")
        for name, n, bandwidth in problems
    ]


def trial(setting, seed):
    """The models each test declares worse with each form of the discrepancy, on one draw, and the seconds taken."""
    measure = setting["measure"]
    reference, models = candidates(PROBLEMS[setting["problem"]](), measure, setting["n"], seed)
    kernel = None if setting["bandwidth"] is None else Gaussian(setting["bandwidth"])
    out = {}
    for form, options in FORMS.items():
        discrepancy = measure if options is None else AT_LOCATIONS[measure](**options)
        start = time.process_time()
        joint = estimate(reference, models, discrepancy=discrepancy, kernel=kernel, rng=seed, progress=False)
        out[form] = {"seconds": time.process_time() - start}
        for test in TESTS:
            result = decide(joint, test=test, correction=unadjusted(test), alpha=ALPHA, rng=seed)
            out[form][test] = declared(result.names, result.worse)
    return out


def rows(setting, results):
    """A row per form: the fraction of the worse models found, and of the best ones declared worse."""
    problem, measure = PROBLEMS[setting["problem"]](), setting["measure"]
    out = []
    for form, options in FORMS.items():
        name = measure.upper() if options is None else AT_LOCATIONS[measure].__name__
        row = {
            "problem": setting["problem"],
            "n": setting["n"],
            "bandwidth": "median" if setting["bandwidth"] is None else f"{setting['bandwidth']:g}",
            "discrepancy": f"{name}, {form}",
            "trials": len(results),
        }
        for test in TESTS:
            rates = error_rates(problem, [result[form][test] for result in results])
            row |= {f"{test} TPR": rates["TPR"], f"{test}, tied ones declared": rates["FPR"]}
        out.append({**row, "CPU ms": f"{1000 * min(result[form]['seconds'] for result in results):.0f}"})
    return out
