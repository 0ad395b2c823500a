"""docs/locations.md: how UME, Nyström and FSSD are used, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relfit.paper.experiment import markdown_table, rate
from studies.estimators import memory
from studies.locations import levels, power, truth
from studies.locations.words import TEXT

Found = Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]
Rows = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], list[dict[str, Any]]]


def text(found: Mapping[str, Found]) -> str:
    """The page, from the results of every part."""
    level = [*found["levels"], *found["levels, optimised"]]
    return TEXT.format(
        truth=_table(truth.rows, found["truth"]),
        truth_words=_truth_words(_rows(truth.rows, found["truth"])),
        levels=_table(levels.rows, level),
        level_words=_level_words(_rows(levels.rows, [*level, *found["many rows"]])),
        many_rows=_table(levels.rows, found["many rows"]),
        power=_table(power.rows, found["power"]),
        optimised=_optimised_words(found["power"]),
        memory=_table(memory.rows, found["memory"]),
        memory_words=_memory_words(found["memory"]),
        memory_rows=f"{memory.ROWS:,}",
        memory_columns=memory.COLUMNS,
        memory_models=memory.MODELS,
    )


def _rows(rows: Rows, found: Found) -> list[dict[str, Any]]:
    return [row for setting, results in found for row in rows(setting, results)]


def _table(rows: Rows, found: Found) -> str:
    return markdown_table(_rows(rows, found))


def _truth_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which of the goals hold: no bias, and a variance that is not too small."""
    ratios = [row["D₁, truth = 1"] for row in rows if isinstance(row["D₁, truth = 1"], tuple)]
    farthest = max(abs(mean - 1.0) / error for mean, error in ratios)
    fssd = [row["projection / truth"][0] for row in rows if row["discrepancy"] == "FSSD" and row["of"] != "D₁"]
    ume = [row for row in rows if row["discrepancy"] == "UME" and row["of"] != "D₁"]
    least, most = (f(row["projection / truth"][0] for row in ume) for f in (min, max))
    corrected = [row["corrected / truth"][0] for row in ume if row["corrected / truth"]]
    return (
        f"No bias: the largest distance of a mean from the truth is {farthest:.1f} of its standard errors, among "
        f"{len(ratios)} rows. FSSD's variance is right to {max(abs(r - 1.0) for r in fssd):.1%}. UME's is {least:.2f} "
        f"to {most:.2f} times the truth, never too small: at these sizes much of it is of second order, which V holds "
        f"twice; the second-order correction leaves {min(corrected):.2f} to {max(corrected):.2f}, so relfit does not "
        "offer it here."
    )


def _level_words(rows: Sequence[Mapping[str, Any]]) -> str:
    kept = [row for row in rows if row["level"] == "kept"]
    missed = [
        f"{row['discrepancy']} on {row['problem']}, n = {row['n']}, {row['test']}: {_rate(row[levels.FPR])}"
        for row in rows
        if row["level"] != "kept"
    ]
    said = f"{len(kept)} of {len(rows)} rows here and in the next table keep their level"
    return f"{said}." if not missed else f"{said}; not: {'; '.join(missed)}."


def _optimised_words(found: Found) -> str:
    said = []
    for setting, results in found:
        best = power.problem_of(setting).best(setting["measure"]) or frozenset()
        worse = len(power.problem_of(setting).models) - len(best)
        drawn, chosen = (
            rate([len(set(result[form]["best-set"]) - best) / worse for result in results])
            for form in ("10 drawn", "10 optimised")
        )
        if abs(chosen[0] - drawn[0]) > 3.0 * (drawn[1] ** 2 + chosen[1] ** 2) ** 0.5:
            name = {"mmd": "UME", "ksd": "FSSD"}[setting["measure"]]
            width = "" if setting["bandwidth"] is None else f", bandwidth {setting['bandwidth']:g}"
            said.append(
                f"{name} on {setting['problem']}, n = {setting['n']}{width}: {_rate(drawn)} drawn, {_rate(chosen)} "
                "optimised"
            )
    return "; ".join(said) or "none"


def _memory_words(found: Found) -> str:
    most = max(result["megabytes"] for _, results in found for result in results)
    return f"The largest peak is {most:.0f} MB; the goal was less than {memory.ALLOWED:.0f} MB."


def _rate(value: tuple[float, float]) -> str:
    return f"{value[0]:.3f} ± {value[1]:.3f}"
