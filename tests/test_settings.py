"""Settings: one record of every option, read by the functions, their signatures and the command line."""

import inspect
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, dataclass, fields

import click
import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.cli.options import of_values, values_of
from relfit.estimators import ESTIMATORS
from relfit.settings import ELSEWHERE, FORBIDDEN, Compute, Options, Settings
from relfit.util.checks import Whole, described, option

KERNELS = [relfit.Gaussian(1.0), relfit.IMQ()]
MATRIX = relfit.Precomputed(np.eye(4))

CALLS = {
    "compare": lambda **options: relfit.compare(None, None, **options),
    "compare_pair": lambda **options: relfit.compare_pair(None, None, None, **options),
    "estimate": lambda **options: relfit.estimate(None, None, **options),
}
# Options that a function does not have.
ABSENT = {"compare": set(), "compare_pair": {"correction"}, "estimate": {"test", "alpha", "correction", "margin"}}
NAMES = [item.name for item in fields(Settings)]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    shifts = {"a": 0.0, "b": 0.2, "c": 1.0}
    return rng.normal(size=(200, 2)), {name: rng.normal(shift, 1, (200, 2)) for name, shift in shifts.items()}


# --- one list of names and defaults


def test_the_types_for_callers_are_those_of_the_record_and_compute_is_a_value(data):
    assert list(Options.__annotations__) == NAMES
    for value in ({"backend": "numpy"}, "numpy", Compute):
        refused(lambda value=value: relfit.compare(*data, compute=value), "compute: expected relfit.Compute(...) or No")
    refused(lambda: Settings(discrepancy=relfit.MMD(relfit.IMQ()), kernel="imq"), "both in kernel= and in discrepancy=")


@pytest.mark.parametrize("call", CALLS)
def test_the_shown_signatures_have_every_option_with_its_default_and_description(call):
    parameters = inspect.signature(getattr(relfit, call)).parameters
    defaults = {item.name: item.default for item in fields(Settings) if item.name not in ABSENT[call]}
    assert MISSING not in defaults.values()
    shown = {name: each.default for name, each in parameters.items() if name in NAMES}
    assert shown == defaults
    assert all(parameters[name].annotation == Options.__annotations__[name] for name in shown)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in shown)
    assert set(parameters) - set(defaults) <= {"reference", "models", "a", "b", "names"}
    # What the signature shows can be given, and means what leaving it out means.
    shown = {name: each.default for name, each in inspect.signature(getattr(relfit, call)).parameters.items()}
    options = {name: default for name, default in shown.items() if name in NAMES}
    plain, given = Settings(rng=3), Settings(**{**options, "rng": 3})
    assert given == plain
    text = inspect.getdoc(relfit.compare)
    assert all(f"{item.name}: {item.metadata['help'][:20]}" in text for item in fields(Settings))
    assert call == "compare" or "as in `compare`" in inspect.getdoc(getattr(relfit, call))


@dataclass(frozen=True)
class Striped(relfit.Linear):
    """Every third row with the next."""

    stripes: int | None = option(None, Whole(2), "the number of stripes", flag="--stripes N", shown="three")


def test_a_field_is_checked_described_and_an_option_of_the_command_line(monkeypatch):
    """A new option of a value is declared in one place."""
    assert (Striped(), Striped(4).stripes) == (Striped(None), 4)
    refused(lambda: Striped(1), "stripes: expected a whole number of at least 2, got 1")
    assert "stripes: the number of stripes. Default: three." in described(Striped).__doc__
    monkeypatch.setitem(ESTIMATORS, "striped", Striped)
    command = click.Command("try", params=[], callback=lambda **params: values_of("estimator", ["striped"], params))
    for decorate in of_values("estimator"):
        decorate(command)
    help = {each.name: each.help for each in command.params}
    assert help["stripes"] == "With striped, the number of stripes.  [default: three]"
    made = command.main(["--stripes", "5"], standalone_mode=False)
    assert made == [Striped(5)]
    refused(
        lambda: values_of("estimator", ["complete"], {"stripes": 5}),
        "--stripes: belongs to --estimator striped, got complete; leave it out",
    )


# --- what is refused


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_keyword_that_belongs_elsewhere_raises_an_error_that_says_where(name):
    """Where the line names a value of relfit, this value has a field of that name."""
    line = refused(lambda: relfit.compare(None, None, **{name: 1}), f"{name}: is ")
    value, found, _ = line.partition("=relfit.")[2].partition("(")
    assert not found or name in {item.name for item in fields(getattr(relfit, value))}
    assert name not in NAMES


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_keyword_is_refused_with_the_list_and_the_closest_name(call):
    line = refused(
        lambda: CALLS[call](kernal=1), f"{call}: expected options among ", "got 'kernal'; did you mean kernel?"
    )
    shown = set(inspect.signature(getattr(relfit, call)).parameters) - {"reference", "models", "a", "b"}
    assert set(line.partition("among ")[2].partition(", got")[0].split(", ")) == shown
    assert "did you mean" not in refused(lambda: CALLS[call](zzz=1), "got 'zzz'")
    refused(lambda: CALLS[call](select_fractions=1), "did you mean select_fraction?")
    refused(lambda: CALLS[call](memory=1), "memory: is a field of compute: compute=relfit.Compute(memory=...)")


@pytest.mark.parametrize(("call", "name"), [(call, name) for call in CALLS for name in sorted(ABSENT[call])])
def test_an_option_that_a_function_does_not_have_is_refused(call, name):
    refused(lambda: CALLS[call](**{name: None}), f"{call}: expected options among ", f"got {name!r}")


def in_memory(**options):
    return {"compute": Compute(memory="1GB", **options)}


def gap(reference, model):
    return abs(reference.mean() - model.mean())


# For each combination of the table options that are one.
COMBINED = {
    "preset + kernel": {"preset": "kid", "kernel": "imq"},
    "columns + plain rows": {"preset": "kid", "scale": "auto"},
    "ordered + drops rows": {"groups": [0], "encode": relfit.Encode(missing="drop")},
    "stepdown": {"test": "relpsi", "correction": "stepdown"},
    "chain + splits": {"dependence": "chain", "test": "relmulti"},
    "chain + several": {"dependence": "chain", "kernel": KERNELS},
    "several + one kernel only": {"kernel": KERNELS, "test": "relpsi"},
    "several + margin": {"kernel": KERNELS, "margin": 0.5},
    "chain + select": {"dependence": "chain", "kernel": "select"},
    "optimised locations of several kernels": {
        **{"discrepancy": relfit.UME(choose="optimise"), "kernel": "select", "test": "relmulti"}
    },
    "groups + select or precomputed": {"groups": [0], "kernel": MATRIX},
    "locations + design": {"discrepancy": "ume", "estimator": "linear"},
    "locations + variance": {"discrepancy": "fssd", "estimator": relfit.Complete(variance="projection")},
    "locations + groups": {"discrepancy": "ume", "groups": [0]},
    "locations + by blocks": {"discrepancy": "ume", "kernel": MATRIX},
    "locations + not numpy in double": {"discrepancy": "ume", "compute": Compute(precision="single")},
    "locations + checkpoint": {"discrepancy": "ume", "compute": Compute(checkpoint="x")},
    "pair design + checkpoint": {"estimator": "linear", "compute": Compute(checkpoint="x")},
    "likelihood + kernel": {"discrepancy": "loglik", "kernel": "imq"},
    "likelihood + preset": {"discrepancy": "loglik", "preset": "kid"},
    "likelihood + estimator": {"discrepancy": "loglik", "estimator": "linear"},
    "likelihood + backend": {"discrepancy": "loglik", "compute": Compute(backend="torch")},
    "likelihood + precision": {"discrepancy": "loglik", "compute": Compute(precision="single")},
    "likelihood + checkpoint": {"discrepancy": "loglik", "compute": Compute(checkpoint="x")},
    "own + kernel": {"discrepancy": gap, "kernel": "imq"},
    "own + preset": {"discrepancy": gap, "preset": "kid"},
    "own + estimator": {"discrepancy": gap, "estimator": "linear"},
    "own + backend": {"discrepancy": gap, "compute": Compute(backend="torch")},
    "own + precision": {"discrepancy": gap, "compute": Compute(precision="single")},
    "own + checkpoint": {"discrepancy": gap, "compute": Compute(checkpoint="x")},
    "own + groups": {"discrepancy": gap, "groups": [0]},
    "no likelihood + given": {"given": [0]},
    "memory + own": {"discrepancy": gap, **in_memory()},
    "memory + groups": {"groups": [0], **in_memory()},
    "memory + given": {"discrepancy": "loglik", "given": [0], **in_memory()},
    "memory + chain": {"dependence": "chain", **in_memory()},
    "memory + by blocks": {"kernel": MATRIX, **in_memory()},
    "memory + preset of unit length": {"preset": "cmmd", **in_memory()},
    "memory + on a device": in_memory(backend="torch"),
}


@pytest.mark.parametrize("together", FORBIDDEN)
def test_options_that_cannot_be_combined_are_refused(together):
    message = FORBIDDEN[together]
    refused(lambda: Settings(**COMBINED[together]), message.partition("{")[0], message.rpartition("}")[2])


# --- values and names


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"test": "best-set"}, {"test": relfit.BestSet()}),
        ({"test": "auto"}, {"test": relfit.BestSet()}),
        ({"test": "relpsi"}, {"test": relfit.RelPSI()}),
        ({"test": "carve"}, {"test": relfit.Carve()}),
        ({"test": "relmulti"}, {"test": relfit.RelMulti()}),
        ({"test": "relmulti"}, {"test": relfit.RelMulti(select_fraction=0.25)}),
        ({"estimator": "complete"}, {"estimator": relfit.Complete()}),
        ({"estimator": "complete"}, {"estimator": relfit.Complete(variance="auto")}),
        ({"estimator": "linear"}, {"estimator": relfit.Linear()}),
        ({"estimator": "block"}, {"estimator": relfit.Block()}),
        ({"estimator": "incomplete"}, {"estimator": relfit.Incomplete()}),
        ({"discrepancy": "mmd"}, {"discrepancy": relfit.MMD()}),
        ({"discrepancy": "ume"}, {"discrepancy": relfit.UME()}),
        ({"kernel": "imq"}, {"kernel": relfit.IMQ()}),
        ({"kernel": "select"}, {"kernel": relfit.Select()}),
        ({"compute": None}, {"compute": relfit.Compute()}),
    ],
    ids=lambda options: str(next(iter(options.values()))),
)
def test_a_value_and_its_name_give_the_same_result(data, options, same):
    one, other = (relfit.compare(*data, rng=1, **each).to_json() for each in (options, same))
    assert one == other


@pytest.mark.parametrize(
    "options",
    [
        {"test": relfit.RelMulti(select_fraction=0.5)},
        {"estimator": relfit.Complete(variance="projection")},
        {"estimator": relfit.Linear(shuffle=False)},
        {"estimator": relfit.Block(blocks=25)},
        {"estimator": relfit.Incomplete(pairs=400)},
    ],
    ids=str,
)
def test_the_field_of_a_value_reaches_the_result(data, options):
    (key, value), result = next(iter(options.items())), relfit.compare(*data, rng=1, **options)
    assert result.to_dict()[key] == value.name
    assert result.to_json() != relfit.compare(*data, rng=1, **{key: value.name}).to_json()


# --- computing


def test_computing_nests_and_restores(data):
    def backend():
        return relfit.compare(*data, rng=0).backend

    assert backend() == "numpy"
    with relfit.computing(precision="single") as outer:
        assert backend() == "numpy (float32)"
        with relfit.computing(threads=1) as inner:
            assert inner == Compute(precision="single", threads=1)
            assert backend() == "numpy (float32)"
        with relfit.computing(precision="double"):
            assert backend() == "numpy"
        assert outer == Compute(precision="single")
        # A call's own compute= replaces all of it.
        assert relfit.compare(*data, rng=0, compute=Compute()).backend == "numpy"
        assert backend() == "numpy (float32)"
    assert backend() == "numpy"


def test_computing_reaches_every_function_and_changes_no_bit(data):
    reference, models = data
    plain = relfit.estimate(reference, models, rng=0)
    with ThreadPoolExecutor(2) as threads, relfit.computing(executor=threads, backend="numpy"):
        there = relfit.estimate(reference, models, rng=0)
        pair = relfit.compare_pair(reference, *list(models.values())[:2], rng=0)
    np.testing.assert_array_equal(there.values, plain.values)
    np.testing.assert_array_equal(there.covariance, plain.covariance)
    assert pair.backend == "numpy"


# --- importing


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_importing_relfit_imports_no_large_library_before_it_is_used():
    loaded = set(run("import sys, relfit; print(*sys.modules)"))
    assert "relfit" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {
        *("numpy", "scipy", "matplotlib", "rich", "click", "jinja2", "torch", "jax", "sklearn", "pandas", "pyarrow"),
        *("dask", "distributed"),
    }
    assert not [name for name in loaded if name.startswith(("relfit.data.adapters", "relfit.report", "relfit.cli"))]
    code = "import sys, relfit; relfit.Gaussian; print('relfit.api' in sys.modules, 'scipy.optimize' in sys.modules)"
    assert run(code) == ["False", "False"]
    assert run("import relfit; print(callable(relfit.compare), relfit.compare is relfit.compare)") == ["True", "True"]


def test_importing_relfit_takes_a_quarter_of_a_second_at_most_beyond_numpy():
    """Processor time, so that other work on the machine does not count; the least of five processes."""
    code = (
        "import time, numpy; start = time.process_time(); import relfit; relfit.__version__; "
        "print(time.process_time() - start)"
    )
    assert min(float(run(code)[0]) for _ in range(5)) <= 0.25


INTERRUPTED = """
import os, signal, sys
from relfit.cli import main

left = int(sys.argv[1])

def interrupt_at(event, _arguments):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt_at)
status = main(["compare", "no.npy", "such.npy", "files.npy"])
sys.exit(status if left <= 0 else 99)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to be sent")
@pytest.mark.parametrize("imports", [1, 3, 20, 100, 250, 450])
def test_an_interrupt_while_the_command_line_is_imported_is_one_line(imports, tmp_path):
    """The signal arrives at the first, third, … import after `main` was called."""
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(imports)], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "relfit: interrupted\n")
