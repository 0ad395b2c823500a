"""Methods that results declare and `relfit.report` does: each is attached, with the same arguments."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import relfit
from relfit.report import METHODS
from relfit.results.serial import Record

DECLARED = {
    "Comparison": relfit.Comparison,
    "JointEstimate": relfit.JointEstimate,
    "Plan": relfit.Plan,
    "Record": Record,
}


def _arguments(function):
    """Those after the result, as a call sees them."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return [(each.name, each.kind, each.default) for each in parameters]


@pytest.mark.parametrize("method", METHODS)
def test_an_attached_function_has_the_arguments_of_its_method(method):
    kind, name = method.split(".")
    declared = vars(DECLARED[kind])[name]
    module, function = METHODS[method]
    attached = getattr(import_module(module), function)
    needed = _arguments(declared)
    # A function may have more options than its method.
    assert _arguments(attached)[: len(needed)] == needed


def _printed(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_results_show_themselves_after_a_plain_import():
    """The package that attaches the methods is imported when one is first called, also below the public names."""
    code = """
import sys, numpy, relfit
from relfit.stats.joint import JointEstimate
joint = JointEstimate(("a", "b"), [0.1, 0.9], 0.01 * numpy.eye(2))
result = relfit.decide(joint)
text = str(result) + result.summary() + result.to_markdown() + str(result.ranks())
print("relfit.report" in sys.modules, "jinja2" in sys.modules)
print(repr(joint).splitlines()[0], "matplotlib" in sys.modules)
print(result._repr_html_()[:4], type(result.plot()).__name__)
"""
    assert _printed(code).splitlines() == [
        "False False",
        "estimates without a test · score (smaller is better) False",
        "<div NotebookAxes",
    ]
