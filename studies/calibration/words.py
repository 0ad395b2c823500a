"""The words of the pages under docs/calibration/; `pages` fills in the tables."""

INDEX = """# Calibration: do the levels hold?

Written by `make calibrate` (`studies/calibration`, which goes on where it was stopped). Every procedure is
run on {settings} settings whose truly best models are known, {trials} trials or more each (the tables say how many),
every trial with fresh, independent samples, α = 0.05; all procedures see the same samples. ± is one
Monte-Carlo standard error.

- [Levels](levels.md): the simulated error rates, setting by setting ([as CSV](levels.csv), with power).
- [Power](power.md): how often the worse models are found, on the paper's problems.
- [Laws](laws.md): order of the models, copies, negative correlation, several randomisations.
- [The corrected variance](corrected.md) in the best set.
- What follows from it: [which procedure to choose](../choosing.md).

## What is checked

| procedure | holds at α |
| --- | --- |
| RelPSI, carving, best set | FPR: the share of the models tied for best that are declared worse |
| RelMulti, best set + BY | FDR: the share of models tied for best among those declared worse |
| best set + Holm | FWER: the chance that any model tied for best is declared worse |

RelMulti selects on a quarter of the rows and corrects by Benjamini–Yekutieli. A level counts as kept when the
rate is at most 0.05 + 3 standard errors, and for the first three when the same holds for every tied model by itself
(the 3 widened for the number of models looked at). A NaN anywhere would have stopped the run.

**Levels kept:** {verdict}.

![Error rates of all procedures, MMD](levels-mmd.png)

![Error rates of all procedures, KSD](levels-ksd.png)

## Levels that are not kept

{failing}

{remarks}

## The variance of KSD at small n

KSD's covariance is the jackknife's, ((n−1)/(n−2))² times the projection form ψᵀψ/(n(n−1)). Mean estimated variance of
D₁ − D₂ over its true variance, mean-shift pair, and the level of the l = 2 RelPSI (two-sided z):

{variance}
"""

REMARKS = """\
RelPSI on MMD among many tied samples: MMD estimates are skewed, and each moves with its own estimated variance, so a
model that looks good by chance also looks precise. `compare` says so wherever RelPSI selects among more than 20
samples; the best set and carving do not suffer from it."""

LEVELS = """# Levels

Written by `make calibrate`; [what is checked](index.md). A rate above its bound is bold and marked ✗.

- `tied-l2` … `tied-l200`: all models tied (mean shifts of one length in ten dimensions). An exact RelPSI then has FPR
  α(l−1)/l, because the selected model is never declared worse.
- `meanshift-l10`: the paper's problem, nine models tied, one worse. `copy` and `near-copy` add an exact copy of one of
  the tied models, or one changed by 1e-6.
- `rbm-l7`, `blobs`, `mixture`, `rotation`, `pair`: the paper's other problems; `rbm-l7 ε=.20` and `pair (2.5, 2.5)`
  hold two equal densities, which KSD tests once.
- `identical`: ten models with one distribution that is not the data's. `reference`: all ten have the data's
  distribution. `near-reference`: tied, and nearly the data's (shifts of 0.02). As densities the first two are ten
  copies.
- `d=500`: ten tied models, 500 dimensions, 100 rows. `t₂`, `Cauchy`: heavy tails in five dimensions.
- `narrow`: a bandwidth 50 times too small. `atoms`: rows of ten coin tosses.
- `shared`, `paired`: models made from one noise sample, and from the reference rows too, compared with that
  `dependence`.
- `few model rows`: 50 of each model, 1000 of the reference; `few reference rows`: 1000 and 50.
- `far-best`: one model far better than nine that are tied with each other; only it can be declared worse by mistake.

From `tied-l50` on, and in the cases from `identical` to the end of this list, the best set makes 4000 random draws
instead of 20,000, to save time; its p-values are valid with any number of them.

{tables}"""

POWER = """# Power

Written by `make calibrate`: {fewest} to {most} trials a column, α = 0.05, complete
estimators, Gaussian kernel with the median bandwidth; ± is one Monte-Carlo standard error. TPR is the share of the
worse models that are found, FPR the share of the models tied for best that are declared worse, FDR the share of those
among the models declared worse.

`meanshift-l10` has one worse model and nine tied ones; `graded` has ten models at .5, .55, …, .95, only the first is
best; `rbm-l7` has seven RBMs, perturbed by ε and by .2 to .5 (at ε = .20 two are equal).

*Split 10/90* selects on a tenth of the rows and tests on the rest without a correction; *RelMulti* selects on a
quarter, *RelMulti 50%* on half (as in the paper's experiments), both with Benjamini–Yekutieli. *Naive argmin*
declares every model worse that does not have the lowest estimate. RelPSI, carving, split 10/90 and the best set hold
the FPR; RelMulti and best set + BY hold the FDR: compare within these groups.

## MMD

![Power with MMD](power-mmd.png)

TPR:

{mmd_TPR}

FPR:

{mmd_FPR}

FDR:

{mmd_FDR}

## KSD

![Power with KSD](power-ksd.png)

TPR:

{ksd_TPR}

FPR:

{ksd_FPR}

FDR:

{ksd_FDR}
"""

LAWS = """# Laws

Written by `make calibrate`; ± is one Monte-Carlo standard error.

## The order of the models changes nothing

Each trial compares the models twice, the second time in a random order. "Changed verdicts" counts every verdict and
every choice of the best model that differs, over all four tests; p-values may move by rounding.

{order}

## A copy changes nothing

One tied model of `meanshift-l10` is given twice: exactly (`copy`) or changed by 1e-6 (`near-copy`). Differences are
with the copy minus without, trial by trial. "Unchanged" means that the change of TPR is within 2 standard errors.

{copies}

An exact copy is recognised and tested once. A near copy of a *sample* is taken for an independent sample, and
`compare` warns that two samples are nearly the same rows: RelPSI loses power whenever the copied model is selected,
because a model level with the best masks the others. The best set has no such weakness; with a correction, every
model more makes it a little dearer. (Near copies of densities have a difference without variance and are recognised
by that.)

## False discoveries under negative correlation

D ~ N(θ, V) with V known; the first model has hardly any noise, the others correlate by −1/(l−2), as low as that many
can; `worse` of them lie 3 standard errors above the rest, which is tied. RelMulti selects and tests on independent
estimates of equal precision. "auto" is BH where no two differences to the selected model correlate negatively,
otherwise BY. BH and BY should hold the FDR, Holm the FWER; BH is proved for positive dependence only.

{negative}

## Carving once, and over several randomisations

`carve_repeated` (`from relfit.stats.tests.carve import carve_repeated`) takes twice the median p-value of 21
randomisations (valid under any dependence: Rüger 1978; Meinshausen, Meier and Bühlmann 2009). Each trial is decided
with two seeds on the same estimate; 100 random draws each.

{averaging}
"""

CORRECTED = """# The best set with the corrected variance

Written by `make calibrate`; ± is one Monte-Carlo standard error. `variance="projection"` (the default) counts the
second-order part of the variance twice and is conservative for models close to the data; `variance="corrected"` counts
it once. The corrected V has no rows to resample, so the best set then has Student's law alone below 300 rows.

{table}
"""
