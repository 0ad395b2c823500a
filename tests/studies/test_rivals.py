"""The study of landmarks beside other cheap ways: its estimates against sums over all pairs, and its page."""

from studies import rivals


def first_rows(x, seed):
    """Bins of four rows, of which the first two are kept."""
    return x[: len(x) // 4 * 4].reshape(-1, 4, x.shape[1])[:, :2]


def test_the_page_is_made_from_a_few_trials(tmp_path, monkeypatch):
    monkeypatch.setattr(rivals, "compressed", first_rows)
    results = [(s, [rivals.trial({**s, "n": s["n"] // 100}, k) for k in range(2)]) for s in rivals.cells()[:2]]
    results += [(s, [rivals.trial({**s, "n": 300}, k) for k in range(2)]) for s in rivals.cells()[2:4]]
    rivals.write(tmp_path, {"rivals": results})
    page = (tmp_path / "calibration" / "rivals.md").read_text()
    assert "$" not in page
    assert page.count("| compressed, over bins ") == 3
    assert page.count("| complete ") == 2
