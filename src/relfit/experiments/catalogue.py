"""Every experiment by name. A new one is a value in this list."""

from __future__ import annotations

from relfit.errors import InputError
from relfit.experiments import celeba, chicago, digits, fig1, many_models, tpr, uniform
from relfit.experiments.experiment import Experiment

ALL = "all"
CATALOGUE: dict[str, Experiment] = {
    experiment.name: experiment
    for family in (fig1, celeba, digits, chicago, uniform, many_models, tpr)
    for experiment in family.EXPERIMENTS
}


def named(name: str) -> list[Experiment]:
    """The experiment of this name, or every one for "all".

    >>> [experiment.name for experiment in named("rbm-l7")]
    ['rbm-l7']
    """
    if name == ALL:
        return list(CATALOGUE.values())
    if name not in CATALOGUE:
        raise InputError(f"NAME: expected {ALL} or one of {', '.join(CATALOGUE)}; got {name!r}")
    return [CATALOGUE[name]]


def listing() -> str:
    """The experiments, one a line."""
    width = max(map(len, CATALOGUE))
    return "\n".join(f"{name:{width}}  {experiment.title}" for name, experiment in CATALOGUE.items())
