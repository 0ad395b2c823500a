"""RelMulti: what fraction of the rows should select, and what its automatic correction gains.

Writes docs/evidence/relmulti.md.

python -m studies.select_fraction [--trials 500] [--workers 2]
"""

from relfit import compare
from relfit.paper.experiment import rate, relmulti
from relfit.paper.problems import candidates, mean_shift_l10, rbm_l7
from studies.problems import graded
from studies.study import Part, Study, declared, error_rates, main, table, write_page

FRACTIONS, CORRECTIONS = (0.1, 0.25, 0.5), ("by", "auto")
PROBLEMS = {"meanshift-l10": mean_shift_l10, "graded": graded, "rbm-l7": lambda: rbm_l7(0.18)}


def cells():
    """Problems with one worse model and with many, by both measures."""
    return [
        {"problem": "meanshift-l10", "measure": "mmd", "n": 200},
        {"problem": "meanshift-l10", "measure": "mmd", "n": 500},
        {"problem": "meanshift-l10", "measure": "ksd", "n": 200},
        {"problem": "graded", "measure": "mmd", "n": 500},
        {"problem": "rbm-l7", "measure": "ksd", "n": 500},
    ]


def trial(setting, seed):
    """The model selected, the models declared worse and the correction used, for every fraction and correction."""
    reference, models = candidates(PROBLEMS[setting["problem"]](), setting["measure"], setting["n"], seed)
    out = {}
    for fraction in FRACTIONS:
        for correction in CORRECTIONS if fraction == 0.25 else CORRECTIONS[:1]:
            result = compare(reference, models, rng=seed, progress=False, **relmulti(fraction, correction))
            worse = declared(result.names, result.worse)
            out[f"{fraction} {correction}"] = {"best": result.best, "worse": worse, "used": result.correction}
    return out


def fraction_rows(setting, results):
    """A row per fraction: power, false discoveries, and how often a best model was selected."""
    problem = PROBLEMS[setting["problem"]]()
    out = []
    for fraction in FRACTIONS:
        verdicts = [result[f"{fraction} by"] for result in results]
        rates = error_rates(problem, [verdict["worse"] for verdict in verdicts])
        selected = rate([verdict["best"] in problem.best for verdict in verdicts])
        row = {**setting, "select_fraction": f"{fraction:g}"}
        out.append({**row, "TPR": rates["TPR"], "FDR": rates["FDR"], "selected": selected})
    return out


def correction_rows(setting, results):
    """A row per correction, with a quarter of the rows: power, false discoveries, and how often BH was used."""
    out = []
    for correction in CORRECTIONS:
        verdicts = [result[f"0.25 {correction}"] for result in results]
        rates = error_rates(PROBLEMS[setting["problem"]](), [verdict["worse"] for verdict in verdicts])
        used = sum(verdict["used"] == "bh" for verdict in verdicts) / len(verdicts)
        row = {**setting, "correction": correction}
        out.append({**row, "TPR": rates["TPR"], "FDR": rates["FDR"], "BH used": used})
    return out


def write(docs, results):
    """The page."""
    cells_done = results["select_fraction"]
    write_page(
        docs,
        "relmulti.md",
        trials=min(len(trials) for _, trials in cells_done),
        fractions=table(fraction_rows, cells_done),
        corrections=table(correction_rows, cells_done),
    )
    return True


STUDY = Study({"select_fraction": Part("select-fraction", cells, trial, 500)}, "coverage.sqlite", "1", write)

if __name__ == "__main__":
    main(STUDY, __doc__)
