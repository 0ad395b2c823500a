"""The words of docs/estimators.md."""

from __future__ import annotations

TEXT = """# Estimators

Written by `make calibrate-estimators` (`studies/estimators`) on {machine}; figures with Monte-Carlo
standard errors.

| estimator | pairs of rows | when |
| --- | --- | --- |
| `complete` | all | the default; up to some 10,000 rows |
| `incomplete` | nR: each row with the R after it in random order, cyclically | beyond that; R = 25, or by `pairs=` |
| `block` | all within each of B blocks | to compare with others' results; V from few values |
| `linear` | n/2, each row in one | very many rows that cost nothing |

`estimator="auto"` takes the complete one where it needs less than about ten seconds on the cores there are, and
otherwise the incomplete one with as many pairs as that time allows (no fewer than 25 per row); the result says which,
and why. Of samples, all but the complete estimator pair row a of a model with row a of the reference, and need equal
sizes.

## The covariances

Every row of the cyclic design is in q = 2R pairs, M = nR in all. With g_a the mean of h over the pairs of row a,
P = ψᵀψ/(n(n−1)), ψ = 2(g − ḡ), and C the covariance of h over the M pairs,

    E P = ((n−4)V + nσ²/M)/(n−1),   E C = σ² − V,   so   V̂ = ((n−1)P − (n/M)C)/(n − 4 + n/M)

is unbiased for V = Cov D; relfit uses PSD₊(V̂ − C/M) + C/M. PSD₊ takes eigenvalues *relative to C* (with C = LLᵀ it is
L(L⁻¹·L⁻ᵀ)₊Lᵀ), lowers each by as much as it falls short of −λ, λ ≤ 0 the lowest one, and sets it to 0 if that is
negative: how far noise reaches below 0 tells how far it reaches above, and to keep all of it above and none below would
make V too large. (Ordinary eigenvalues would let the large noise that similar models have in common spill into their
small differences.) For large n this is PSD₊(P − (2/M)C) + C/M. With q = 1 it is the linear estimator's cov(h)/M
exactly. Block values are independent: V = cov(block values)/B; fewer than five blocks for each model are refused.

`variance="corrected"` of the complete estimator is PSD₊(V − 2S2) + S2, relative to S2, the second-order part, which the
projection form V counts twice: for MMD of independent samples
S2_ij = 2ζ_rr/(n(n−1)) + 1{{i=j}}[2ζ_xx/(m(m−1)) + 4ζ_xr/(nm)], ζ the mean square of the doubly centred kernel matrix;
for KSD, and for samples of equal size whose rows belong together, C/M from at most 5,000 drawn pairs. A corrected
covariance is not that of the ψ rows, nor is the incomplete estimator's: `best-set` then draws normal variables instead
of resampling rows below 300 rows.

## Unbiased, and the covariance right

Mean estimated over true variance of D₁ − D₂ (the truth is known in closed form, the true variance is the mean square
error); Gaussian kernel of bandwidth √(2d), data N(0, I), two tied models N(±.5e₁, I). "In s.e." is the mean error over
its Monte-Carlo standard error. "KSD to a target" compares samples with a density.

{truth_goals}

{tied}
A model that equals the data (model 1), beside one at .5e₁. There D₁ has no first-order part: the projection form
counts its variance twice, and the positive part makes the corrected and the incomplete ones a little large.

{exact}
KSD's correction comes from drawn pairs. Corrected variance with C from those pairs and from all pairs, on the same
data (D₁ − D₂ of tied models; D₁ of a model that equals the data), relative to the mean:

{noise}
## Power at equal cost

Blocks of 2R + 1 rows hold as many pairs as the cyclic design with R. TPR and FPR at α = .05, Gaussian kernel with the
median bandwidth, every design on the same draws; "not below" allows three standard errors of the paired difference (two
in an earlier run of 40 trials; among thirty such differences one beyond two is likely where all are 0). The linear
estimator has n/2 pairs of n rows and cannot use more; a second row gives it as many pairs as R = 5, which takes {more}
times the rows. (Where rows are free, that is the best use of so many pairs: no two of them share a row.) The RBMs by
samples are hopeless at the paper's n = 1000 with any of the cheap designs; n = 5000 was added after that was seen.

{power_goals}

{power}
Blocks estimate V from few values (35 of 141 rows): where the power is low, that noise by itself brings a few more
rejections, right and wrong ones. The models of KSD rows differ from the data in few directions (means, one weight of
the RBM): the differences of their KSD values have hardly any second-order part, and n/2 pairs say as much as all of
them. "Nothing to gain" is said where even the complete estimator finds less than .1 more than the linear one.

### What more pairs gain

Estimated standard error of the differences between worse and best models, over that of the complete estimator, n = 1000
(100 draws). R = 25 is the default.

{lags}
## Time and power

![Power against time](images/estimators.png)

Two models, the fixed hypothesis "a is no worse than b", α = .05. Samples: a = N(.54e₁, I), b = N(.5e₂, I), data
N(0, I), d = 10. Densities: N(0, diag(5, .5)) turned by .515 and by −.5, data not turned. Seconds are those of the
fastest trial, reading and checking the input included. UME and FSSD choose their locations by their defaults.

{costs}
## Memory

{memory_rows} rows, {memory_columns} columns, {memory_models} models, in a process of its own; `compare` with its
default test. RelMulti copies its shares of the rows, and needs as much as the inputs once more.

{memory_goals}

{memory}
## Many models for the rows

RelPSI with MMD, all models tied, d = 10, α = .05, with more models than n/5 and with fewer. Shrinking ψRᵀψR/(n(n−1)) by
Ledoit and Wolf's weight towards a multiple of the identity, or towards one common correlation, does not bring the FPR
back to α: relfit leaves V as it is, and warns.

{shrinkage}"""
