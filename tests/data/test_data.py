"""load: names, dimensions, kinds, copies and rows in common, checked together."""

import numpy as np
import pytest
import scipy.sparse
from refusals import refused

import relfit
from relfit.data.load import check_pair_names, load
from relfit.data.models import Density, Sample, scores_of

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def reference(rng):
    return rng.normal(size=(60, 3))


@pytest.fixture
def sample(rng):
    return rng.normal(size=(50, 3))


def normal(mean=0.0, **options):
    return Density(score=lambda x: mean - x, **options)


def notes(data, *parts):
    return [note for note in data.warnings if all(part in note for part in parts)]


# --- names


def test_a_mapping_or_a_sequence_is_needed_and_a_sequence_is_numbered(reference, sample, tmp_path):
    assert load(reference, [sample, Sample(sample + 1)]).names == ("m1", "m2")
    assert load(reference, (sample, (sample + 1).tolist())).names == ("m1", "m2")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "out.npy", sample)
    np.save(tmp_path / "m1.npy", sample)
    two = [tmp_path / "a" / "out.npy", tmp_path / "b" / "out.npy"]
    refused(lambda: load(reference, two), "models: two are called 'out'; give a mapping")
    refused(lambda: load(reference, [sample, tmp_path / "m1.npy"]), "two are called 'm1'")


def test_names_that_are_no_names_are_refused(reference, sample):
    for name in ("", "  ", "\n", True, None, ("a",), b"a"):
        models = {"a": sample, name: sample}
        refused(lambda m=models: load(reference, m), "models: expected names that are non-empty text")
    for models in ("a.npy", b"a.npy", np.ones((2, 5, 3)), 5, None, {1, 2}, iter([1])):
        refused(lambda m=models: load(reference, m), "models: expected a mapping", type(models).__name__)
    for names in ("ab", ("a",), ("a", "a"), ("a", ""), ("a", " "), ("1", 1), None, 5, ("a", "b", "c")):
        refused(lambda n=names: check_pair_names(n), "names: expected two different names, got ")
    assert check_pair_names(["a", 1]) == ("a", "1")


def test_numbers_are_names_such_as_those_of_checkpoints(reference, sample):
    """D31: The keys of checkpoints are whole numbers, and were refused."""
    result = relfit.compare(reference, {1000: sample, np.int64(2000): sample + 1.0, 0.5: sample + 2.0}, rng=0)
    assert result.names == ("1000", "2000", "0.5")
    assert relfit.compare_pair(reference, sample, sample + 1.0, names=(1000, 2000)).names == ("1000", "2000")
    refused(lambda: load(reference, {1000: sample, "1000": sample}), "models: two are called '1000'")


def test_the_reference_comes_first(reference, sample):
    """D41: Arguments the wrong way round were told about the type of the models only."""
    models = {"a": sample, "b": sample}
    refused(lambda: relfit.compare(models, reference), "the reference comes first, as in relfit.compare(reference")
    refused(
        lambda: relfit.compare(models, models), "reference: expected data or a density, got a mapping; the reference"
    )


def test_batches_of_single_rows_are_blamed_where_they_are(reference, sample):
    """D30: A generator of rows is a generator of batches of one column: the reference is wrong then, not the models."""
    said = "expected batches of rows with 3 columns, got batches whose numbers are rows of one column"
    refused(lambda: load(iter(reference), {"a": sample, "b": sample}), f"reference: {said}", "shape (n, 3)")
    refused(lambda: load(reference, {"a": iter(sample), "b": sample}), f"model 'a': {said}")
    load(iter(reference), {"a": iter(sample), "b": sample[:, 0]})


# --- kinds and dimensions


def test_dimensions_must_agree_and_the_bad_argument_is_named(reference, sample):
    refused(lambda: load(reference, {"a": sample, "b": sample[:, :2]}), "model 'b': expected 3 columns like", "got 2")
    refused(lambda: load(reference, {"a": normal(dim=3), "b": normal(dim=2)}), "model 'b': expected dimension 3", "2")
    refused(lambda: load(reference[:, 0], [sample, sample]), "model 'm1': expected 1 columns")
    bad = sample.copy()
    bad[9] = np.nan
    refused(lambda: load(bad, [sample, sample]), "reference: ", "1 of 50 rows", "row 9")
    refused(lambda: load(reference, {"a": sample, "b\nc": bad}), r"model 'b\nc': ", "1 of 50 rows")
    refused(lambda: load(reference, {"a": sample, "b": "gone.npy"}), "gone.npy: no such file")
    data = load(normal(dim=3), {"a": sample, "b": sample + 1, "c": sample.copy()})
    assert data.copies == {"c": "a"}
    refused(lambda: load(normal(), {"a": sample, "b": normal()}), "model 'b': expected a sample, got a Density")
    refused(lambda: load(normal(dim=2), [sample, sample]), "model 'm1': expected 2 columns")
    refused(lambda: load(normal(), [sample, sample[:, :2]]), "model 'm2': expected 3 columns")


def test_bare_functions_and_sparse_matrices_are_told_what_to_be(reference, sample):
    """D30: Text features are sparse, and were taken for batches of single numbers."""
    for value in (None, len, lambda x: -x):
        models = {"a": sample, "b": value}
        refused(lambda m=models: load(reference, m), "model 'b': expected an array", "Density(score=...)")
    for form in ("csr_matrix", "coo_matrix", "csr_array", "dok_array", "lil_array"):
        sparse = getattr(scipy.sparse, form)(np.where(reference > 0.5, reference, 0.0))
        said = f"expected an array, got a sparse {form}; convert it by .toarray()"
        refused(lambda x=sparse: load(x, [sample, sample]), f"reference: {said}")
        refused(lambda x=sparse: load(reference, {"a": x, "b": sample}), f"model 'a': {said}")


# --- densities


@pytest.mark.parametrize(
    ("score", "parts"),
    [
        (lambda x: -x[:, 0], ("expected shape (60, 3), got (60,)",)),
        (lambda x: -x.T, ("expected shape (60, 3), got (3, 60)",)),
        (lambda x: -x[:-1], ("expected shape (60, 3), got (59, 3)",)),
        (lambda x: 0.0, ("expected shape (60, 3), got ()",)),
        (lambda x: -x[0], ("got (3,); is it a function of one row? Then give  lambda x: np.array([f(row)",)),
        (lambda x: None, ("expected real numbers", "NoneType")),
        (lambda x: x + 0j, ("expected real numbers", "complex")),
        (lambda x: [["a"] * 3] * 60, ("expected real numbers", "list")),
        (lambda x: [[1.0], [2.0, 3.0]], ("expected an array, got a list",)),
        (lambda x: np.where(np.arange(60)[:, None] == 7, np.nan, x), ("1 of 60 rows", "row 7")),
        (lambda x: np.where(x > 0.5, np.inf, x), ("NaN or infinity", "of 60 rows")),
        (lambda x: np.full(x.shape, 1e200), ("60 of 60 rows", "row 0")),
    ],
)
def test_a_score_that_is_wrong_names_the_model_and_the_rows(reference, score, parts):
    refused(lambda: load(reference, {"a": normal(), "b": Density(score=score)}), "model 'b': score: ", *parts)


def test_a_density_needs_a_function_with_values_in_its_support(rng):
    refused(lambda: Density(), "Density: expected score= or log_prob=, got neither")
    refused(lambda: Density(score=3), "Density: expected score to be callable, got int")
    refused(lambda: Density(log_prob="x"), "Density: expected log_prob to be callable, got str")
    wrong = Density(log_prob=lambda x: x)
    refused(lambda: scores_of("b", wrong, np.ones((4, 2))), "model 'b': log_prob: expected shape (4,), got (4, 2)")
    half = Density(log_prob=lambda x: np.where(x[:, 0] > 0.0, -x[:, 0], -np.inf))
    x = rng.normal(size=(40, 1))
    refused(lambda: scores_of("b", half, x), "model 'b': score: expected finite values", "of 40 rows")


def test_a_log_density_of_one_row_is_told_how_to_take_all(reference):
    def f(row):
        return -0.5 * np.sum(row**2)

    said = "model 'b': log_prob: expected shape (60,), got (); is it a function of one row? Then give  lambda x: "
    line = refused(lambda: load(reference, {"a": normal(), "b": Density(log_prob=f)}), said)
    advised = eval(line.removeprefix(said).join(["lambda x: ", ""]), {"np": np, "f": f})
    fixed = load(reference, {"a": normal(), "b": Density(log_prob=advised)})
    np.testing.assert_allclose(fixed.densities["b"].scores(reference), -reference, atol=1e-6)


def test_a_score_that_works_in_place_does_not_touch_the_data(reference):
    def in_place(x):
        x -= 1.0
        x *= -1.0
        return x

    before = reference.copy()
    data = load(reference, {"a": Density(score=in_place), "b": normal(1.0), "c": normal(0.0)})
    np.testing.assert_array_equal(reference, before)
    np.testing.assert_array_equal(data.reference, before)
    assert data.copies == {"b": "a"}


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6, 1e8])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_finite_differences_follow_the_scale_of_the_data_and_not_its_offset(rng, offset, scale):
    """The score of ½N(−1.5, 1) + ½N(1.5, 1) is 1.5 tanh(1.5x) − x; central differences are good to ~1e-9 of it.

    An offset of |x| costs the digits that x itself has lost: 2⁻⁵²|offset|/(scale · step), step 6e-6·0.67.
    """

    def log_prob(x):
        z = (x[:, 0] - offset) / scale
        return np.logaddexp(-0.5 * (z - 1.5) ** 2, -0.5 * (z + 1.5) ** 2)

    x = offset + scale * (rng.normal(size=(200, 1)) + rng.choice([-1.5, 1.5], (200, 1)))
    z = (x - offset) / scale
    got = scale * Density(log_prob=log_prob).scores(x)
    lost = 2.0**-52 * abs(offset) / scale
    if lost < 1e-7:
        np.testing.assert_allclose(got, 1.5 * np.tanh(1.5 * z) - z, atol=1e-8)
    else:
        assert np.isfinite(got).all()


# --- copies


def test_copies_are_equal_samples_or_scores_that_agree_at_every_row(reference, sample, rng):
    models = {"z": sample, "a": sample.copy(), "m": sample + 1, "b": sample.astype(">f8"), "c": sample.tolist()}
    data = load(reference, models)
    assert data.copies == {"a": "z", "b": "z", "c": "z"}
    assert tuple(data.models) == ("z", "m")
    assert data.names == tuple(models)
    rows = rng.normal(size=(1000, 1))
    rows[1] = 50.0
    other = Density(score=lambda x: np.where(x > 40.0, 1.0, -x))
    assert load(rows, {"a": normal(), "b": other}).copies == {}


@pytest.mark.parametrize("unit", [1e-30, 1e-7, 1.0, 1e7, 1e30])
def test_scores_equal_to_twelve_digits_are_copies_whatever_the_unit(reference, unit):
    """Scores have the unit 1/length: with lengths of 1e13 an absolute tolerance would take all models for one."""

    def score(mean, error=0.0):
        return Density(score=lambda x: unit * ((mean - x) * (1.0 + error)))

    models = {"a": score(0.0), "b": score(0.0, 1e-13), "c": score(0.0, 1e-9), "d": score(1e-6), "e": score(1.0)}
    assert load(reference, models).copies == {"b": "a"}


# --- notes


def test_rows_shared_with_the_reference_are_counted_unless_they_meet_by_chance(reference, sample, rng):
    seen = sample.copy()
    seen[[3, 8, 20]] = reference[[0, 0, 59]]
    data = load(reference, {"clean": sample, "seen": seen})
    assert len(data.warnings) == 1
    assert notes(data, "3 of 50 rows of 'seen' also occur in the reference")
    draws = [rng.integers(3, size=(60, 2)) for _ in range(3)]
    assert load(draws[0], draws[1:]).warnings == ()
    assert notes(load(draws[0], {"a": draws[0].copy(), "b": draws[1]}), "60 of 60 rows of 'a'")
    assert load(draws[0], [draws[1], draws[1][::-1]]).warnings == ()
    # Of 60 draws of 100 numbers about 45 are distinct.
    draws = [rng.integers(100, size=(60, 1)) for _ in range(3)]
    assert load(draws[0], draws[1:]).warnings == ()
