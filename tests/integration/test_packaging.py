"""What publishes relfit: workflow files and the conda recipe are well-formed and say what pyproject.toml says."""

import re
import tomllib
from pathlib import Path

import pytest

import relfit

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def _read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_are_well_formed_and_call_targets_that_exist(path):
    workflow = _read(path)
    # YAML 1.1 reads the key `on` as true.
    assert workflow[True]
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["runs-on"]
        assert set(job.get("needs", "").split()) <= set(workflow["jobs"])
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), (name, step)
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))
    targets = [target for step in _steps(_read(path)) for target in re.findall(r"make ([\w-]+)", step.get("run", ""))]
    assert targets or path.stem == "publish"
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE)


def test_a_release_needs_no_password_and_every_action_is_pinned_to_a_commit():
    path = ROOT / ".github" / "workflows" / "release.yml"
    workflow = _read(path)
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert workflow["jobs"]["publish"]["needs"] == "build"
    assert "secrets." not in path.read_text(encoding="utf-8")
    # A tag or a branch can be moved to other code by whoever owns it, a commit cannot.
    used = [
        line.partition("uses:")[2].strip()
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert len(used) >= 10
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)] == []


def test_the_recipe_says_what_the_project_says():
    recipe = _read(ROOT / "recipe" / "recipe.yaml")
    assert recipe["context"]["version"] == relfit.__version__
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    _python, *needed = recipe["requirements"]["run"]
    # conda's matplotlib-base is matplotlib without a window system.
    assert [item.replace("-base", "").replace(" ", "") for item in needed] == PROJECT["dependencies"]
    assert recipe["build"]["python"]["entry_points"] == ["relfit = relfit.cli:main"]
    assert recipe["about"]["summary"] == PROJECT["description"]
