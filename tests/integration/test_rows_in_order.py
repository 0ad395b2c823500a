"""D4: rows in the order of time on every path: equal models were called worse in 50 of 60, without a note."""

import json

import numpy as np
import pytest
from scipy.signal import lfilter

import relfit
from relfit.cli import main
from relfit.report.gate import ask, judge_pair

# What is independent of the order of the rows keeps its own notes.
WORDS = ("depend on each other", "are sorted or come in blocks", "changes along the table")


def in_time(rng, n, columns, phi=0.95):
    """Stationary AR(1) series of variance 1."""
    noise = np.sqrt(1.0 - phi**2) * rng.normal(size=(n + 300, columns))
    return lfilter([1.0], [1.0, -phi], noise, axis=0)[300:]


def about_order(result):
    return [note for note in result.warnings if any(words in note for words in WORDS)]


def lower(losses, **options):
    return relfit.compare_losses(losses, higher_is_better=False, rng=0, **options)


def test_losses_in_the_order_of_time():
    """All of 30; a gate has no answer, and the option that the note names ends the doubt."""
    rng, worse = np.random.default_rng(0), 0
    for _ in range(30):
        losses = in_time(rng, 300, 3)
        result = lower(losses)
        worse += bool(result.worse.any())
        (note,) = about_order(result)
        assert result.doubts == (note,)
        assert 'pass dependence="series" to compare_losses' in note
        assert ask(result, "m1").verdict == "error"
        assert lower(losses, dependence="series").doubts == ()
        assert about_order(lower(losses, groups=np.arange(300) // 15)) == []
    assert worse > 20
    kept = relfit.Comparison.from_json(result.to_json())
    assert kept.doubts == result.doubts
    decided = relfit.decide(relfit.from_losses(losses, higher_is_better=False), rng=0)
    assert decided.doubts == result.doubts


def test_a_table_with_keys_is_looked_at_in_the_order_of_its_file():
    """Items are matched by key and held in the order of the keys, which are no times."""
    rng = np.random.default_rng(4)
    losses, keys = in_time(rng, 300, 2), rng.permutation(300)
    rows = {"id": np.tile(keys, 2), "model": ["a"] * 300 + ["b"] * 300, "loss": losses.T.ravel()}
    assert lower(rows, item="id", model="model", score="loss").doubts
    wide = {"id": keys, "a": losses[:, 0], "b": losses[:, 1]}
    assert lower(wide, item="id").doubts
    shuffled = rng.permutation(300)
    assert lower({name: column[shuffled] for name, column in wide.items()}, item="id").doubts == ()


def shifted(size):
    """A normal density with this mean."""
    return relfit.Density(
        log_prob=lambda x: -0.5 * np.square(x - size).sum(axis=-1), score=lambda x: size - x, dim=2, normalised=True
    )


# What estimates from pairs of rows, or from some rows, in random order.
OUT_OF_ORDER = (
    {"estimator": "linear"},
    {"estimator": "block"},
    {"estimator": "incomplete"},
    {"kernel": "select"},
    {"test": "relmulti"},
)


def test_samples_and_densities_in_the_order_of_time():
    """Samples, densities by KSD and by loglik, a target, and a pair fixed beforehand; all 5 times."""
    rng = np.random.default_rng(5)
    densities = {"a": shifted(0.2), "b": shifted(-0.2)}
    for _ in range(5):
        data, a, b = (in_time(rng, 300, 2) for _ in range(3))
        samples = relfit.compare(data, {"a": a, "b": b}, rng=0)
        pair = relfit.compare_pair(data, a, b, rng=0)
        results = [
            samples,
            pair,
            relfit.compare(data, densities, rng=0),
            relfit.compare(data, densities, discrepancy="loglik", rng=0),
            relfit.compare(shifted(0.0), {"a": a, "b": b}, rng=0),
            *(relfit.compare(data, {"a": a, "b": b}, rng=0, **options) for options in OUT_OF_ORDER),
        ]
        for result in results:
            (note,) = about_order(result)
            assert note in result.doubts
            assert "groups=" in note
        assert 'dependence="chain"' in about_order(results[4])[0]
        assert ask(samples, "a").verdict == judge_pair(pair).verdict == "error"
        declared = [
            relfit.compare(shifted(0.0), {"a": a, "b": b}, dependence="chain", rng=0),
            relfit.compare(data, densities, groups=np.arange(300) // 10, rng=0),
        ]
        assert [about_order(result) for result in declared] == [[], []]


def test_a_design_of_few_pairs_suffers_less_from_the_order():
    """Over 200 draws the differences vary 5.1 times as much as their standard errors, and 2.4 times for "linear"."""
    rng, factors = np.random.default_rng(10), {"complete": [], "linear": []}
    for _ in range(10):
        data, a, b = (in_time(rng, 400, 2) for _ in range(3))
        for estimator, found in factors.items():
            result = relfit.compare(
                data, {"a": a, "b": b + 0.3}, kernel=relfit.Gaussian(1.5), estimator=estimator, rng=0
            )
            (note,) = about_order(result)
            found.append(float(note.partition("factor of about ")[2].split()[0]))
    assert 4.0 < np.mean(factors["complete"]) < 6.5
    assert 1.9 < np.mean(factors["linear"]) < 3.2


def write_csv(path, rows, header):
    np.savetxt(path, rows, delimiter=",", header=header, comments="")


@pytest.mark.parametrize("gate", [[], ["--gate", "b"]])
def test_the_command_line_names_its_options(tmp_path, capsys, monkeypatch, gate):
    """Exit status 2 with a gate, and 0 with the option that is named."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(8)
    write_csv("losses.csv", in_time(rng, 300, 2), "a,b")
    data, a, b = (in_time(rng, 300, 2) for _ in range(3))
    for name, rows in (("data", data), ("a", a), ("b", b)):
        write_csv(f"{name}.csv", rows, "x,y")
    status = 2 if gate else 0
    assert main(["losses", "losses.csv", "--lower-is-better", *gate]) == status
    out, err = capsys.readouterr()
    assert "pass --dependence series to relfit losses for items in the order of time, or --group for" in out
    assert ("gate: successive items depend on each other" in err) == bool(gate)
    main(["losses", "losses.csv", "--lower-is-better", "--dependence", "series", *gate])
    assert "depend on each other" not in capsys.readouterr().err
    assert main(["compare", "data.csv", "a.csv", "b.csv", *gate]) == status
    out, err = capsys.readouterr()
    assert "pass --groups with one label for the rows of one prompt" in out
    assert ("depend on each other" in err) == bool(gate)
    assert main(["pair", "data.csv", "a.csv", "b.csv", *gate[:1]]) == status
    assert "depend on each other" in capsys.readouterr().out


def test_logs_of_an_evaluation(tmp_path, capsys):
    """`relfit evals` has no option for it, and names the command that has."""
    rng = np.random.default_rng(9)
    scores = (in_time(rng, 600, 2, 0.9) > 0.0).astype(int)
    for model, column in zip("ab", scores.T, strict=True):
        path = tmp_path / model / "samples_t_2026-01-02T03-04-05.jsonl"
        path.parent.mkdir()
        lines = (
            {"doc_id": k, "filter": "none", "metrics": ["acc"], "acc": int(score)} for k, score in enumerate(column)
        )
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["evals", str(tmp_path), "--higher-is-better", "--gate", "a"]) == 2
    out, err = capsys.readouterr()
    assert "pass --dependence series to relfit losses" in out
    assert "--group for items of one prompt or document" in err
