"""The call that gives this answer again, and the settings as they were."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

from relfit.compare import compare
from relfit.evidence.recall import preset_of
from relfit.kernels import IMQ, Gaussian, Kernel, Matern, MultiScale, Polynomial, RationalQuadratic, Sum
from relfit.report import words
from relfit.result import Comparison

# Fields that are results or are shown under another name.
_NOT_SETTINGS = {
    *("names", "best", "best_index", "discrepancy", "standard_error", "covariance", "difference"),
    *("difference_standard_error", "pvalue", "log_pvalue", "adjusted_pvalue", "worse", "status", "truncation"),
    *("beaten_by", "confidence_set", "randomised", "near_degeneracy", "warnings", "measure", "bandwidth_rule"),
    *("equivalent", "groups", "locations", "command", "second_order"),
}
_WRITTEN = (Gaussian, IMQ, Matern, MultiScale, Polynomial, RationalQuadratic)
_LABELS = {
    "alpha": "level α",
    "select_fraction": "share of rows for selection",
    "sizes": "rows",
    "pair_count": "pairs of rows",
    "block_count": "blocks",
    "inputs": "digests of the data",
}


def settings(comparison: Comparison) -> list[tuple[str, str]]:
    """Every setting the result records, in words; those that do not apply are left out."""
    shown = {"discrepancy": words.measure_name(comparison), "models": str(len(comparison.names))}
    for item in fields(comparison):
        value = getattr(comparison, item.name)
        if item.name not in _NOT_SETTINGS and value is not None and not (item.name == "margin" and value == 0.0):
            shown[_LABELS.get(item.name, item.name.replace("_", " "))] = _words(comparison, item.name, value)
    return [(label, text) for label, text in shown.items() if text]


def python_call(comparison: Comparison) -> str | None:
    """The call of `relfit.compare` with every option that is not the default; None where the result does not say all.

    >>> from relfit import JointEstimate, decide
    >>> python_call(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))) is None
    True
    """
    if comparison.measure not in ("mmd", "ksd") or comparison.kernel is None or comparison.bandwidth_rule == "selected":
        return None
    preset = preset_of(comparison)
    options: dict[str, Any] = {
        name: getattr(comparison, name)
        for name, parameter in inspect.signature(compare).parameters.items()
        if name in _RECORDED and getattr(comparison, name, None) not in (None, parameter.default)
    }
    if options.get("correction") == ("by" if comparison.test == "relmulti" else "none"):
        del options["correction"]
    counts = {"pairs": comparison.pair_count, "blocks": comparison.block_count}
    options |= {name: count for name, count in counts.items() if count is not None}
    if preset is None and not _default_kernel(comparison):
        options["kernel"] = _Raw(_kernel_code(comparison.kernel))
    if preset is not None:
        options["preset"] = preset
    if comparison.groups is not None:
        options["groups"] = _Raw("groups")
    options["rng"] = comparison.seed
    return f"relfit.compare(reference, models, {', '.join(f'{key}={value!r}' for key, value in options.items())})"


_RECORDED = (
    *("test", "estimator", "alpha", "select_fraction", "correction", "dependence"),
    *("variance", "margin", "precision"),
)


class _Raw(str):
    """Text that stands in code as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _default_kernel(comparison: Comparison) -> bool:
    return isinstance(comparison.kernel, Gaussian) and comparison.bandwidth_rule == "median"


def _kernel_code(kernel: Kernel) -> str:
    """The kernel as Python; one that was made of functions or matrices is only named."""
    if isinstance(kernel, Sum):
        return " + ".join(map(_kernel_code, kernel.terms))
    return f"relfit.{kernel!r}" if isinstance(kernel, _WRITTEN) else "kernel"


def _words(comparison: Comparison, name: str, value: Any) -> str:
    spoken = {
        "test": words.TEST_NAMES,
        "correction": words.CORRECTION_NAMES,
        "dependence": words.DEPENDENCE_NAMES,
    }
    if name in spoken:
        return spoken[name].get(value, str(value))
    if name == "kernel":
        return words.kernel_words(comparison) or ""
    if name == "sizes":
        return words.size_words(comparison) or ""
    if name == "inputs":
        digests = {"reference": value["reference"], **(value["models"] or {})}
        return ", ".join(f"{words.visible(key)} {text[:12]}" for key, text in digests.items() if text)
    if isinstance(value, dict):
        return ", ".join(f"{key} {number}" for key, number in value.items())
    return f"{value:g}" if isinstance(value, float) else words.visible(str(value))
