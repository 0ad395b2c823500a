"""How far the answer can be trusted: what was looked at, what was found, in sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relfit.check import check_score
from relfit.diagnostics import NEAR_DEGENERATE
from relfit.errors import RelfitError
from relfit.evidence import Recalled, Sensitivity, separated_groups
from relfit.inputs.overlap import fingerprint
from relfit.models import Density
from relfit.report import words
from relfit.result import Comparison

_SHARED_NOTE = "also occur in the reference"
# Rows at which derivatives of a density are checked for the report.
_SCORE_ROWS = 40
_DENSITY_MEASURES = ("ksd", "fssd")


@dataclass(frozen=True)
class Check:
    """One thing looked at. `state`: "good" (nothing found), "mind" (the reader should know) or "plain" (a fact)."""

    title: str
    state: str
    sentences: tuple[str, ...]


def checks(comparison: Comparison, recalled: Recalled | None, sensitivity: Sensitivity | None) -> list[Check]:
    """Everything that was looked at, in the order of the page."""
    found = [
        _kernel(comparison),
        _sensitivity(comparison, recalled, sensitivity),
        _degeneracy(comparison),
        _shared_rows(comparison, recalled),
        _weights(comparison, recalled),
        _scores(comparison, recalled),
        _randomised(comparison),
    ]
    return [check for check in found if check is not None]


def _kernel(comparison: Comparison) -> Check | None:
    described = words.kernel_words(comparison)
    if described is None:
        return None
    how = {
        "median": "Its bandwidth is the median distance between rows, the usual choice and not always a good one.",
        "given": "It was given, not chosen by these data.",
        "selected": "It was chosen on rows of its own, for telling these models apart; the test did not use them.",
    }.get(comparison.bandwidth_rule or "", "")
    decides = "It decides which differences count, and so which model is the best."
    return Check("Kernel", "plain", tuple(part for part in (f"{described}.", how, decides) if part))


def _sensitivity(comparison: Comparison, recalled: Recalled | None, found: Sensitivity | None) -> Check | None:
    title = "Another bandwidth"
    if comparison.kernel is None:
        return None
    if recalled is None:
        return Check(title, "plain", ("Not looked at: the report was made without the data.",))
    if found is None and comparison.groups is not None:
        return Check(title, "plain", ("Not looked at: the rows are in groups, and a result does not hold which.",))
    if found is None:
        return Check(title, "plain", ("Not looked at: this kernel has no bandwidth, or was used at locations.",))
    if found.stable:
        return Check(
            title, "good", ("The best model and every verdict are the same at half and at twice the bandwidth.",)
        )
    changed = [name for name in comparison.names if len(set(_near(found, name))) > 1]
    return Check(title, "mind", (f"At half or twice the bandwidth the verdict on {words.listed(changed)} is another.",))


def _near(found: Sensitivity, name: str) -> list[str]:
    return [kind for factor, kind in zip(found.factors, found.kinds(name), strict=True) if 0.5 <= factor <= 2.0]


def _degeneracy(comparison: Comparison) -> Check | None:
    share = comparison.near_degeneracy
    if share is None:
        return None
    close = [name for name, part in zip(comparison.names, share, strict=True) if part > NEAR_DEGENERATE]
    title = "Models very close to the data"
    if not close:
        largest = f"{100 * float(share.max()):.0f}%"
        text = f"None: second-order noise makes up at most {largest} of a variance, and the normal approximation holds."
        return Check(title, "good", (text,))
    many = len(close) > 1
    text = (
        f"{words.listed(close)} {'are' if many else 'is'} so close to the data that the usual approximation is "
        "cautious there: false alarms are rarer than stated, but real differences may be missed."
    )
    return Check(title, "mind", (text,))


def _shared_rows(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if comparison.measure not in ("mmd", "ume", "nystroem") or (comparison.sizes or (1,))[0] == 0:
        return None
    title = "Rows shared with the reference"
    notes = [words.visible(note) for note in comparison.warnings if _SHARED_NOTE in note]
    if notes:
        return Check(title, "mind", tuple(f"{note[0].upper()}{note[1:]}." for note in notes))
    if recalled is not None and fingerprint(recalled.data.reference).atoms:
        return Check(title, "plain", ("Rows repeat so often in these data that rows in common say nothing.",))
    return Check(title, "good", ("None were found.",))


def _weights(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if comparison.measure not in _DENSITY_MEASURES:
        return None
    blind = (
        "KSD sees the slope of the log density. Where the data fall into groups far apart, it hardly notices how much "
        "weight a model gives each of them."
    )
    title = "Separate groups in the data"
    if recalled is None:
        return Check(title, "mind", (blind,))
    rows = recalled.reference if recalled.data.target is None else recalled.sample(next(iter(recalled.data.samples)))
    apart = separated_groups(rows)
    if apart is None:
        return Check(title, "good", ("No groups far apart were found in the data.", blind))
    small, large = (f"{100 * share:.0f}%" for share in apart.shares)
    seen = (
        f"The data fall into groups: {small} and {large} of the rows lie {apart.gap / apart.step:.0f} times further "
        "apart than neighbours do. Compare the groups' weights by other means."
    )
    return Check(title, "mind", (seen, blind))


def _scores(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if comparison.measure not in _DENSITY_MEASURES:
        return None
    title = "Score check"
    if recalled is None:
        return Check(title, "plain", ("Not looked at: the report was made without the data.",))
    said: dict[str, list[str]] = {}
    good = True
    for name, density, rows in _densities(recalled):
        fine, message = _score_message(density, rows)
        good = good and fine
        said.setdefault(message, []).append(name)
    own = recalled.data.target is None
    sentences = [
        f"{words.listed(names) if own else 'The target'}: {words.visible(message)}." for message, names in said.items()
    ]
    return Check(title, "good" if good else "mind", tuple(sentences))


def _densities(recalled: Recalled) -> list[tuple[str, Density, Any]]:
    data = recalled.data
    if data.target is not None:
        return [("the target", data.target, recalled.sample(next(iter(data.samples))))]
    return [(name, density, recalled.reference) for name, density in data.densities.items()]


def _score_message(density: Density, rows: Any) -> tuple[bool, str]:
    try:
        found = check_score(density, rows, max_rows=_SCORE_ROWS)
    except RelfitError as error:
        return False, f"could not be checked ({error})"
    return found.ok, "; ".join(found.messages)


def _randomised(comparison: Comparison) -> Check | None:
    if not comparison.randomised:
        return None
    text = f"The choice of the best is randomised: another seed than {comparison.seed} may choose another model."
    return Check("Random choice", "mind", (text,))
