"""Are UME² and FSSD² unbiased, and is their covariance right? Simulated where the truth has a closed form."""

import math

import numpy as np

from relfit import FSSD, UME, Gaussian, estimate
from relfit.paper.experiment import rate
from relfit.paper.problems import mean_shift
from studies.problems import mirrored_points, true_fssd, true_ume
from studies.study import corrected

REPLICATES = 100  # a trial is then long enough to be worth storing
DIFFERENCE, FIRST = [1.0, -1.0], [1.0, 0.0]


def cells():
    """A tied pair N(±.5e₁, I) against N(0, I) at ten locations that mirror each other; a pair equal to the data."""
    pair = {"shift": 0.5, "d": 2, "n": 300, "sizes": [300, 300], "dependence": "independent"}
    of_ume = [
        {},
        {"n": 100, "sizes": [100, 100]},
        {"d": 10},
        {"sizes": [150, 600]},
        {"dependence": "shared"},
        {"dependence": "paired"},
        {"shift": 0.0, "contrast": FIRST},
    ]
    of_fssd = [{}, {"n": 100}, {"d": 10}, {"shift": 0.0, "contrast": FIRST}]
    return [
        *({"measure": "ume", **pair, **changes} for changes in of_ume),
        *({"measure": "fssd", **pair, "sizes": [], **changes} for changes in of_fssd),
    ]


def trial(setting, seed):
    """Values of the first model, differences of the two (or D₁ itself), and their estimated variances."""
    rng, contrast = np.random.default_rng([20190517, seed]), np.array(setting.get("contrast", DIFFERENCE))
    out = {"value": [], "difference": [], "projection": [], "corrected": []}
    for _ in range(REPLICATES):
        joint = _estimate(setting, rng)
        out["value"].append(float(joint.values[0]))
        out["difference"].append(float(contrast @ joint.values))
        out["projection"].append(float(contrast @ joint.covariance @ contrast))
        out["corrected"].append(float(contrast @ corrected(joint) @ contrast))
    return out


def _estimate(setting, rng):
    d, dependence = setting["d"], setting["dependence"]
    points, kernel = mirrored_points(d), _kernel(setting)
    reference = rng.standard_normal((setting["n"], d))
    if setting["measure"] == "fssd":
        densities = _problem(setting).densities()
        return estimate(reference, densities, discrepancy=FSSD(kernel, points), rng=0, progress=False)
    noise = [rng.standard_normal((m, d)) for m in setting["sizes"]]
    if dependence != "independent":
        noise = noise[:1] * 2
    if dependence == "paired":
        reference = (reference + noise[0]) / math.sqrt(2.0)
    shift = setting["shift"] * np.eye(d)[0]
    samples = [noise[0] + shift, noise[1] - shift]
    options = {"discrepancy": UME(kernel, points), "dependence": dependence}
    return estimate(reference, samples, rng=0, progress=False, **options)


def rows(setting, results):
    """One row: the bias of D₁, estimated over true variance of D₁ − D₂ (or D₁), and the level of a two-sided z test."""
    draws = {key: np.concatenate([result[key] for result in results]) for key in results[0]}
    true_value = true_ume if setting["measure"] == "ume" else true_fssd
    truth = float(true_value(_problem(setting), mirrored_points(setting["d"]), _kernel(setting).length)[0])
    mean, error = rate(draws["value"])
    squares = np.square(draws["difference"])  # the mean is 0, by symmetry or because D₁ is
    variance, spread = rate(squares)
    rejected = np.abs(draws["difference"]) > 1.959964 * np.sqrt(draws["projection"])
    ratios = {form: (float(draws[form].mean()) / variance, spread / variance) for form in ("projection", "corrected")}
    independent = setting["dependence"] == "independent"
    return [
        {
            "discrepancy": setting["measure"].upper(),
            "d": setting["d"],
            "rows": ", ".join(str(n) for n in (setting["n"], *setting["sizes"])),
            "samples": setting["dependence"] if setting["sizes"] else "",
            "models": "N(±.5e₁, I)" if setting["shift"] else "equal to the data",
            "of": "D₁ − D₂" if setting["shift"] else "D₁",
            "trials": len(squares),
            "D₁, truth = 1": (mean / truth, error / truth) if truth else f"{mean / error:.1f} s.e. from 0",
            "projection / truth": ratios["projection"],
            "corrected / truth": ratios["corrected"] if independent else "",
            "level of z": rate(rejected) if setting["shift"] else "",
        }
    ]


def _problem(setting):
    axis = np.eye(setting["d"])[0]
    return mean_shift(setting["shift"] * np.stack([axis, -axis]))


def _kernel(setting):
    return Gaussian(math.sqrt(1.4 * setting["d"]))
