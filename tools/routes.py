"""The same rows have the same answer, whichever way they come.

An example draws small tables with awkward columns, and two of the `ROUTES` by which they may be compared. Each must
agree with the plain one, frames of pandas in memory: the same bandwidth, discrepancies, p-values, verdicts, notes and
encoding, or the same refusal. A route is a function of a `Problem` that gives an `answer`, without the entries that it
cannot know, or None where it does not apply.

python -m tools.routes [EXAMPLES]
"""

import contextlib
import functools
import io
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import relfit
from relfit.cli import main
from relfit.data import encode, tables
from relfit.data.files import arrow, text
from relfit.util.errors import InputError

# Small limits, so that a few rows have many parts, and levels beyond what is held and what has a place of its own.
LIMITS = [(tables, "MOST_HELD", 12), (encode, "MOST_HELD", 12), (encode, "MOST_LEVELS", 5)]
LIMITS += [(text, "_LABELS_BETWEEN_CHECKS", 16), (arrow, "PART_NUMBERS", 64)]
WORDS = ["é", "=1+2", "a,b", 'say "x"', "n/k", "-", "two\nlines", "0x1f", "1_000", "12:30", "2024-13-45", "Yes", "<b>"]
HOW = {"deadline": None, "phases": [Phase.generate, Phase.shrink], "suppress_health_check": list(HealthCheck)}
START = pd.Timestamp("2022-03-01")


def _late(n, _, rng):
    """Text that looks like numbers, or like dates, perhaps until the last rows."""
    form = "2024-01-{:02}" if rng.random() < 0.3 else "{}"
    cells = [form.format(k) for k in rng.integers(1, rng.choice([3, 30]), n)]
    return [*cells[:-5], *(["x"] * 5 if rng.random() < 0.7 else cells[-5:])]


# A column of n cells by its kind; the last model is shifted.
KINDS = {
    "number": lambda n, shift, rng: rng.normal(shift, 1.0, n),
    "huge": lambda n, shift, rng: rng.normal(shift, 1.0, n) * 1e155,
    "count": lambda n, shift, rng: pd.array(rng.poisson(3.0 + shift, n), dtype="Int64"),
    "key": lambda n, shift, rng: pd.array(rng.integers(0, 2**62, n), dtype="Int64"),
    "near key": lambda n, shift, rng: pd.array(2**60 + rng.integers(0, 99, n), dtype="Int64"),
    "flag": lambda n, shift, rng: pd.array(rng.random(n) < 0.4 + shift, dtype="boolean"),
    "truth": lambda n, shift, rng: rng.choice(["true", "FALSE"], n).astype(object),
    "word": lambda n, shift, rng: rng.choice(WORDS[: int(rng.integers(2, len(WORDS)))], n).astype(object),
    "late": _late,
    "level": lambda n, shift, rng: [f"c{k}" for k in rng.integers(0, rng.choice([3, 9, 14, 40]), n)],
    "id": lambda n, shift, rng: [f"c{k}" for k in rng.permutation(n)],
    "category": lambda n, shift, rng: pd.Categorical(rng.choice(["c1", "c2"], n), [f"c{k}" for k in range(70)]),
    "day": lambda n, shift, rng: START + pd.to_timedelta(rng.integers(0, 999, n), unit="D"),
    "time": lambda n, shift, rng: START + pd.to_timedelta(rng.integers(0, 10**8, n), unit="s"),
    "zoned": lambda n, shift, rng: START.tz_localize("Asia/Kolkata") + pd.to_timedelta(rng.integers(0, 10**8, n), "s"),
    "constant": lambda n, shift, rng: np.full(n, 1.5),
    "empty": lambda n, shift, rng: [None] * n,
}


@dataclass(frozen=True)
class Problem:
    """Frames by name, of which "data" is the reference, and the options of the comparison."""

    frames: dict[str, pd.DataFrame]
    categorical: list[str]
    missing: str
    scale: str
    folder: Path = Path()

    def changed(self, change):
        return replace(self, frames={name: change(name, frame) for name, frame in self.frames.items()})


@st.composite
def problems(draw):
    """A reference and two models with the same columns of the same kinds."""
    kinds = ["number", *draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))]
    seed, gaps = draw(st.integers(0, 2**32)), [False, *(draw(st.booleans()) for _ in kinds[1:])]
    frames = {}
    for k, name in enumerate(("data", "a", "b")):
        rng, n = np.random.default_rng([seed, k]), draw(st.sampled_from([24, 40, 61]))
        cells = {f"{kind} {j}": KINDS[kind](n, 0.4 * (name == "b"), rng) for j, kind in enumerate(kinds)}
        frames[name] = pd.DataFrame(cells)
        for column in (column for column, some in zip(cells, gaps, strict=True) if some):
            frames[name].loc[rng.random(n) < 0.2, column] = None
    codes = [name for name in frames["data"] if name.startswith(("count", "key", "level", "id", "day", "late"))]
    chosen = draw(st.lists(st.sampled_from(codes), unique=True, max_size=2)) if codes else []
    missing, scale = (draw(st.sampled_from(some)) for some in (("flag", "drop"), ("auto", "robust", "none")))
    return Problem(frames, chosen, missing, scale)


def compared(problem, form=lambda name, frame: frame, order=("a", "b"), **options):
    """The answer for the tables in some form."""
    values = problem.changed(form).frames
    options |= {"scale": problem.scale, "encode": relfit.Encode(problem.categorical, missing=problem.missing)}
    try:
        return answer(relfit.compare(values["data"], {name: values[name] for name in order}, rng=0, **options))
    except InputError as error:
        return refused(str(error))


def answer(result):
    each = zip(result.discrepancy.tolist(), result.pvalue.tolist(), result.worse.tolist(), strict=True)
    notes = [words for words in result.warnings if "matched to those of the reference by name" not in words]
    # The command line names its options.
    notes = [re.sub(r"--(\w+) (\w+)", r'\1="\2"', words) for words in notes]
    encoded = () if result.encoding is None else result.encoding.columns
    return {
        "bandwidth": result.kernel.bandwidth,
        "models": dict(zip(result.names, each, strict=True)),
        # Models and columns are named in the order in which they were given.
        "notes": sorted(" ".join(sorted(re.findall(r"[^\s,]+", words))) for words in notes),
        "columns": sorted((column.name, column.kind, column.levels) for column in encoded),
    }


def refused(message):
    """A refusal without what it begins with, a file or an argument, and what came, of which the first may differ."""
    said = re.sub(r"^(relfit: error: )?(reference|model '\w'|\S*(data|a|b)(\.\w+)?): ", "", message.strip())
    said = re.split(r", (?:got|but) | \(\w+ estimator\)", said)[0]
    return {"refused": re.sub(r"\d+", "0", said)}


def cut(frame):
    return [frame[k : k + 17] for k in range(0, len(frame), 17)]


def written(problem, form, **options):
    def write(name, frame):
        path = problem.folder / (name if form == "folder" else f"{name}.{form}")
        if form == "folder":
            path.mkdir()
            for k, part in enumerate(cut(frame)):
                part.to_parquet(path / f"{k}.parquet", index=False)
        else:
            frame.to_csv(path, index=False) if form == "csv" else getattr(frame, f"to_{form}")(path)
        return str(path)

    return compared(problem, write, **options)


def array(problem, form=lambda rows: rows, **options):
    """Numbers without names, scaled as those of tables are; notes call their columns otherwise."""
    frames = problem.frames.values()
    if any(frame.isna().any(axis=None) or not all(name.startswith("number") for name in frame) for frame in frames):
        return None
    values = {name: form(frame.to_numpy()) for name, frame in problem.frames.items()}
    found = answer(relfit.compare(values.pop("data"), values, scale=problem.scale, rng=0, **options))
    return {key: found[key] for key in ("bandwidth", "models")}


def times_power(problem, power, **options):
    """Numbers in another unit; where they are not scaled by the data, only the bandwidth may change."""
    numeric = [name for name in problem.frames["data"] if name.startswith(("number", "constant"))]
    # A missing cell is a value of its own, which has no unit.
    flagged = any(frame.isna().any(axis=None) for frame in problem.frames.values())
    if problem.scale == "none" and (flagged or len(numeric) < problem.frames["data"].shape[1]):
        return None

    def other_unit(_, frame):
        return frame.assign(**{name: frame[name].astype(float) * 2.0**power for name in numeric})

    found = compared(problem.changed(other_unit), **options)
    if problem.scale == "none" and "bandwidth" in found:
        found["bandwidth"] /= 2.0**power
    return found


def all_landmarks(problem, **options):
    """As many landmarks as rows; "complete" is the plain estimator of so few rows."""
    rows = sum(map(len, problem.frames.values()))
    found = compared(problem, estimator=relfit.Landmarks(2 * rows, rows**2), **options)
    return {key: value for key, value in found.items() if key != "notes"}


@functools.cache
def pool():
    """One other process."""
    return ProcessPoolExecutor(1)


def other_process(problem, compute=None):
    return compared(problem, compute=replace(compute or relfit.Compute(), executor=pool()))


def command_line(problem, compute=None):
    written(problem, "csv")
    options = {"categorical": ",".join(f'"{name}"' for name in problem.categorical), "missing": problem.missing}
    options |= {"scale": problem.scale, "memory": compute and compute.memory, "json": f"{problem.folder}/result.json"}
    command = ["compare", *(f"{problem.folder}/{name}.csv" for name in problem.frames), "--seed", "0"]
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        status = main([*command, *(f"--{name}={value}" for name, value in options.items() if value)])
    if status:
        return refused(errors.getvalue())
    return answer(relfit.Comparison.from_json(Path(options["json"]).read_text()))


WHOLE = {
    **{form: lambda problem, f=form, **o: written(problem, f, **o) for form in ("csv", "parquet", "feather", "folder")},
    "frames": compared,
    "batches": lambda problem, **o: compared(problem, lambda _, f: iter(cut(f)), **o),
    "polars": lambda problem, **o: compared(problem, lambda _, f: pl.from_pandas(f), **o),
    "pyarrow": lambda problem, **o: compared(problem, lambda _, f: pa.Table.from_pandas(f), **o),
    "pyarrow batches": lambda p, **o: compared(p, lambda _, f: iter(pa.Table.from_pandas(f).to_batches(17)), **o),
    "array": array,
    "array batches": lambda problem, **o: array(problem, lambda rows: iter(cut(rows)), **o),
    "command line": command_line,
    "rows in another order": lambda p, **o: compared(p.changed(lambda _, f: f.sample(frac=1.0, random_state=1)), **o),
    "columns in another order": lambda p, **o: compared(p, lambda k, f: f[sorted(f, reverse=k == "a")], **o),
    "models in another order": lambda problem, **o: compared(problem, order=("b", "a"), **o),
    "times 2^-300": lambda problem, **o: times_power(problem, -300, **o),
    "times 2^7": lambda problem, **o: times_power(problem, 7, **o),
    "times 2^300": lambda problem, **o: times_power(problem, 300, **o),
    "all rows as landmarks": all_landmarks,
    "two processes": other_process,
}
IN_PARTS = relfit.Compute(memory="8GB")
ROUTES = {**WHOLE, **{f"{name} in parts": lambda p, f=f: f(p, compute=IN_PARTS) for name, f in WHOLE.items()}}


def without_order(found):
    """The answer without a note on how rows depend on the rows before them."""
    return found | {"notes": [words for words in found.get("notes", []) if "autocorrelation" not in words]}


def agree(plain, other, name):
    """Fail where two answers differ by more than rounding."""
    if "refused" in plain and "refused" in other and "order" in name:
        return  # of two reasons the first
    if other.get("refused", "").startswith("expected one type in column"):
        return  # text of which whole batches look like numbers or dates
    if "rows in another order" in name:
        plain, other = without_order(plain), without_order(other)
    for key in {"refused", "notes", "columns"}.intersection(other):
        assert other[key] == plain.get(key)
    # Landmarks leave out eigenvalues below 1e-10 of the largest; the variances differ by parts of order 1/n.
    for model, numbers in plain.get("models", {}).items():
        np.testing.assert_allclose(other.get("bandwidth", plain["bandwidth"]), plain["bandwidth"], rtol=1e-9)
        if "landmarks" in name:
            np.testing.assert_allclose(other["models"][model][0], numbers[0], rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(other["models"][model][1], numbers[1], rtol=0.1, atol=1e-4)
        else:
            np.testing.assert_allclose(other["models"][model], numbers, rtol=1e-4, atol=1e-10)


def agreeing(problem, routes):
    """Fail where one of the routes has another answer than frames in memory."""
    with ExitStack() as limits, tempfile.TemporaryDirectory() as place:
        for module, name, value in LIMITS:
            if hasattr(module, name):
                limits.enter_context(patch.object(module, name, value))
        plain = compared(problem)
        note(f"plain: {plain}")
        for name in routes:
            folder = Path(tempfile.mkdtemp(dir=place))
            found = ROUTES[name](replace(problem, folder=folder))
            note(f"{name}: {found}")
            if found is not None:
                agree(plain, found, name)


def two_of(routes):
    """Two of the names."""
    return st.lists(st.sampled_from(sorted(routes)), min_size=2, max_size=2, unique=True)


def check(examples, fixed):
    """Try so many examples; the same ones every time if `fixed`."""
    tried = given(problems(), two_of(ROUTES))(agreeing)
    try:
        settings(max_examples=examples, derandomize=fixed, database=None, **HOW)(tried)()
    finally:
        if pool.cache_info().currsize:
            pool().shutdown()


if __name__ == "__main__":
    check(int(sys.argv[1]) if sys.argv[1:] else 20_000, fixed=False)
