"""Bias of the estimators, and estimated over true variance of D₁ − D₂, by simulation against closed forms.

Besides: does it matter that KSD's second-order correction is estimated from some pairs and not from all?
"""

import math
from dataclasses import replace

import numpy as np

from relfit import Density, Gaussian, estimate
from relfit.paper.problems import mean_shift
from relfit.stats.joint import mixed, positive_part
from studies.problems import mean_kernel, true_mmd
from studies.study import corrected, estimator_options

# Draws in one stored trial.
REPLICATES, NOISE_REPLICATES = 100, 20
CHEAPER = ("linear", "block", "incomplete 1", "incomplete 2", "incomplete 5", "incomplete 25")
ALL = ("complete", *CHEAPER)
COMPLETE = ("complete, projection", "complete, corrected")
# The two quantities that are studied: D₁ − D₂, and D₁ by itself.
CONTRASTS = np.array([[1.0, -1.0], [1.0, 0.0]])
NAMES = {"mmd": "MMD", "ksd": "KSD", "target": "KSD to a target"}


def options_of(design, n):
    """The options of `compare` for a design in words: "complete", "linear", "block", "block 5", "incomplete 25".

    The number is the rows of a block, or the pairs that every row is the first of.

    >>> options_of("incomplete 25", 1000), options_of("block 5", 1000)
    ({'estimator': 'incomplete', 'pairs': 25000}, {'estimator': 'block', 'blocks': 200})
    """
    estimator, _, number = design.partition(" ")
    if not number:
        return estimator_options(estimator, **({"variance": "projection"} if estimator == "complete" else {}))
    size = {"pairs": n * int(number)} if estimator == "incomplete" else {"blocks": n // int(number)}
    return estimator_options(estimator, **size)


def estimates_of(data, design, kernel, seed):
    """The estimates by a design, by name; the complete one with each of its covariances."""
    reference, models = data
    rows = max(len(x) for x in (reference, *models) if not isinstance(x, Density))
    options = options_of(design, rows)
    joint = estimate(reference, models, kernel=kernel, rng=seed, progress=False, **options)
    if design != "complete":
        return {design: joint}
    return dict(zip(COMPLETE, (joint, replace(joint, covariance=corrected(joint))), strict=True))


def tied_cells():
    """Two tied models: the measure, the sizes, and the designs tried on the same draws."""
    return [
        *(_cell("tied", m, 300, 2, ALL) for m in ("mmd", "ksd", "target")),
        *(_cell("tied", m, 100, 2, ["complete"]) for m in ("mmd", "ksd", "target")),
        *(_cell("tied", m, 100, 500, ["complete"]) for m in ("mmd", "ksd")),
        _cell("tied", "mmd", 300, 2, ["complete"], sizes=[100, 600]),
        _cell("tied", "mmd", 100, 2, ["complete"], sizes=[50, 400]),
        _cell("tied", "mmd", 100, 500, ["complete"], sizes=[50, 400]),
        _cell("tied", "target", 100, 2, ["complete"], sizes=[100, 400]),
    ]


def exact_cells():
    """A model that equals the data, beside one that does not."""
    return [_cell("exact", m, 300, 2, ALL) for m in ("mmd", "ksd")]


def _cell(problem, measure, n, d, designs, sizes=()):
    shape = {"sizes": list(sizes)} if sizes else {}
    return {"problem": problem, "measure": measure, "n": n, "d": d, "designs": list(designs), **shape}


def trial(setting, seed):
    """For each design and covariance: means over the draws of the error, its square and the estimated variance."""
    means, kernel = means_of(setting), kernel_of(setting)
    truth = population(means, setting["measure"], kernel)
    moments = {}
    for k in range(REPLICATES * seed, REPLICATES * (seed + 1)):
        data = draw(means, setting, k)
        for design in setting["designs"]:
            for form, joint in estimates_of(data, design, kernel, k).items():
                error = CONTRASTS @ (joint.values - truth)
                variance = np.einsum("ij,jk,ik->i", CONTRASTS, joint.covariance, CONTRASTS)
                moments.setdefault(form, []).append(np.array([error, error**2, variance]))
    return {name: np.mean(rows, axis=0).tolist() for name, rows in moments.items()}


def means_of(setting):
    """Two means ±.5e₁, or a model that equals the data beside one at .5e₁."""
    first = np.eye(setting["d"])[0]
    return np.outer([0.5, -0.5] if setting["problem"] == "tied" else [0.0, 0.5], first)


def kernel_of(setting):
    """A Gaussian kernel of bandwidth √(2d)."""
    return Gaussian(math.sqrt(2.0 * setting["d"]))


def draw(means, setting, seed):
    """Data N(0, I) and models N(m_i, I): samples, densities, or samples against the density N(0, I)."""
    rng = np.random.default_rng([20190412, seed])
    n, d = setting["n"], setting["d"]
    if setting["measure"] == "ksd":
        return rng.standard_normal((n, d)), [Density(score=lambda x, m=m: m - x, dim=d) for m in means]
    samples = [m + rng.standard_normal((size, d)) for m, size in zip(means, setting.get("sizes", (n, n)), strict=True)]
    if setting["measure"] == "target":
        return Density(score=np.negative, dim=d), samples
    return rng.standard_normal((n, d)), samples


def population(means, measure, kernel):
    """(l,) the true discrepancies of N(m_i, I) from N(0, I).

    MMD² in closed form. The two scores differ by m_i everywhere, so that KSD² = ‖m_i‖² E k(x, x'), and the law of
    x − x' is that of the data whether the rows are the data's or the model's.
    """
    problem = mean_shift(means)
    if measure == "mmd":
        return true_mmd(problem, kernel.length)
    return np.square(means).sum(axis=1) * mean_kernel(problem.reference, problem.reference, kernel.length)


def rows(setting, results):
    """A row per design: bias over its standard error, and mean estimated over true variance."""
    sizes = setting.get("sizes")
    where = {
        "measure": NAMES[setting["measure"]],
        "rows": f"{setting['n']}" + (f"; models {sizes[0]}, {sizes[1]}" if sizes else ""),
        "d": setting["d"],
    }
    return [
        {**where, "estimator": _words(name), **_figures(np.array([result[name] for result in results]))}
        for name in forms_of(setting["designs"])
    ]


def forms_of(designs):
    """The designs, the complete one with each of its covariances."""
    return [form for design in designs for form in (COMPLETE if design == "complete" else (design,))]


def ratio(results, name, contrast=0):
    """Mean estimated over true variance with its standard error, from means over batches of draws.

    The true mean is known, so that the true variance is the mean square error (the estimates are unbiased).
    """
    batches = np.array([result[name] for result in results])[:, :, contrast]
    _, square, variance = batches.mean(axis=0)
    value = variance / square
    residual = (batches[:, 2] - value * batches[:, 1]) / square
    return float(value), float(np.std(residual, ddof=1) / math.sqrt(len(batches)))


def bias(results, name):
    """(2,) the mean error of D₁ − D₂ and of D₁, over its standard error."""
    errors = np.array([result[name] for result in results])[:, 0, :]
    return np.asarray(errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / math.sqrt(len(errors))))


def _figures(batches):
    results = [{"": batch} for batch in batches]
    off = bias(results, "")
    return {
        "trials": REPLICATES * len(batches),
        "bias of D₁, in s.e.": f"{off[1]:+.1f}",
        "of D₁−D₂": f"{off[0]:+.1f}",
        "estimated / true variance of D₁−D₂": ratio(results, "", 0),
        "of D₁": ratio(results, "", 1),
    }


def _words(name):
    estimator, _, number = name.partition(" ")
    return f"incomplete, R = {number}" if estimator == "incomplete" else name


def noise_cells():
    """Tied models and a model that equals the data, where the correction is largest."""
    return [
        {"problem": problem, "measure": "ksd", "n": n, "d": d}
        for problem in ("tied", "exact")
        for n, d in ((100, 2), (300, 2), (100, 50))
    ]


def noise_trial(setting, seed):
    """Corrected variances with C from drawn pairs and from all pairs, on the same data.

    Of D₁ − D₂ where the models are tied; of D₁ where model 1 equals the data.
    """
    means, kernel = means_of(setting), kernel_of(setting)
    contrast = CONTRASTS[0] if setting["problem"] == "tied" else CONTRASTS[1]
    a, b = np.triu_indices(setting["n"], 1)
    out = {"drawn": [], "all": []}
    for k in range(NOISE_REPLICATES * seed, NOISE_REPLICATES * (seed + 1)):
        data = draw(means, setting, k)
        projection, drawn = (joint.covariance for joint in estimates_of(data, "complete", kernel, k).values())
        # C/M with C the covariance of the values of all M pairs.
        second_order = np.cov(stein_values(data[0][a], data[0][b], means, kernel.length)) / len(a)
        whole = second_order + positive_part(projection - 2.0 * second_order, mixed(second_order, projection))
        out["drawn"].append(float(contrast @ drawn @ contrast))
        out["all"].append(float(contrast @ whole @ contrast))
    return out


def stein_values(x, y, means, bandwidth):
    """(l, pairs) values of the Stein kernels of N(m_i, I), a Gaussian kernel k: with s the score and δ = x − y,

    u(x,y) = k·[s(x)·s(y) + (s(x) − s(y))·δ/b² + d/b² − ‖δ‖²/b⁴], and here s(x) − s(y) = −δ.
    """
    squares = np.square(x - y).sum(axis=1)
    b2 = bandwidth**2
    rest = x.shape[1] / b2 - squares / b2 - squares / b2**2
    return np.exp(-0.5 * squares / b2) * np.stack([((m - x) * (m - y)).sum(axis=1) + rest for m in means])


def noise_rows(setting, results):
    """Their means and spreads, relative to the mean with all pairs."""
    drawn, whole = (np.concatenate([result[name] for result in results]) for name in ("drawn", "all"))
    centre = whole.mean()
    return [
        {
            "models": setting["problem"],
            "n": setting["n"],
            "d": setting["d"],
            "trials": len(whole),
            "mean, drawn / all": f"{drawn.mean() / centre:.3f}",
            "s.d. of V, drawn": f"{drawn.std() / centre:.3f}",
            "s.d. of V, all": f"{whole.std() / centre:.3f}",
            "s.d. of the two's difference": f"{(drawn - whole).std() / centre:.3f}",
        }
    ]
