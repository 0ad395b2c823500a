"""The pages under docs/evidence/calibration/: tables and pictures of the simulated rates."""

import csv
import io

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from relfit.paper.experiment import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PINK,
    REACH,
    RED,
    SKY,
    add_legend,
    dress,
    markdown_table,
)
from relfit.util.files import write_text_atomic
from studies.calibration import levels, negative, order, power, variance, variants
from studies.calibration.verdicts import CLAIMS
from studies.study import ALPHA, rows_of, table, write_page

MEASURES = {"mmd": "MMD", "ksd": "KSD"}
SHORT = {"relpsi": "RelPSI", "relmulti": "RelMulti", "best-set": "best set", "carve": "carving"}
LOOKS = {
    "relpsi": (ORANGE, "o"),
    "carve": (SKY, "D"),
    "best-set": (GREEN, "s"),
    "relmulti": (BLUE, "^"),
    "best-set BY": (PINK, "v"),
}
ROW_HEIGHT = 0.19
LARGEST = 0.14


def write(docs, results):
    """Every page; True if every level is kept."""
    rows = rows_of(levels.rows, results["levels"])
    write_levels(docs, rows, results)
    write_power(docs, results["power"], results["levels"])
    write_page(
        docs,
        "calibration/laws.md",
        order=markdown_table([order.row(setting, trials) for setting, trials in results["order"]]),
        copies=markdown_table(copy_rows(results["levels"])),
        negative=table(negative.rows, results["negative"]),
        averaging=table(variants.averaging_rows, results["averaging"]),
    )
    failed = sum(not row["kept"] for row in rows)
    print(f"{len(rows) - failed} of {len(rows)} levels kept.")
    return not failed


def write_levels(docs, rows, results):
    """index.md, levels.md, levels.csv and the pictures of the levels."""
    for measure, name in MEASURES.items():
        figure = draw_levels([row for row in rows if row["measure"] == measure], f"{name}: simulated error rates")
        save(figure, docs / "calibration" / f"levels-{measure}.png")
    parts = {
        f"{MEASURES[measure]}, {estimator} estimator": [
            row for row in rows if (row["measure"], row["estimator"]) == (measure, estimator)
        ]
        for estimator in dict.fromkeys(row["estimator"] for row in rows)
        for measure in MEASURES
    }
    tables = "\n".join(f"## {title}\n\n{level_table(part)}" for title, part in parts.items() if part)
    write_page(docs, "calibration/levels.md", tables=tables)
    write_text_atomic(docs / "calibration" / "levels.csv", level_csv(rows))
    write_page(
        docs,
        "calibration/index.md",
        trials=min(row["trials"] for row in rows),
        settings=len(results["levels"]),
        verdict=verdict(rows),
        failing=failing(rows),
        variance=markdown_table([variance.row(setting, trials) for setting, trials in results["variance"]]),
    )


def write_power(docs, splits, level_results):
    """power.md and its pictures; most procedures were run with the levels."""
    others = {tuple(setting.values()): trials for setting, trials in level_results}
    columns = {measure: {} for measure in MEASURES}
    for setting, trials in splits:
        rows = power.rows(setting, others[tuple(setting.values())], trials)
        columns[setting["measure"]][f"{setting['problem']}, n = {setting['n']}"] = rows
    tables = {}
    for measure, name in MEASURES.items():
        save(draw_power(columns[measure], f"{name}: power"), docs / "calibration" / f"power-{measure}.png")
        for rate in ("TPR", "FPR", "FDR"):
            tables[f"{measure}_{rate}"] = power_table(columns[measure], rate)
    trials = [row["trials"] for kind in columns.values() for rows in kind.values() for row in rows]
    write_page(docs, "calibration/power.md", most=max(trials), fewest=min(trials), **tables)


def copy_rows(level_results):
    """The settings with a copy, paired seed by seed with the same setting without it."""
    plain = {
        (setting["measure"], setting["n"]): trials
        for setting, trials in level_results
        if setting["problem"] == "meanshift-l10" and setting["estimator"] == "complete"
    }
    return [
        row
        for setting, trials in level_results
        if setting["problem"] in ("copy", "near-copy")
        for row in order.copy_rows(setting, plain[setting["measure"], setting["n"]], trials, tuple(CLAIMS))
    ]


def name_of(test):
    """A procedure as tables and pictures call it: "best-set BY" is "best set + BY"."""
    first, *rest = test.split(" ", 1)
    name = SHORT.get(first, first)
    joint = " + " if rest and rest[0] in ("BY", "Holm") else " "
    return name + (joint + rest[0] if rest else "")


def cell_name(row):
    """A setting in one line."""
    estimator = "" if row["estimator"] == "complete" else f", {row['estimator']}"
    return f"{row['problem']}, n = {row['n']}{estimator}"


def level_table(rows):
    """The rate each procedure claims to hold, per setting; one that exceeds its level in bold with a cross."""
    lines = {}
    for row in rows:
        key = tuple(row[k] for k in levels.KEYS)
        line = lines.setdefault(key, {**{k: row[k] for k in levels.KEYS}, "trials": row["trials"]})
        error = row["error"] if row["kept"] else f"**{row['error'][0]:.3f} ± {row['error'][1]:.3f}** ✗"
        line[f"{name_of(row['test'])}: {row['claim']}"] = error
    return markdown_table(list(lines.values()))


def power_table(columns, rate):
    """One rate of every procedure (lines) on every problem (columns)."""
    return markdown_table(
        [
            {"procedure": name_of(test)}
            | {column: next(row[rate] for row in rows if row["test"] == test) for column, rows in columns.items()}
            for test in power.TESTS
        ]
    )


def level_csv(rows):
    """Every rate of every procedure in every setting."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rates = ("FPR", "FDR", "FWER", "TPR")
    columns = [f"{r}{end}" for r in rates for end in ("", " s.e.")]
    writer.writerow([*levels.KEYS, "test", "controls", "trials", *columns, "worst model FPR", "level"])
    for row in rows:
        numbers = [f"{value:.5f}" if row[r] else "" for r in rates for value in row[r] or ("", "")]
        level = "kept" if row["kept"] else "EXCEEDED"
        head = [row[k] for k in (*levels.KEYS, "test", "claim", "trials")]
        writer.writerow([*head, *numbers, f"{row['worst model']:.5f}", level])
    return text.getvalue()


def verdict(rows):
    """How many levels are kept, by procedure."""
    parts = []
    for test in CLAIMS:
        kept = [row["kept"] for row in rows if row["test"] == test]
        parts.append(f"{name_of(test)} {sum(kept)} of {len(kept)}")
    return ", ".join(parts)


def failing(rows):
    """Every rate above its bound, with what `compare` says at run time in that setting."""
    lines = [
        {
            "setting": cell_name(row),
            "measure": row["measure"],
            "procedure": name_of(row["test"]),
            "rate": row["claim"],
            "error": row["error"],
            "worst model": row["worst model"],
            "said at run time": "; ".join(levels.warnings(row, row["test"])) or "nothing",
        }
        for row in rows
        if not row["kept"]
    ]
    return markdown_table(lines) if lines else "None.\n"


def draw_levels(rows, title):
    """A panel per procedure, a line per setting: the claimed error rate, ±1.96 s.e., and its bound α + 3 s.e."""
    cells = list(dict.fromkeys(cell_name(row) for row in rows))
    figure = Figure(figsize=(13.0, 1.6 + ROW_HEIGHT * len(cells)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(CLAIMS), sharey=True)
    for ax, (test, claim) in zip(axes, CLAIMS.items(), strict=True):
        by_cell = {cell_name(row): row for row in rows if row["test"] == test}
        _level_panel(ax, [by_cell[cell] for cell in cells])
        dress(ax, name_of(test), claim, "")
        ax.set_xlim(-0.004, LARGEST)
        ax.set_xticks([0.0, 0.05, 0.1])
    axes[0].set_yticks(np.arange(len(cells)), cells, fontsize="small")
    axes[0].set_ylim(len(cells) - 0.4, -0.6)
    figure.suptitle(title, color=INK, fontsize="medium")
    add_legend(figure, axes[0], 4)
    return figure


def _level_panel(ax, rows):
    place = np.arange(len(rows))
    value, error = np.array([row["error"] for row in rows], dtype=float).T
    kept = np.array([row["kept"] for row in rows])
    shown = np.minimum(value, LARGEST)
    ax.axvline(ALPHA, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0, label=f"α = {ALPHA:g}")
    ax.scatter(ALPHA + 3.0 * error, place, marker="|", s=30, color=FAINT, linewidths=1.0, label="α + 3 s.e.")
    ax.errorbar(shown, place, xerr=REACH * error, fmt="none", ecolor=FAINT, elinewidth=0.9)
    ax.scatter(shown[kept], place[kept], s=16, marker="o", color=BLUE, zorder=3, label="kept, ±1.96 s.e.")
    ax.scatter(shown[~kept], place[~kept], s=34, marker="X", color=RED, zorder=4, label="exceeded")


def draw_power(columns, title):
    """A line per problem, a marker per procedure: the fraction of the worse models found, ±1.96 s.e."""
    figure = Figure(figsize=(8.5, 1.7 + 0.62 * len(columns)), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    for k, (test, (colour, marker)) in enumerate(LOOKS.items()):
        pairs = [next(row["TPR"] for row in rows if row["test"] == test) for rows in columns.values()]
        value, error = np.array(pairs, dtype=float).T
        place = np.arange(len(columns)) + 0.13 * (k - (len(LOOKS) - 1) / 2.0)
        ax.errorbar(value, place, xerr=REACH * error, fmt=marker, markersize=6, color=colour, label=name_of(test))
    dress(ax, title, "TPR: share of the worse models found", "")
    ax.set_yticks(np.arange(len(columns)), list(columns))
    ax.set_ylim(len(columns) - 0.5, -0.5)
    ax.set_xlim(-0.02, 1.02)
    add_legend(figure, ax, len(LOOKS))
    return figure


def save(figure, path):
    """Write a picture without the drawing library's version in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
