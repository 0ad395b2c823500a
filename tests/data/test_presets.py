"""KID and CMMD: against independent implementations and the published formulas."""

import json

import numpy as np
import pytest
from commands import refused_line
from refusals import refused

import relfit
from relfit.cli import main
from relfit.data.presets import PRESETS


@pytest.fixture
def features():
    """Two groups of 60 rows of 24 skewed positive numbers, like pooled activations."""
    rng = np.random.default_rng(5)
    return rng.gamma(1.0, 0.4, (60, 24)), rng.gamma(1.2, 0.4, (60, 24))


def _kid_by_loops(x, y):
    """The unbiased MMD² with k = (x·y/d + 1)³, term by term from its definition."""
    d = x.shape[1]

    def k(a, b):
        return (float(a @ b) / d + 1.0) ** 3

    n, m = len(x), len(y)
    xx = sum(k(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    yy = sum(k(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return xx + yy - 2 * sum(k(a, b) for a in x for b in y) / (n * m)


def _estimated(preset, x, y):
    return float(relfit.estimate(x, {"model": y}, preset=preset, rng=0).values[0])


def test_kid_is_its_definition_and_as_published(features):
    x, y = features
    assert _estimated("kid", x, y) == pytest.approx(_kid_by_loops(x, y), rel=1e-10)
    assert _estimated("kid", x, y[:40]) == pytest.approx(_kid_by_loops(x, y[:40]), rel=1e-10)
    # KID is unbiased as published; its standard error is nearly the jackknife's (a row of either side left out).
    joint = relfit.published("kid", x, {"model": y})
    assert joint.values[0] == pytest.approx(_kid_by_loops(x, y), rel=1e-10)
    sides = [[_estimated("kid", np.delete(x, a, 0), y) for a in range(60)]]
    sides.append([_estimated("kid", x, np.delete(y, a, 0)) for a in range(60)])
    jackknife = sum(59 / 60 * np.square(np.array(side) - np.mean(side)).sum() for side in sides)
    assert joint.standard_error[0] == pytest.approx(np.sqrt(jackknife), rel=0.03)
    refused(lambda: relfit.published("fid", x, [y]), "preset", "FID is not offered")


def _published_cmmd(x, y):
    """1000 × (mean k(x,x') + mean k(y,y') − 2 mean k(x,y)), all pairs with their diagonals, k = exp(−γr²).

    γ = 1/(2·10²) on rows of unit length, where r² = 2 − 2 cos: from the cosines alone.
    """

    def k(a, b):
        cosines = (a @ b.T) / np.outer(np.sqrt((a**2).sum(1)), np.sqrt((b**2).sum(1)))
        return np.exp(-(2.0 - 2.0 * cosines) / 200.0)

    return 1000.0 * (k(x, x).mean() + k(y, y).mean() - 2.0 * k(x, y).mean())


def test_cmmd_as_published_on_request(features):
    """Unequal sizes and several models too; standard errors are those of the unbiased form, times 1000."""
    x, y = features
    models = {"all": y, "some": y[:40], "copy": y}
    joint = relfit.published("cmmd", x, models)
    assert joint.names == ("all", "some", "copy")
    np.testing.assert_allclose(joint.values, [_published_cmmd(x, model) for model in models.values()], rtol=1e-9)
    unbiased = relfit.estimate(x, models, preset="cmmd", rng=0)
    np.testing.assert_allclose(joint.standard_error, 1000.0 * unbiased.standard_error, rtol=1e-12)
    assert (joint.values > 1000.0 * unbiased.values).all()
    np.testing.assert_array_equal(relfit.published("cmmd", x, [y]).values, joint.values[:1])


@pytest.mark.parametrize(
    ("preset", "model", "words"),
    [
        ("is", np.eye(3, 2), ["preset", "kid, cmmd", "'is'"]),
        ("fid", np.eye(3, 2), ["preset", "FID is not offered", 'preset="kid"']),
        ("cmmd", [[1.0, 0.0], [0.0, 0.0]], ["model 'a'", "row 1"]),
        ("cmmd", np.zeros((3, 2)), ["model 'a'", "3 of 3 rows"]),
        ("kid", np.full((3, 2), np.nan), ["model 'a'", "finite"]),
        ("kid", relfit.Density(score=lambda x: -x, dim=2), ["model 'a'", "got a density that cannot be sampled"]),
    ],
)
def test_refusals(preset, model, words):
    refused(lambda: relfit.published(preset, np.arange(6.0).reshape(3, 2), {"a": model}), *words)


@pytest.fixture
def files(tmp_path, monkeypatch, features):
    rng = np.random.default_rng(6)
    monkeypatch.chdir(tmp_path)
    for name, shape in {"real": 1.0, "good": 1.0, "bad": 1.6}.items():
        np.save(f"{name}.npy", rng.gamma(shape, 0.4, (60, 24)).astype(np.float32))
    return ["real.npy", "good.npy", "bad.npy"]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("command", ["compare", "pair"])
def test_command_line(files, capsys, preset, command):
    assert main([command, *files, "--preset", preset, "--json", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    x, y, z = (np.load(file).astype(np.float64) for file in files)
    expected = [_estimated(preset, x, model) for model in (y, z)]
    assert printed["discrepancy"] == pytest.approx(expected, rel=1e-9)
    assert any(note.startswith(f"preset {preset}: ") for note in printed["warnings"])


def test_a_preset_leaves_no_choice_of_kernel(files, capsys):
    for option in (["--kernel", "gaussian"], ["--bandwidth", "2"]):
        line = refused_line(capsys, "compare", *files, "--preset", "kid", *option)
        assert f"{option[0]}: --preset kid has its own kernel" in line
