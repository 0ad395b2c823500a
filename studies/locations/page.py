"""docs/evidence/locations.md: how UME and FSSD are used, and what was measured."""

from relfit.paper.experiment import rate
from studies.estimators import memory
from studies.locations import levels, power, truth
from studies.study import rows_of, table, write_page


def write(docs, results):
    """The page, from the results of every part."""
    level = [*results["levels"], *results["levels, optimised"]]
    write_page(
        docs,
        "locations.md",
        truth=table(truth.rows, results["truth"]),
        truth_words=_truth_words(rows_of(truth.rows, results["truth"])),
        levels=table(levels.rows, level),
        level_words=_level_words(rows_of(levels.rows, [*level, *results["many rows"]])),
        many_rows=table(levels.rows, results["many rows"]),
        power=table(power.rows, results["power"]),
        optimised=_optimised_words(results["power"]),
        memory=table(memory.rows, results["memory"]),
        memory_words=_memory_words(results["memory"]),
        memory_rows=f"{memory.ROWS:,}",
        memory_columns=memory.COLUMNS,
        memory_models=memory.MODELS,
    )
    return True


def _truth_words(rows):
    """Whether the two goals hold: no bias, and a variance that is not too small."""
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


def _level_words(rows):
    kept = [row for row in rows if row["level"] == "kept"]
    exceeded = [
        f"{row['discrepancy']} on {row['problem']}, n = {row['n']}, {row['test']}: {_rate(row[levels.FPR])}"
        for row in rows
        if row["level"] != "kept"
    ]
    words = f"{len(kept)} of {len(rows)} rows here and in the next table keep their level"
    return f"{words}." if not exceeded else f"{words}; not: {'; '.join(exceeded)}."


def _optimised_words(results):
    parts = []
    for setting, trials in results:
        worse = power.PROBLEMS[setting["problem"]]().worse
        drawn, optimised = (
            rate([len(set(trial[form]["best-set"]) & worse) / len(worse) for trial in trials])
            for form in ("10 drawn", "10 optimised")
        )
        if abs(optimised[0] - drawn[0]) > 3.0 * (drawn[1] ** 2 + optimised[1] ** 2) ** 0.5:
            name = power.AT_LOCATIONS[setting["measure"]].__name__
            width = "" if setting["bandwidth"] is None else f", bandwidth {setting['bandwidth']:g}"
            where = f"{name} on {setting['problem']}, n = {setting['n']}{width}"
            parts.append(f"{where}: {_rate(drawn)} drawn, {_rate(optimised)} optimised")
    return "; ".join(parts) or "none"


def _memory_words(results):
    most = max(trial["megabytes"] for _, trials in results for trial in trials)
    return f"The largest peak is {most:.0f} MB; the goal was less than {memory.ALLOWED:.0f} MB."


def _rate(value):
    return f"{value[0]:.3f} ± {value[1]:.3f}"
