"""The public contract: names, signatures and fields may be added to, never renamed or taken away."""

import ast
import inspect
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import relfit

NAMES = {
    *("compare", "compare_pair", "estimate", "decide", "from_losses", "plan", "check_score"),
    *("read_evals", "scores", "Scores", "from_elpd", "Monitor", "MonitorResult", "assert_not_worse"),
    *("Comparison", "PairComparison", "JointEstimate"),
    *("Gaussian", "IMQ", "MultiScale", "Polynomial", "MMD", "KSD", "LogLikelihood", "Sample", "Density"),
    *("BestSet", "RelPSI", "RelMulti", "Carve", "Complete", "Linear", "Block", "Incomplete", "Landmarks"),
    *("Compute", "computing"),
    *("RelfitError", "InputError", "BackendUnavailable"),
    "__version__",
}

DATA = {"discrepancy", "kernel", "estimator", "dependence", "groups", "given", "preset", "rng", "progress", "compute"}
# name: (positional arguments, keyword-only arguments); tests/test_settings.py compares their defaults with `Settings`
SIGNATURES = {
    "compare": (("reference", "models"), {"test", "alpha", "correction", "margin", *DATA}),
    "compare_pair": (("reference", "a", "b"), {"names", "test", "alpha", "margin", *DATA}),
    "estimate": (("reference", "models"), DATA),
    "decide": (("joint_estimate",), {"test", "alpha", "correction", "margin", "rng"}),
}

# name: fields with their defaults, in order; ... stands for "required"
VALUES = {
    "Gaussian": {"bandwidth": "median"},
    "IMQ": {"scale": 1.0, "exponent": -0.5},
    "MMD": {"kernel": None},
    "KSD": {"kernel": None},
    "LogLikelihood": {},
    "UME": {"kernel": None, "locations": 10, "choose": "data", "fraction": 0.2},
    "FSSD": {"kernel": None, "locations": 10, "choose": "data", "fraction": 0.2},
    "BestSet": {},
    "RelPSI": {"scale": "published"},
    "RelMulti": {"select_fraction": 0.25},
    "Carve": {},
    "Complete": {"variance": "auto"},
    "Linear": {"shuffle": True},
    "Block": {"blocks": None, "shuffle": True},
    "Incomplete": {"pairs": None, "shuffle": True},
    "Landmarks": {"count": None, "residual_pairs": None},
    "Compute": {
        "backend": "auto",
        "precision": "double",
        "executor": None,
        "checkpoint": None,
        "memory": None,
        "threads": None,
    },
    "Sample": {"x": ...},
    "Density": {"score": None, "log_prob": None, "dim": None},
    "JointEstimate": {"names": ..., "values": ..., "covariance": ..., "sizes": None, "psi": None},
}

COMPARISON = {
    *("names", "best", "best_index", "discrepancy", "standard_error", "covariance", "difference"),
    *("pvalue", "log_pvalue", "adjusted_pvalue", "worse", "status", "truncation", "beaten_by", "confidence_set"),
    *("randomised", "near_degeneracy", "warnings", "alpha", "test", "correction", "kernel", "estimator", "dependence"),
    *("sizes", "seed", "versions", "backend", "impossible", "also"),
}
COMPARISON_METHODS = {
    *("rows", "to_dict", "from_dict", "to_json", "from_json", "to_frame", "confidence_interval", "plot", "report"),
    *("to_latex", "to_markdown", "to_csv", "methods_text"),
    *("plot_pairs", "plot_witness", "plot_power", "plot_bandwidths"),
}
PAIR = {"statistic", "pvalue", "worse", "difference", "standard_error", "names"}
ROW = {
    *("name", "discrepancy", "standard_error", "difference", "pvalue", "log_pvalue", "adjusted_pvalue"),
    *("worse", "best", "verdict", "status"),
}


def test_every_public_name_is_there_and_listed_and_nothing_else():
    assert set(relfit.__all__) >= NAMES
    assert len(set(relfit.__all__)) == len(relfit.__all__)
    for name in relfit.__all__:
        assert hasattr(relfit, name), name
    # `dir` shows the public names and nothing else, also after submodules were imported.
    assert dir(relfit) == sorted(relfit.__all__)
    with pytest.raises(AttributeError, match="module 'relfit' has no attribute 'comparison'"):
        relfit.comparison  # noqa: B018


def test_type_checkers_see_every_name_where_it_is_defined():
    """The imports for type checkers are the table from which names are loaded when they are first used."""
    tree = ast.parse(Path(relfit.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = {node.module: tuple(sorted(alias.name for alias in node.names)) for node in block.body}
    assert imports == {module: tuple(sorted(names)) for module, names in relfit._HOMES.items()}
    assert sorted([*relfit._HOME, "__version__"]) == sorted(relfit.__all__)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_have_no_options_by_position(name):
    positional, options = SIGNATURES[name]
    parameters = inspect.signature(getattr(relfit, name)).parameters
    kinds = {key: parameter.kind for key, parameter in parameters.items()}
    data = [key for key, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert tuple(data) == positional
    assert all(parameters[key].default is inspect.Parameter.empty for key in data)
    assert all(kinds[key] is inspect.Parameter.KEYWORD_ONLY for key in parameters if key not in data)
    assert set(parameters) >= options
    added = set(parameters) - set(positional)
    assert all(parameters[key].default is not inspect.Parameter.empty for key in added)
    count = len(SIGNATURES[name][0])
    with pytest.raises(TypeError, match="positional"):
        getattr(relfit, name)(*[None] * (count + 1))


@pytest.mark.parametrize("name", VALUES)
def test_values_are_frozen_and_take_their_fields_in_order(name):
    kind = getattr(relfit, name)
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    wanted = VALUES[name]
    parameters = inspect.signature(kind).parameters
    assert tuple(parameters)[: len(wanted)] == tuple(wanted)
    for key, default in wanted.items():
        expected = inspect.Parameter.empty if default is ... else default
        assert parameters[key].default == expected, key


def test_results_are_frozen_and_have_their_fields_and_methods():
    for kind, wanted in ((relfit.Comparison, COMPARISON), (relfit.PairComparison, PAIR)):
        assert kind.__dataclass_params__.frozen
        assert all(hasattr(kind, name) or name in kind.__dataclass_fields__ for name in wanted)
    assert all(callable(getattr(relfit.Comparison, name)) for name in COMPARISON_METHODS)
    level = inspect.signature(relfit.Comparison.confidence_interval).parameters["level"]
    assert level.default == 0.95
    report = inspect.signature(relfit.Comparison.report).parameters
    assert list(report)[:3] == ["self", "path", "data"]
    assert report["data"].default is None


def test_the_one_table_keeps_its_columns_and_errors_their_kinds(rng):
    reference = rng.normal(size=(40, 2))
    result = relfit.compare(reference, [reference + 1, reference + 2], rng=0)
    assert all(set(row) >= ROW for row in result.rows())
    assert [row["best"] for row in result.rows()] == [True, False]
    assert issubclass(relfit.InputError, relfit.RelfitError)
    assert issubclass(relfit.InputError, ValueError)
    assert issubclass(relfit.BackendUnavailable, relfit.RelfitError)
    assert issubclass(relfit.BackendUnavailable, ImportError)
    assert str(relfit.InputError("a\nb")) == "a b"
