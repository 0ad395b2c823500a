"""The pages under docs/calibration/, written from stored trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relfit.paper.experiment import markdown_table
from relfit.util.files import write_text_atomic
from studies.calibration import averaging, corrected, levels, negative, order, power, variance
from studies.calibration.pictures import cell_name, draw_levels, draw_power, name_of, save
from studies.calibration.tables import level_csv, level_table, power_table, verdict
from studies.calibration.verdicts import CLAIMS, Setting
from studies.calibration.words import CORRECTED, INDEX, LAWS, LEVELS, POWER, REMARKS

Found = Sequence[tuple[Setting, Sequence[Any]]]
"""Every setting of a part with its finished trials."""

MEASURES = {"mmd": "MMD", "ksd": "KSD"}


def level_rows(found: Found) -> list[dict[str, Any]]:
    """The rates of every procedure in every setting."""
    return [row for setting, results in found for row in levels.rows(setting, results)]


def write_levels(folder: Path, rows: Sequence[dict[str, Any]], found: Found, ksd_variance: Found) -> None:
    """index.md, levels.md, levels.csv and the pictures of the levels."""
    for measure, name in MEASURES.items():
        own = [row for row in rows if row["measure"] == measure]
        save(draw_levels(own, f"{name}: simulated error rates"), folder / f"levels-{measure}.png")
    parts = {
        f"{MEASURES[measure]}, {estimator} estimator": [
            row for row in rows if (row["measure"], row["estimator"]) == (measure, estimator)
        ]
        for estimator in dict.fromkeys(row["estimator"] for row in rows)
        for measure in MEASURES
    }
    tables = "\n".join(f"## {title}\n\n{level_table(own)}" for title, own in parts.items() if own)
    write_text_atomic(folder / "levels.md", LEVELS.format(tables=tables))
    write_text_atomic(folder / "levels.csv", level_csv(rows))
    text = INDEX.format(
        trials=str(min(row["trials"] for row in rows)),
        settings=str(len(found)),
        verdict=verdict(rows),
        failing=failing(rows),
        remarks=REMARKS,
        variance=markdown_table([variance.row(dict(setting), results) for setting, results in ksd_variance]),
    )
    write_text_atomic(folder / "index.md", text)


def failing(rows: Sequence[dict[str, Any]]) -> str:
    """Every rate above its bound, with what `compare` says at run time in that setting."""
    failed = [row for row in rows if not row["kept"]]
    if not failed:
        return "None.\n"
    return markdown_table(
        [
            {
                "setting": cell_name(row),
                "measure": row["measure"],
                "procedure": name_of(row["test"]),
                "rate": row["claim"],
                "error": row["error"],
                "worst model": row["worst model"],
                "said at run time": _said(row),
            }
            for row in failed
        ]
    )


def _said(row: Mapping[str, Any]) -> str:
    return "; ".join(levels.warnings({key: row[key] for key in levels.KEYS}, row["test"])) or "nothing"


def write_power(folder: Path, found: Found, levels_found: Found) -> None:
    """power.md and its pictures; most procedures were run with the levels."""
    others = {tuple(setting.values()): results for setting, results in levels_found}
    columns: dict[str, dict[str, list[dict[str, Any]]]] = {measure: {} for measure in MEASURES}
    for setting, results in found:
        rows = power.rows(setting, others[tuple(setting.values())], results)
        columns[setting["measure"]][f"{setting['problem']}, n = {setting['n']}"] = rows
    tables = {}
    for measure, name in MEASURES.items():
        save(draw_power(columns[measure], f"{name}: power"), folder / f"power-{measure}.png")
        for rate in ("TPR", "FPR", "FDR"):
            tables[f"{measure}_{rate}"] = power_table(columns[measure], rate)
    every = [row["trials"] for kind in columns.values() for rows in kind.values() for row in rows]
    write_text_atomic(folder / "power.md", POWER.format(most=max(every), fewest=min(every), **tables))


def write_laws(folder: Path, orders: Found, negatives: Found, averaged: Found, levels_found: Found) -> None:
    """laws.md: order of the models, copies, negative correlation, averaged carving."""
    text = LAWS.format(
        order=markdown_table([order.row(setting, results) for setting, results in orders]),
        copies=markdown_table(copy_rows(levels_found)),
        negative=markdown_table([row for setting, results in negatives for row in negative.rows(setting, results)]),
        averaging=markdown_table([row for setting, results in averaged for row in averaging.rows(setting, results)]),
    )
    write_text_atomic(folder / "laws.md", text)


def write_corrected(folder: Path, found: Found) -> None:
    """corrected.md: the best set with each variance."""
    table = markdown_table([row for setting, results in found for row in corrected.rows(setting, results)])
    write_text_atomic(folder / "corrected.md", CORRECTED.format(table=table))


def copy_rows(found: Found) -> list[dict[str, Any]]:
    """The settings with a copy, paired seed by seed with the same setting without it."""
    plain = {
        (setting["measure"], setting["n"]): results
        for setting, results in found
        if setting["problem"] == "meanshift-l10" and setting["estimator"] == "complete"
    }
    return [
        row
        for setting, results in found
        if setting["problem"] in ("copy", "near-copy")
        for row in order.copy_rows(setting, plain[setting["measure"], setting["n"]], results, tuple(CLAIMS))
    ]
