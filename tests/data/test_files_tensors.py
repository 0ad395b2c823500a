"""Tensors in .pt and .safetensors files; nothing in a .pt file ever runs."""

import pickle
import sys
import warnings
import zipfile

import numpy as np
import pytest
from hostile import Trap
from refusals import refused

from relfit.data.arrays import as_rows
from relfit.data.files import read_rows

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.array([[1.0, 2.5], [-3.0, 4e-7], [5.0, 6e12]])


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch reads .pt files")


@pytest.fixture(scope="module")
def safetensors():
    return pytest.importorskip("safetensors.numpy", reason="safetensors reads .safetensors files")


def test_a_saved_tensor_and_a_dictionary_of_tensors(torch, tmp_path):
    path = tmp_path / "a.pt"
    torch.save(torch.tensor(ROWS, requires_grad=True), path)
    rows = as_rows("reference", path)
    np.testing.assert_array_equal(rows, ROWS)
    torch.save(torch.nn.Parameter(torch.tensor(ROWS)), path)
    np.testing.assert_array_equal(read_rows(path, columns="1"), ROWS[:, 1:])
    path = tmp_path / "a.pt"
    torch.save({"x": torch.tensor(ROWS), "epoch": 3, "note": "best"}, path)
    np.testing.assert_array_equal(read_rows(path), ROWS)
    torch.save({"x": torch.tensor(ROWS), "a:b": torch.tensor(2 * ROWS), 3: torch.tensor(3 * ROWS)}, path)
    np.testing.assert_array_equal(read_rows(f"{path}:x"), ROWS)
    np.testing.assert_array_equal(read_rows(f"{path}:a:b"), 2 * ROWS)
    np.testing.assert_array_equal(read_rows(f"{path}:3"), 3 * ROWS)
    refused(lambda: read_rows(path), "expected one array, got 3 (x, a:b and 3); select one as a.pt:NAME")
    refused(lambda: read_rows(f"{path}:z"), "expected an array called 'z', got x, a:b and 3")


def test_old_formats_and_an_old_torch_are_refused(torch, tmp_path, monkeypatch):
    """It can name a tensor and not hold it: torch then returns what happened to be in memory. Found by fuzzing."""
    torch.save(torch.tensor(ROWS), tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    refused(lambda: read_rows(tmp_path / "a.pt"), "a.pt: ", "torch before 1.6", "save the tensor again")
    # Before 2.6 weights_only=True could be made to run code.
    torch.save(torch.ones(2, 2), tmp_path / "a.pt")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu124")
    refused(lambda: read_rows(tmp_path / "a.pt"), "needs torch 2.6 or newer, got 2.5.1+cu124", "-U torch")


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float8_e5m2", "int8", "bool", "uint8"])
def test_every_kind_of_number(torch, tmp_path, kind):
    torch.save(torch.tensor([[1.0, 0.0]]).to(getattr(torch, kind)), tmp_path / "a.pt")
    np.testing.assert_array_equal(as_rows("reference", tmp_path / "a.pt"), [[1.0, 0.0]])


def test_files_without_a_tensor_whole_models_and_scripts_are_refused(torch, tmp_path):
    for held, kind in (([1.0, 2.0], "list"), ({"epoch": 3}, "dict")):
        torch.save(held, tmp_path / "a.pt")
        refused(lambda: read_rows(tmp_path / "a.pt"), "a.pt", f"a tensor or a dictionary of tensors, got a {kind}")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with warnings.catch_warnings():
        # TorchScript is on its way out; its files are still about.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "script.pt"))
    for name in ("model.pt", "script.pt"):
        refused(lambda name=name: read_rows(tmp_path / name), "holds Python objects or code", "never loads")


@pytest.mark.parametrize("form", ["saved", "saved the old way", "in a dictionary", "bare pickle", "inside the archive"])
def test_nothing_in_a_malicious_file_runs(torch, tmp_path, form):
    path, trap = tmp_path / "a.pt", Trap(tmp_path / "sprung")
    if form == "bare pickle":
        path.write_bytes(pickle.dumps(trap))
    elif form == "inside the archive":
        torch.save(torch.ones(2, 2), tmp_path / "good.pt")
        _replace_pickle(tmp_path / "good.pt", path, pickle.dumps(trap, protocol=2))
    else:
        held = {"x": torch.ones(3, 2), "y": trap} if "dictionary" in form else trap
        torch.save(held, path, _use_new_zipfile_serialization="old" not in form)
    message = refused(lambda: read_rows(path), str(path), "never loads", "torch.save")
    assert "weights_only" not in message, "torch's own message advises to switch the protection off"
    assert trap.stayed_shut()


def _replace_pickle(good, bad, content):
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
        for name in source.namelist():
            target.writestr(name, content if name.endswith("data.pkl") else source.read(name))


def test_safetensors(safetensors, tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"x": ROWS}, path)
    np.testing.assert_array_equal(as_rows("reference", path), ROWS)
    np.testing.assert_array_equal(read_rows(path, columns=[1]), ROWS[:, 1:])
    safetensors.save_file({"x": ROWS, "h.0:y": ROWS.astype(np.float32), "n": np.arange(3)}, path)
    np.testing.assert_array_equal(read_rows(f"{path}:h.0:y"), ROWS.astype(np.float32))
    np.testing.assert_array_equal(as_rows("reference", f"{path}:n"), [[0.0], [1.0], [2.0]])
    refused(lambda: read_rows(path), "expected one array, got 3 (", "a.safetensors:NAME")
    refused(lambda: read_rows(f"{path}:z"), "expected an array called 'z', got ")


@pytest.mark.parametrize(("name", "library"), [("a.pt", "torch"), ("a.safetensors", "safetensors")])
def test_without_the_library_one_line_says_what_to_install(tmp_path, monkeypatch, name, library):
    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setitem(sys.modules, library, None)
    refused(lambda: read_rows(tmp_path / name), name, f"needs {library}; install it with  pip install {library}")
