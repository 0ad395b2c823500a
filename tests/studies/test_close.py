"""The study of models close to the data."""

from itertools import combinations

from studies import close


def test_nearly_all_pairs_of_two_factors_occur():
    settings = close.ties()
    factors = {name: {setting[name] for setting in settings} for name in settings[0]}
    pairs = [(a, b, x, y) for a, b in combinations(factors, 2) for x in factors[a] for y in factors[b]]
    seen = {(a, b, s[a], s[b]) for s in settings for a, b in combinations(factors, 2)}
    assert sum(pair in seen for pair in pairs) >= 0.9 * len(pairs)


def test_trials_and_rows():
    (setting,) = (s for s in close.worse_models() if s["worse"] == 1.0 and s["directions"] == "same")
    results = [close.trial({**setting, "n": 60, "models": 3}, seed) for seed in range(2)]
    assert set(results[0]) == set(close.VARIANCES)
    (row,) = close.found_rows({**setting, "models": 3}, results)
    assert {f"{variance}: {what}" for variance in close.VARIANCES for what in ("wrong", "found")} < set(row)
    tie = {**close.ties()[0], "n": 60}
    (row,) = close.tie_rows(tie, [close.trial(tie, 0), close.trial(tie, 1)])
    assert row["level"] in ("kept", "EXCEEDED")
