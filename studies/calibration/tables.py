"""Simulated rates as tables: a line per setting, a column per procedure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relfit.paper.experiment import markdown_table
from studies.calibration.levels import KEYS
from studies.calibration.pictures import name_of
from studies.calibration.power import TESTS
from studies.calibration.verdicts import CLAIMS

Row = Mapping[str, Any]


def level_table(rows: Sequence[Row]) -> str:
    """The rate each procedure claims to hold, per setting; one that exceeds its level in bold with a cross."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[k] for k in KEYS)
        line = lines.setdefault(key, {**{k: row[k] for k in KEYS}, "trials": row["trials"]})
        line[f"{name_of(row['test'])}: {row['claim']}"] = row["error"] if row["kept"] else _failed(row["error"])
    return markdown_table(list(lines.values()))


def _failed(pair: tuple[float, float]) -> str:
    return f"**{pair[0]:.3f} ± {pair[1]:.3f}** ✗"


def power_table(columns: Mapping[str, Sequence[Row]], rate: str) -> str:
    """One rate of every procedure (lines) on every problem (columns)."""
    lines: list[dict[str, Any]] = []
    for test in TESTS:
        line: dict[str, Any] = {"procedure": name_of(test)}
        for column, rows in columns.items():
            line[column] = next(row[rate] for row in rows if row["test"] == test)
        lines.append(line)
    return markdown_table(lines)


def level_csv(rows: Iterable[Row]) -> str:
    """Every rate of every procedure in every setting."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rates = ("FPR", "FDR", "FWER", "TPR")
    writer.writerow(
        [
            *KEYS,
            "test",
            "controls",
            "trials",
            *(f"{r}{end}" for r in rates for end in ("", " s.e.")),
            "worst model FPR",
            "level",
        ]
    )
    for row in rows:
        pairs = [row[r] if row[r] is not None else ("", "") for r in rates]
        numbers = [f"{value:.5f}" if value != "" else "" for pair in pairs for value in pair]
        level = "kept" if row["kept"] else "EXCEEDED"
        head = [row[k] for k in KEYS]
        writer.writerow([*head, row["test"], row["claim"], row["trials"], *numbers, f"{row['worst model']:.5f}", level])
    return text.getvalue()


def verdict(rows: Sequence[Row]) -> str:
    """How many levels are kept, by procedure."""
    parts = []
    for test in CLAIMS:
        own = [row["kept"] for row in rows if row["test"] == test]
        parts.append(f"{name_of(test)} {sum(own)} of {len(own)}")
    return ", ".join(parts)
