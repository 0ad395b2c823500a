"""Which answers are recorded, and when two of them differ.

    python tests/answers/record.py            # names the answers that differ from expected.json
    python tests/answers/record.py --write    # records those that differ, as the relfit that is imported gives them

Write only where an answer is meant to change, and say why in the changelog.

Numbers may differ by rounding (1e-9 of the largest of their array; 1e-4 for sums in single precision, which processors
add in different orders), p-values and what is simulated by 1e-3; names, verdicts and status words not at all.
"""

import argparse
import json
import sys
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np

import relfit

sys.path.insert(0, str(Path(__file__).parents[1]))

from answers import limits, rows, scores

EXPECTED = Path(__file__).with_name("expected.json")
CALLS = {**rows.CALLS, **scores.CALLS, **limits.CALLS}

# What is compared of each kind of result; fields that a kind does not have are left out.
KEPT = (
    *("names", "best", "best_index", "discrepancy", "values", "standard_error", "covariance", "difference"),
    *("pvalue", "adjusted_pvalue", "simultaneous_pvalue", "worse", "status", "confidence_set", "truncation"),
    *("statistic", "equivalent", "beaten_by", "sizes", "groups", "near_degeneracy", "second_order", "estimator"),
    *("correction", "select_fraction", "yardstick", "lags", "impossible", "also", "lower", "upper", "tests"),
    *("corrections", "n", "fewest", "curves", "forecasts", "overall", "by_level", "mean", "log_evalue", "out_after"),
    *("ok", "largest_error", "n_rows", "n_bad_rows", "task", "score", "scale", "columns"),
)
ROUNDING, SINGLE_ROUNDING = 1e-9, 1e-4
SIMULATED = ("pvalue", "adjusted_pvalue", "simultaneous_pvalue", "interval", "curves", "forecasts")


def answer(result):
    """The result as JSON can hold it."""
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    kept = {}
    for key in KEPT:
        value = getattr(result, key, None)
        # Few results have these two; the others need no empty ones.
        if value is None or (key in ("also", "impossible") and not value):
            continue
        kept[key] = plain(value)
    if isinstance(result, relfit.Comparison):
        kept["interval"] = plain(result.confidence_interval(0.9))
    return kept


def plain(value):
    """Numbers, words and lists of them."""
    if isinstance(value, relfit.Comparison):
        return answer(value)
    if is_dataclass(value):
        return [plain(getattr(value, item.name)) for item in fields(value)]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def differences(new, old, key="", rounding=ROUNDING):
    """Where two answers differ, as a list of keys."""
    if isinstance(old, dict):
        if not isinstance(new, dict) or set(new) != set(old):
            return [f"{key}: {sorted(set(new) ^ set(old)) if isinstance(new, dict) else new}"]
        return [where for name in old for where in differences(new[name], old[name], name, rounding)]
    numbers = as_numbers(old)
    if numbers is not None:
        return [] if close(as_numbers(new), numbers, key, rounding) else [key]
    if isinstance(old, list) and isinstance(new, list) and len(new) == len(old):
        pairs = zip(new, old, strict=True)
        return [where for one, other in pairs for where in differences(one, other, key, rounding)]
    return [] if new == old else [key]


def as_numbers(value):
    """A number or a rectangle of numbers as an array; None for anything else."""
    try:
        array = np.asarray(value)
        if array.dtype.kind in "fi" or set(np.ravel(array)) & {"inf", "-inf", "nan"}:
            return array.astype(float)
    except (TypeError, ValueError):
        pass
    return None


def close(new, old, key, rounding):
    """True if the numbers agree as closely as numbers of this key must."""
    if new is None or new.shape != old.shape:
        return False
    if key in SIMULATED:
        return np.allclose(new, old, rtol=1e-3, atol=1e-3, equal_nan=True)
    finite = np.isfinite(old)
    if not np.array_equal(new[~finite], old[~finite], equal_nan=True):
        return False
    largest = np.abs(old[finite]).max(initial=1e-300)
    return bool(np.abs(new[finite] - old[finite]).max(initial=0.0) <= rounding * largest)


def rounding_of(name):
    """How far the numbers of this call may be from the recorded ones, as a part of the largest."""
    return SINGLE_ROUNDING if name == "single precision" else ROUNDING


def recorded():
    """The expected answers by the names of their calls."""
    return json.loads(EXPECTED.read_text(encoding="utf-8"))


def found(name):
    """The answer now, through JSON and back as the expected one went."""
    return json.loads(json.dumps(answer(CALLS[name]())))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="record the answers that differ")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    expected = recorded()
    wrong = 0
    for name in CALLS:
        where = ["not recorded"]
        new = found(name)
        if name in expected:
            where = differences(new, expected[name], rounding=rounding_of(name))
        if where:
            wrong += 1
            print(f"{name}: {', '.join(where)}")
            expected[name] = new
    print(f"{len(CALLS) - wrong} of {len(CALLS)} answers are the same")
    if given.write:
        lines = [f"{json.dumps(name)}: {json.dumps(expected[name])}" for name in CALLS]
        EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        print(wrong, "answers written")
        return 0
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
