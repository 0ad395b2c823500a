"""How a finished result is shown: picture, HTML. Everything is made from ``Comparison.rows()``.

The methods that results declare and this package does are attached here
(`relfit.util`). Each function has the arguments of its method, and its module is
imported when the method is first called.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from relfit.util import attach

METHODS = {
    "Comparison.plot": ("relfit.report.plots", "forest"),
    "Comparison.plot_bandwidths": ("relfit.report.plots", "bandwidths_plot"),
    "Comparison.plot_pairs": ("relfit.report.plots", "pairs_plot"),
    "Comparison.plot_power": ("relfit.report.plots", "power_plot"),
    "Comparison.plot_witness": ("relfit.report.plots", "witness_plot"),
    "Comparison.report": ("relfit.report.page", "write_report"),
    "JointEstimate.__repr__": ("relfit.results.text", "shown"),
    "JointEstimate._repr_html_": ("relfit.report.page", "notebook_table"),
    "Plan.plot": ("relfit.report.plots", "power_curves"),
    "Record._repr_html_": ("relfit.report.page", "notebook_table"),
}


def _loads(module: str, name: str) -> Callable[[], Callable[..., Any]]:
    def load() -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function

    return load


for _method, _home in METHODS.items():
    attach(_method, _loads(*_home))
