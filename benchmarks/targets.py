"""What was asked of the CPU, and whether one run of run.py shows it."""

LARGE, KSD = 16_384, "KSD, unrelated scores"


def judged(results):
    """One row for each line that was asked for: the bound, the figure of this run, met or missed."""
    rows = []
    for d, bound in ((10, 6.0), (128, 30.0)):
        rows.append(_faster(results, d, "pykeops", "relfit numpy", bound))
        for mode in ("", ", symmetric"):
            rows.append(_faster(results, d, f"tiled torch{mode}", "relfit numpy", 1.5))
            rows.append(_faster(results, d, f"tiled torch{mode}, float32", "relfit numpy, single", 1.5))
        rows.append(_faster(results, d, "relfit numpy", "relfit numpy, single", 1.3))
    for models in ("unrelated scores", "Gaussian models"):
        found = _named(results["models"], f"KSD, {models}")
        if found is not None:
            one, ten = found["l = 1 s"], found["l = 10 s"]
            rows.append(_row(f"KSD, {models}: l = 10 over l = 1", ten / one, 2.5, least=False))
            rows.append(_row(f"KSD, {models}: l = 10 over l = 1, as first asked", ten / one, 3.0, least=False))
            rows.append(_row(f"KSD, {models}: ten runs of l = 1 over l = 10", 10 * one / ten, 4.0))
    compared = _named(results["compare"], "`relfit.compare`")
    rows.append(
        _row("`compare`, MMD, ten models, over the bare tile loop", compared["of the bare loop"], 1.5, least=False)
    )
    for name, bound in (("MMD", 9.0), (KSD, 25.0)):
        rows.append(_row(f"{name}: dense NumPy over relfit", _named(results["dense"], name)["ratio"], bound))
    return [row for row in rows if row is not None]


def _faster(results, d, slow, fast, bound):
    times = {row["way"]: row["s"] for row in results["row sums"] if row["d"] == d and row["n"] == LARGE}
    if slow not in times or fast not in times:
        return None
    return _row(f"row sums, d = {d}, n = {LARGE:,}: {slow} over {fast}", times[slow] / times[fast], bound)


def _row(what, figure, bound, least=True):
    met = figure >= bound if least else figure <= bound
    asked = f"{'≥' if least else '≤'} {bound:g}"
    return {"ratio of times": what, "asked": asked, "found": f"{figure:.2f}", "": "met" if met else "missed"}


def _named(rows, start):
    return next((row for row in rows if row["what"].startswith(start)), None)
