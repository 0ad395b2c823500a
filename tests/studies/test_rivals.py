"""The study of landmarks beside other cheap ways: its estimates against sums over all pairs, and its page."""

import numpy as np

from relfit.paper.problems import draw
from studies import rivals


def samples(n, seed=0):
    reference, models = draw(rivals.problem_of({"n": n, "tied": False}), n, seed)
    return reference, *models.values()


def first_rows(x, seed):
    """Bins of four rows, of which the first two are kept."""
    return x[: len(x) // 4 * 4].reshape(-1, 4, x.shape[1])[:, :2]


def test_fourier_features_are_the_mean_over_pairs_of_cosines():
    rows, rng = samples(40), np.random.default_rng(3)
    by_wave, parts = rivals.fourier(*rows, rng)
    waves = np.random.default_rng(3).standard_normal((10, rivals.WAVES)) / rivals.BANDWIDTH

    def mean_cosine(x, y, same):
        cosines = np.cos((x[:, None] - y[None]) @ waves)
        return cosines[~np.eye(len(x), dtype=bool)].mean(axis=0) if same else cosines.mean(axis=(0, 1))

    reference, *models = rows
    for found, own, x in zip(by_wave, parts[1:], models, strict=True):
        pairs = [(x, x, True), (reference, reference, True), (x, reference, False)]
        within, there, across = (mean_cosine(*pair) for pair in pairs)
        np.testing.assert_allclose(found, within + there - 2.0 * across, atol=1e-13)
        witness = np.cos((x[:, None] - x[None]) @ waves).mean(axis=(1, 2))
        witness -= np.cos((x[:, None] - reference[None]) @ waves).mean(axis=(1, 2))
        np.testing.assert_allclose(own, 2.0 * witness, atol=1e-13)


def test_the_page_is_made_from_a_few_trials(tmp_path, monkeypatch):
    monkeypatch.setattr(rivals, "compressed", first_rows)
    results = [(s, [rivals.trial({**s, "n": s["n"] // 100}, k) for k in range(2)]) for s in rivals.cells()[:2]]
    results += [(s, [rivals.trial({**s, "n": 300}, k) for k in range(2)]) for s in rivals.cells()[2:4]]
    rivals.write(tmp_path, {"rivals": results})
    page = (tmp_path / "calibration" / "rivals.md").read_text()
    assert "$" not in page
    assert page.count("| compressed, over bins ") == 3
    assert page.count("| complete ") == 2
