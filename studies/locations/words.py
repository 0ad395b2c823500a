"""The text of docs/locations.md."""

TEXT = """# Comparing at locations: UME, Nyström and FSSD

MMD and KSD look at all pairs of rows. Three discrepancies look at J locations v₁..v_J instead: time and memory are
linear in the rows, and samples may have different sizes.

```py
relfit.compare(data, samples, discrepancy="ume")  # 10 locations, drawn from the data
relfit.compare(data, samples, discrepancy="nystroem")  # 2√n locations: nearly the MMD itself
relfit.compare(data, densities, discrepancy=relfit.FSSD(locations=20))
relfit.compare(data, samples, discrepancy=relfit.UME(relfit.Gaussian(1.0), choose="optimise", share=0.2))
relfit.compare(data, samples, discrepancy=relfit.UME(locations=points))  # an array (J, d)
```

On the command line: `--discrepancy ume --locations 20`.

- **UME²** (samples) is `mean_j (E k(x,v_j) − E k(r,v_j))²`, the difference of the mean embeddings of model and data at
  the locations. With τ(x) = (k(x,v_j))_j/√J it is MMD² under the kernel τ(x)·τ(y), so D, ψ, V, the dependence of the
  samples and every test are those of MMD. `dependence="paired"` is the published form, τ_a = τ(x_a) − τ(r_a).
- **Nyström** (samples) takes τ(x) = K^(−½)(k(x,v_j))_j with K = k(v,v'): MMD² under the part of the kernel that the
  locations span. With J well above √n it is the MMD itself, for all the tests can tell
  ([approximations](approximations.md) compares it with the incomplete estimator).
- **FSSD²** (densities) is `mean_j ‖E[s(r) k(r,v_j) + ∇_r k(r,v_j)]‖²/d` over the data, from τ_a = (s(r_a) k(r_a,v_j) +
  ∇ k(r_a,v_j))_j/√(dJ): `D = mean_{{a≠b}} τ_a·τ_b`, `g_a = τ_a·Σ_{{b≠a}} τ_b/(n−1)`, ψ and V as for KSD.

The result has the locations (`result.locations`), so that they can be looked at, and used again on other data.

## They change the question

**At a few locations the models are compared there and nowhere else.** Which model is best can depend on the locations.
Two models that are equally far from the data in MMD are, in general, not equally far at ten locations, and with enough
rows the test will say so: the last column below. Optimised locations go and look for such places. That is what UME and
FSSD are for, to show *where* a model fits worse; it is not a cheaper MMD. Nyström with its default number of locations
is.

## Where the locations come from

- **Given**: an array these data had no part in. No row is lost.
- **Drawn** (`choose="data"`): half of them rows of the reference and half rows of the models (FSSD: all of the
  reference), seeded. ⌈J/2⌉ rows leave each sample (FSSD: J rows leave the reference), whichever were picked, so that
  nothing depends on the order of the models.
- **Optimised** (`choose="optimise"`): a seeded share of the rows, a fifth unless said otherwise and at most 2,000 of
  each sample, is held out and does not come back. Of 100 of these rows (twice J, if that is more) the locations are
  taken one after another, always the one that makes the *separation* of the models on the held-out rows largest,
  √(mean_{{i<j}} (D_i − D_j)²/s_ij²): the square does not know which model is better, so the choice is symmetric in the
  models. s² is the estimated variance plus its second-order part: without that, places where no model differs from the
  data looked good by chance.

The result says how many rows were used; `sizes` are those of the rows left.

## Unbiased, and the covariance right

N(±.5e₁, I) against N(0, I), Gaussian kernel of bandwidth √(1.4d), ten locations that mirror each other, at which the
pair is tied exactly; and two models equal to the data. "D₁, truth = 1" is the mean of D₁ over its exact value, then
come the mean estimated variance of D₁ − D₂ over its true one and the level of a two-sided z test of D₁ = D₂.

{truth}
{truth_words}

## The level

FPR is the rate at which a model that is truly best *at the locations used* is declared worse; for the true values there
is a closed form in every trial. For FSSD mean shifts of one length are tied at all locations. Nyström is judged as what
it stands for, the MMD. α = 0.05, median bandwidth, ten locations (Nyström: 2√n). `pair` is N(±.5e₁, I), d = 10;
`tied-l10` ten models at the same distance; `meanshift-l10` nine tied in MMD and one worse. The level counts as kept
when FPR ≤ 0.05 + 3 standard errors. Trials with fewer than 300 rows left, here and under "Power", are from before the
best set took Student's law besides the bootstrap ([decisions](decisions.md)): its p-values are the same or
larger since, by little where both were simulated ([calibration](calibration/levels.md)).

{levels}
{level_words}

With many rows, models tied in MMD are told apart at ten locations, and more so at optimised ones:

{many_rows}
## Power

The same draws for all forms; TPR is the share of the models that are worse in MMD or KSD and declared worse, "tied ones
declared" the share of the best in MMD or KSD that are declared worse (at few locations not an error: see above). CPU ms
is the fastest trial's time for one estimate on one core.

{power}
Where optimising moves the best-set TPR by more than three standard errors: {optimised}. It costs a fifth of the rows,
and needs enough of them to see the differences.

## Memory

{memory_rows} rows, {memory_columns} columns, {memory_models} models, in a process of its own; seconds on a machine that
had other work. Rows and scores are read in parts of 2 MB; a model's scores are evaluated twice where keeping all of
them would take more than 64 MB.

{memory}
{memory_words}

## Settings that were seen first

Before the tables above were made, forms of the optimisation were compared on 10 draws each of blobs, the RBM and mean
shifts: the best of 20 or 200 random sets, the J best single locations, and the greedy choice with and without the
second-order part of the variance; the greedy choice with it was kept. Locations drawn from the reference only were
compared with the half-and-half rule on 100 draws; neither was clearly better. Nothing was changed after that.

Tables written by `studies/locations`, ± one Monte-Carlo standard error.
"""
