"""Several kernels for one task: one of them chosen on rows of its own, or all of them in one test."""

from __future__ import annotations

from dataclasses import replace

from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Data
from relfit.kernels import Collection
from relfit.measure import choose, choose_locations, hold_out, joint_estimate, without_used_rows
from relfit.procedures import CollectionDecision, Decision, collection_best_set, seeded
from relfit.task import Task

_MOST_BEATEN = 5


def with_kernel_chosen(task: Task) -> Task:
    """The task on the rows that are left once a share of them has chosen the kernel; others are as they were."""
    if task.select is None:
        return task
    held, rest = hold_out(task.data, task.select.share, task.plan)
    return replace(_chosen(task, held, "that were held out from the test"), data=rest)


def with_kernel_chosen_on(task: Task, selection: Data) -> Task:
    """The task with its kernel chosen on the share of the rows that also selects the best model (relmulti)."""
    return task if task.select is None else _chosen(task, selection, "that also selected the best model")


def with_locations_chosen(task: Task, *, leave_out: bool = False) -> Task:
    """The task with the locations of UME or FSSD; `leave_out` removes the rows used up for them from the data now."""
    if task.wanted is None:
        return task
    several = task.select is not None or isinstance(task.plan.kernel, Collection)
    if task.wanted.choose == "optimise" and several:
        raise InputError('choose="optimise": needs one kernel, got several to choose from or to combine; name one')
    data, locations = task.data, choose_locations(task.data, task.wanted, task.plan)
    if leave_out:
        data, locations = without_used_rows(data, locations)
    return replace(task, data=data, plan=replace(task.plan, locations=locations))


def decide_with_all_kernels(
    task: Task, kernels: Collection, test: str, alpha: float, correction: str, margin: float
) -> tuple[Task, JointEstimate, Decision]:
    """The best set under all kernels of a collection at once; notes say under which kernel a model is worse."""
    if test != "best-set" or margin:
        came = f"test={test!r}" if test != "best-set" else f"margin={margin:g}"
        raise InputError(
            f'kernel: several kernels in one test need test="best-set" without a margin, got {came}; '
            'kernel="select" chooses one of them for any test'
        )
    joints = [joint_estimate(task.data, replace(task.plan, kernel=kernel)) for kernel in kernels.kernels]
    source = seeded(task.plan.seed, test)
    joint, decision = collection_best_set(joints, alpha, correction, rng=source)
    return replace(task, notes=(*_collection_notes(kernels, joint, decision), *task.notes)), joint, decision


def _collection_notes(kernels: Collection, joint: JointEstimate, decision: CollectionDecision) -> list[str]:
    count = len(kernels.kernels)
    notes = [
        f"{count} kernels in one test: a model counts as worse where it is worse than another under any of them; the "
        "discrepancies shown are means over the kernels"
    ]
    beaten = [
        f"{name!r} is worse than {joint.names[by]!r} under the {kernels.kernels[under].describe()}"
        for name, by, under in zip(joint.names, decision.beaten_by, decision.beaten_under, strict=True)
        if by is not None and under is not None
    ]
    notes += beaten[:_MOST_BEATEN]
    if len(beaten) > _MOST_BEATEN:
        notes.append(f"{len(beaten) - _MOST_BEATEN} more models are worse under some kernel")
    if decision.contradicted:
        notes.append(
            f"even {joint.names[decision.best]!r}, the best on average, is worse than another model under some kernel: "
            "the kernels disagree about which model is best"
        )
    return notes


def _chosen(task: Task, data: Data, which: str) -> Task:
    choice = choose(data, task.plan, task.candidates, joint_estimate)
    # A target density has no rows.
    sizes = sorted({len(rows) for rows in (data.reference, *data.samples.values()) if len(rows)})
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    note = choice.note(f"{count} rows{' of each sample' if data.samples else ''} {which}")
    return replace(task, plan=replace(task.plan, kernel=choice.kernel), notes=(note, *task.notes), select=None)
