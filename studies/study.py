"""What all studies share: the command, the stored trials, and the pages that are made from templates.

A template under studies/ has the path of its page under docs/evidence/: studies/calibration/levels.md makes
docs/evidence/calibration/levels.md. Its placeholders are those of `string.Template`, and $$ stands for a dollar sign.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from relfit.cli.workers import cluster_client
from relfit.estimators import ESTIMATORS
from relfit.estimators.base import Complete
from relfit.paper.experiment import markdown_table, rate
from relfit.paper.runner import Store, run_trials
from relfit.stats.joint import mixed, positive_part
from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
PAGES = "docs/evidence"
ALPHA = 0.05


class Part(NamedTuple):
    """A question of a study: its name in the store, its settings, the trial, and the trials of each in a full run."""

    experiment: str
    settings: Callable[[], list[dict[str, Any]]]
    trial: Callable[[dict[str, Any], int], Mapping[str, Any]]
    trials: int


@dataclass(frozen=True)
class Study:
    """The parts by name, the file and version of their stored trials, and a function that writes the pages.

    `write(docs, results)` gets the folder of the pages and, for every part, a list of (setting, results); it returns
    True if all that should hold does. Raise `version` when a change of the code changes results: stored trials of
    another version are left alone. The trials of a `timed` study measure seconds: they run one at a time, in this
    process.
    """

    parts: Mapping[str, Part]
    store: str
    version: str
    write: Callable[[Path, Mapping[str, Any]], bool]
    timed: bool = False

    @property
    def trials(self):
        """Trials per setting of the part that has most of them."""
        return max(part.trials for part in self.parts.values())


def main(study, description, arguments=None):
    """Run the command of a study, and exit with status 1 if something that should hold does not."""
    asked = _parser(study, description).parse_args(arguments)
    with ExitStack() as stack:
        store = stack.enter_context(Store(asked.store, version=study.version))
        executor = ThreadPoolExecutor(1) if study.timed else cluster_client(asked.cluster)
        options = {"executor": stack.enter_context(executor), "workers": None if study.timed else asked.workers}
        results = {}
        for name in asked.only or study.parts:
            part = study.parts[name]
            if not asked.stored:
                _run(store, part, asked.trials / study.trials, options)
            stored = [(setting, store.results(part.experiment, setting)) for setting in part.settings()]
            results[name] = [(setting, trials) for setting, trials in stored if trials]
    if not asked.only:
        holds = study.write(Path(asked.docs), results)
        print(f"Written to {asked.docs}.")
        sys.exit(0 if holds else 1)


def _parser(study, description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    count = f"per setting, in the part that has most of them; the others in proportion (default {study.trials})"
    parser.add_argument("--trials", type=int, default=study.trials, metavar="N", help=f"trials {count}")
    parser.add_argument("--only", choices=study.parts, action="append", help="run these parts, and write no page")
    parser.add_argument("--stored", action="store_true", help="run nothing: write the page from the stored trials")
    parser.add_argument("--store", default=str(ROOT / study.store), help=f"finished trials (default {study.store})")
    parser.add_argument("--docs", default=str(ROOT / PAGES), help=f"folder of the pages (default {PAGES})")
    if not study.timed:
        parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core)")
        parser.add_argument("--cluster", metavar="ADDRESS", help="address of a Dask scheduler, instead of processes")
    return parser


def _run(store, part, fraction, options):
    """Run what is missing: a tenth of the trials of every setting first, so that a fault is seen early."""
    trials = max(2, round(fraction * part.trials))
    for count in (max(2, trials // 10), trials):
        run_trials(store, part.experiment, part.settings(), count, part.trial, **options)


def unadjusted(test):
    """The correction of the studies of false positive rates: none for the best set, and every other test's default."""
    return "none" if test == "best-set" else None


def write_page(docs, name, **values):
    """Fill in the template of this name, and write the page."""
    page = docs / name
    page.parent.mkdir(parents=True, exist_ok=True)
    template = Template((ROOT / "studies" / name).read_text(encoding="utf-8"))
    write_text_atomic(page, template.substitute(values).rstrip("\n") + "\n")


def table(rows, results):
    """The Markdown table of a part, from a function that makes the rows of one setting."""
    return markdown_table(rows_of(rows, results))


def rows_of(rows, results):
    """The rows of every setting of a part, in one list."""
    return [row for setting, trials in results for row in rows(setting, trials)]


def corrected(joint):
    """V with its second-order part S2 counted once, PSD₊(V − 2S2) + S2; V itself where S2 is not known."""
    v, second = joint.covariance, joint.second_order
    return v if second is None else second + positive_part(v - 2.0 * second, mixed(second, v))


def estimator_options(estimator="complete", **fields):
    """The options of `compare` for an estimator with its own settings: `pairs`, `blocks` or `variance`."""
    return {"estimator": ESTIMATORS[estimator](**fields)}


# The complete estimates of pages written before the law with both parts became the default of the best set.
PLAIN = Complete(variance="projection")


def declared(names, worse):
    """The names of the models that are declared worse."""
    return [name for name, is_worse in zip(names, worse, strict=True) if is_worse]


def error_rates(problem, declared_worse):
    """FPR, FDR, FWER and TPR over trials, from the models declared worse in each; TPR is "" where none is worse."""
    best, worse = problem.best, problem.worse
    declared_worse = [set(names) for names in declared_worse]
    return {
        "FPR": rate([len(d & best) / len(best) for d in declared_worse]),
        "FDR": rate([len(d & best) / max(1, len(d)) for d in declared_worse]),
        "FWER": rate([float(bool(d & best)) for d in declared_worse]),
        "TPR": rate([len(d & worse) / len(worse) for d in declared_worse]) if worse else "",
    }


def level(error):
    """The word kept if the error rate is at most α + 3 of its standard errors, otherwise EXCEEDED."""
    return "kept" if error[0] <= ALPHA + 3.0 * error[1] else "EXCEEDED"
