"""The same scores have the same answer, whichever way they come; `routes` is the same for rows of samples.

An example draws a small table of scores with what makes them awkward (ties, gaps, copies, tiny and huge numbers, odd
keys) and two of the `ROUTES`. Each must agree with the plain one, a wide pandas frame: the same means, differences,
p-values, verdicts and notes, or the same refusal. A route is a function of a `Problem` that gives an `answer`, without
the entries that it cannot know, or None where it does not apply.

python -m tools.score_routes [EXAMPLES]
"""

import contextlib
import io
import json
import re
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import relfit
from relfit.cli import main
from relfit.util.errors import InputError

HOW = {"deadline": None, "phases": [Phase.generate, Phase.shrink], "suppress_health_check": list(HealthCheck)}
NAMES = ["m·0", "é/1", "a, b"]
# n scores of three models by their kind.
KINDS = {
    "right or wrong": lambda n, rng: (rng.random((n, 3)) < [0.5, 0.5, 0.8]).astype(float),
    "normal": lambda n, rng: rng.normal([0.0, 0.0, 0.6], 1.0, (n, 3)),
    "positive": lambda n, rng: rng.gamma(2.0, 1.0, (n, 3)),
    "few levels": lambda n, rng: rng.integers(0, 4, (n, 3)) / 3.0,
    "one constant": lambda n, rng: np.column_stack([np.full(n, 0.5), rng.random((n, 2))]),
    "copies": lambda n, rng: rng.random((n, 2))[:, [0, 0, 1]],
    "far apart": lambda n, rng: np.add(rng.random((n, 3)), [0.0, 0.0, 1e6]),
    "tiny": lambda n, rng: rng.random((n, 3)) * 1e-170,
    "huge": lambda n, rng: rng.normal(size=(n, 3)) * 1e170,
    "a difference that never varies": lambda n, rng: rng.random(n)[:, None] + [0.0, 0.0, 0.25],
}
KEYS = {
    "whole": lambda n: list(range(1000, 1000 + n)),
    "text": lambda n: [f"q{k}" for k in range(n)],
    "odd": lambda n: [f"{k}, 'é'" for k in range(n)],
    "long": lambda n: [str(10**17 + k) for k in range(n)],
}


@dataclass(frozen=True)
class Problem:
    """Scores of the models `names`, keys of the items and what else is told of them."""

    scores: np.ndarray
    keys: list
    higher: bool
    stratum: list | None = None
    group: list | None = None
    margin: float = 0.0
    names: tuple[str, ...] = tuple(NAMES)
    folder: Path = Path()

    def aside(self):
        """Columns that are not scores."""
        columns = {"item": self.keys, "part": self.stratum, "source": self.group}
        return {name: column for name, column in columns.items() if column is not None}

    def roles(self):
        roles = {"item": "item", "stratum": "part", "group": "source"}
        return {role: column for role, column in roles.items() if column in self.aside()}

    def wide(self):
        return pd.DataFrame({**self.aside(), **dict(zip(self.names, self.scores.T, strict=True))})

    def long(self):
        """A row for each model and item, without the scores that are missing."""
        parts = [
            pd.DataFrame({**self.aside(), "model": name, "value": column})
            for name, column in zip(self.names, self.scores.T, strict=True)
        ]
        return pd.concat(parts).dropna().sample(frac=1.0, random_state=1)


@st.composite
def problems(draw):
    n = draw(st.sampled_from([20, 33, 60]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = KINDS[draw(st.sampled_from(sorted(KINDS)))](n, rng)
    gaps = draw(st.sampled_from([0.0, 0.0, 0.02, 0.3]))
    scores[rng.random(scores.shape) < gaps] = np.nan
    stratum = rng.choice(["x", "y"], n).tolist() if draw(st.booleans()) else None
    group = rng.integers(0, 9, n).tolist() if draw(st.booleans()) else None
    margin = draw(st.sampled_from([0.0, 0.0, 0.1])) * float(np.nanmax(np.abs(scores)))
    keys = KEYS[draw(st.sampled_from(sorted(KEYS)))](n)
    return Problem(scores, keys, draw(st.booleans()), stratum, group, margin)


def compared(table, problem, **options):
    options = {"higher_is_better": problem.higher, "margin": problem.margin, "rng": 0, **options}
    try:
        return answer(relfit.compare_losses(table, **options))
    except InputError as error:
        return refused(str(error))


def answer(result):
    columns = [result.discrepancy, result.standard_error, result.pvalue]
    numbers = np.column_stack(columns).astype(float)
    rows = result.rows()
    first = next(row for row in rows if row["best"])
    # Of models that are equally good up to rounding one is called the best.
    size = np.abs(result.discrepancy).max()
    tied = [row["name"] for row in rows if abs(row["discrepancy"] - first["discrepancy"]) <= 1e-14 * size]
    verdicts = {row["name"]: "best" if row["name"] in tied else row["verdict"] for row in rows}
    # A margin is in the units of the scores.
    verdicts = {name: re.sub(r"(than|within) [\d.e+-]+", r"\1 δ", verdict) for name, verdict in verdicts.items()}
    # How others differ from the best is said of the one that is called so.
    notes = [words for words in result.warnings if len(tied) < 2 or not words.startswith("only about")]
    return {
        "models": dict(zip(result.names, numbers.tolist(), strict=True)),
        "verdicts": verdicts,
        "notes": sorted(filter(None, map(said, notes))),
        "doubts": sorted(filter(None, map(said, result.doubts))),
    }


def said(message):
    """The words of a message in any order, with options as in Python; "" of one that another form does not have."""
    kinds = ("another scale than the other columns", "for which no model has a score", "autocorrelation")
    if any(words in message for words in kinds):
        return ""
    # Of models that are equally good, or lack as many items, the first is named.
    for name in NAMES:
        message = message.replace(repr(name), name).replace(name, "a model")
    message = re.sub(r"only about \d+", "only about N", message)  # 8.5 may be 8 or 9
    message = re.sub(r"--([a-z-]+) ", lambda found: found[1].replace("-", "_") + "=", message)
    return " ".join(sorted(re.findall(r"[^\s,;:'\"]+", message)))


def refused(message):
    """A refusal without the argument or option that it begins with and what came."""
    said = re.sub(r"^[-\w]+: ", "", message.strip().removeprefix("relfit: error: "))
    return {"refused": re.sub(r"\d+", "0", re.split(", (?:got|but) ", said)[0])}


def wide(problem, form=lambda frame: frame, **options):
    return compared(form(problem.wide()), problem, **problem.roles(), **options)


def long(problem, form=lambda frame: frame, **options):
    roles = {**problem.roles(), "model": "model", "score": "value"}
    return compared(form(problem.long()), problem, **roles, **options)


def file(problem, shape, form):
    frame = getattr(problem, shape)()
    path = str(problem.folder / f"scores.{form}")
    if form == "jsonl":
        lines = [json.dumps(row) for row in frame.to_dict("records")]
        Path(path).write_text("\n".join(lines), encoding="utf-8")
    elif form == "parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return path


def written(problem, shape, form):
    read = wide if shape == "wide" else long
    return read(problem, lambda _: file(problem, shape, form))


def mapping(problem):
    """Arrays by the model's name, the keys of the items left out."""
    columns = dict(zip(problem.names, problem.scores.T, strict=True))
    return compared(columns, problem, strata=problem.stratum, groups=problem.group)


def array(problem):
    return compared(problem.scores, problem, names=problem.names, strata=problem.stratum, groups=problem.group)


def by_key(problem):
    """A mapping of items to scores for each model, in different orders."""
    if problem.stratum is not None or problem.group is not None:
        return None
    columns = {}
    for name, column in zip(problem.names, problem.scores.T, strict=True):
        pairs = [(key, value) for key, value in zip(problem.keys, column.tolist(), strict=True) if value == value]
        columns[name] = dict(pairs if name == problem.names[0] else reversed(pairs))
    if any(len(column) < 2 for column in columns.values()):
        return None
    return compared(columns, problem)


def command_line(problem, shape, form="csv"):
    path = file(problem, shape, form)
    options = {**problem.roles(), **({"model": "model", "score": "value"} if shape == "long" else {})}
    result = f"{problem.folder}/result.json"
    command = ["losses", path, "--seed", "0", "--json", result]
    command += ["--higher-is-better" if problem.higher else "--lower-is-better"]
    command += [f"--{name}={value}" for name, value in options.items()]
    command += [f"--margin={problem.margin!r}"] if problem.margin else []
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        status = main(command)
    if status:
        return refused(errors.getvalue())
    return answer(relfit.Comparison.from_json(Path(result).read_text(encoding="utf-8")))


def reordered(problem, order):
    """The items in another order."""
    take = lambda values: None if values is None else [values[k] for k in order]  # noqa: E731
    return replace(
        problem,
        scores=problem.scores[order],
        keys=take(problem.keys),
        stratum=take(problem.stratum),
        group=take(problem.group),
    )


def models_reversed(problem):
    return wide(replace(problem, names=problem.names[::-1], scores=problem.scores[:, ::-1].copy()))


def times(problem, power):
    """Scores and the margin in another unit."""
    sizes = np.abs(problem.scores[problem.scores != 0.0])
    sizes = sizes[~np.isnan(sizes)]
    exponents = np.frexp(sizes)[1] + power
    if len(sizes) and (exponents.max() > 1000 or exponents.min() < -960):
        return None  # would be rounded
    scores = np.ldexp(problem.scores, power)
    found = wide(replace(problem, scores=scores, margin=float(np.ldexp(problem.margin, power))))
    return without_units(found)


def turned(problem):
    """Minus the scores, in the other direction."""
    found = wide(replace(problem, scores=-problem.scores, higher=not problem.higher))
    return without_units(found)


def without_units(found):
    """The p-values, and which models are worse."""
    if "refused" in found:
        return found
    models = {name: [np.nan, np.nan, numbers[2]] for name, numbers in found["models"].items()}
    return {"models": models, "verdicts": found["verdicts"]}


ROUTES = {
    "wide polars": lambda problem: wide(problem, pl.from_pandas),
    "wide pyarrow": lambda problem: wide(problem, lambda frame: pa.Table.from_pandas(frame, preserve_index=False)),
    "long": long,
    "long polars": lambda problem: long(problem, pl.from_pandas),
    "long pyarrow": lambda problem: long(problem, lambda frame: pa.Table.from_pandas(frame, preserve_index=False)),
    **{f"wide {form}": lambda problem, f=form: written(problem, "wide", f) for form in ("csv", "parquet", "jsonl")},
    **{f"long {form}": lambda problem, f=form: written(problem, "long", f) for form in ("csv", "parquet", "jsonl")},
    "mapping": mapping,
    "array": array,
    "by key": by_key,
    "command line, wide": lambda problem: command_line(problem, "wide"),
    "command line, long": lambda problem: command_line(problem, "long"),
    "command line, parquet": lambda problem: command_line(problem, "long", "parquet"),
    "items in another order": lambda problem: wide(
        reordered(problem, np.random.default_rng(1).permutation(len(problem.keys)))
    ),
    "models in another order": models_reversed,
    "times 2^-900": lambda problem: times(problem, -900),
    "times 2^-500": lambda problem: times(problem, -500),
    "times 2^9": lambda problem: times(problem, 9),
    "times 2^500": lambda problem: times(problem, 500),
    "minus the scores": turned,
}


def agree(plain, other):
    """Fail where two answers differ by more than rounding."""
    assert ("refused" in plain) == ("refused" in other)
    for key in {"refused", "notes", "doubts", "verdicts"}.intersection(other):
        assert other[key] == plain.get(key), key
    for name, numbers in other.get("models", {}).items():
        known = ~np.isnan(numbers)
        np.testing.assert_allclose(
            np.array(numbers)[known], np.array(plain["models"][name])[known], rtol=1e-6, atol=0.0
        )


def agreeing(problem, routes):
    """Fail where one of the routes has another answer than a wide frame."""
    with tempfile.TemporaryDirectory() as place:
        plain = wide(problem)
        note(f"plain: {plain}")
        for name in routes:
            folder = Path(tempfile.mkdtemp(dir=place))
            found = ROUTES[name](replace(problem, folder=folder))
            note(f"{name}: {found}")
            if found is not None:
                agree(plain, found)


# ── monitor ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def monitored(problem, blocks, bounds=None, names=None, power=0, **settings):
    """The answer of a monitor that gets the items in blocks."""
    low, high = limits(problem) if bounds is None else bounds
    columns = dict(zip(problem.names, problem.scores.T, strict=True))
    settings = {"bounds": (low, high), "higher_is_better": problem.higher, **settings}
    with relfit.Monitor(names or problem.names, path=problem.folder / "m.sqlite", **settings) as monitor:
        for block in blocks:
            losses = {name: column[block] for name, column in columns.items()}
            monitor.update(losses, items=problem.keys[block])
        return watched(monitor.result(), power)


def limits(problem):
    """Bounds of all scores, that are numbers of few digits."""
    largest = 2.0 ** int(np.frexp(np.nanmax(np.abs(problem.scores), initial=2.0**-1000))[1])
    return -largest, largest


def watched(result, power=0):
    rows = {row["name"]: row for row in result.rows()}
    kept = ("items", "mean", "evalue", "pvalue", "worse", "out_after")
    return {
        name: [np.nan if rows[name][key] is None else float(rows[name][key]) for key in kept] for name in sorted(rows)
    } | {"limits": np.ldexp([result.lower.min(), result.upper.max()], -power).tolist()}


def blocks_of(problem, size):
    return [slice(k, k + size) for k in range(0, len(problem.keys), size)]


def monitored_command(problem, shape):
    path, state, low_high = file(problem, shape, "csv"), f"{problem.folder}/m.sqlite", limits(problem)
    options = ["--item=item", *(["--model=model", "--score=value"] if shape == "long" else [])]
    options += ["--higher-is-better" if problem.higher else "--lower-is-better", "--state", state]
    options += ["--bounds", *map(repr, low_high), "--json", f"{problem.folder}/result.json"]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        status = main(["monitor", "add", path, *options])
    assert status == 0
    with relfit.Monitor.open(state) as monitor:
        return watched(monitor.result())


def monitored_turned(problem):
    found = monitored(
        replace(problem, scores=-problem.scores, higher=not problem.higher), [slice(None)], limits(problem)
    )
    return {key: [numbers[0], -numbers[1], *numbers[2:]] for key, numbers in found.items() if key in problem.names}


def monitored_times(problem, power):
    found = monitored(
        replace(problem, scores=np.ldexp(problem.scores, power)),
        [slice(None)],
        tuple(np.ldexp(limits(problem), power).tolist()),
        power=power,
    )
    return {
        key: numbers if key not in problem.names else [numbers[0], np.ldexp(numbers[1], -power), *numbers[2:]]
        for key, numbers in found.items()
    }


MONITORED = {
    "one at a time": lambda problem: monitored(problem, blocks_of(problem, 1)),
    "seven at a time": lambda problem: monitored(problem, blocks_of(problem, 7)),
    "models in another order": lambda problem: monitored(problem, [slice(None)], names=problem.names[::-1]),
    "minus the scores": monitored_turned,
    "times 2^-30": lambda problem: monitored_times(problem, -30),
    "times 2^200": lambda problem: monitored_times(problem, 200),
    "command line, wide": lambda problem: monitored_command(problem, "wide"),
}


def monitors_agreeing(problem, route):
    """Fail where a route to the monitor has another answer than all items at once."""
    problem = replace(problem, stratum=None, group=None)
    with tempfile.TemporaryDirectory() as place:
        first, second = (replace(problem, folder=Path(tempfile.mkdtemp(dir=place))) for _ in range(2))
        plain, found = monitored(first, [slice(None)]), MONITORED[route](second)
        note(f"plain: {plain}\n{route}: {found}")
        for key, numbers in found.items():
            np.testing.assert_allclose(numbers, plain[key], rtol=1e-6, atol=1e-9)


def of_moderate_size(problem):
    """True where a monitor can have bounds for the scores."""
    return 1e-150 < np.nanmax(np.abs(problem.scores)) < 1e150


def check(examples, fixed):
    """Try so many tables, and half as many in a monitor; the same ones every time if `fixed`."""
    two = st.lists(st.sampled_from(sorted(ROUTES)), min_size=2, max_size=2, unique=True)
    one = st.sampled_from(sorted(MONITORED))
    how = {"derandomize": fixed, "database": None, **HOW}
    settings(max_examples=examples, **how)(given(problems(), two)(agreeing))()
    watched_problems = problems().filter(of_moderate_size)
    settings(max_examples=examples // 2, **how)(given(watched_problems, one)(monitors_agreeing))()


if __name__ == "__main__":
    check(int(sys.argv[1]) if sys.argv[1:] else 8_000, fixed=False)
