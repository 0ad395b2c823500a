"""A short version of `make fuzz`: every reader with its seeds, and with a few mutations of them."""

from pathlib import Path

import numpy as np
import pytest

from relfit.data.files import FORMATS, format_of
from tools.fuzz.targets import TARGETS, _labels, _rows, attempt

MUTATIONS = 40
NEEDED = {
    "parquet": "pyarrow",
    "arrow": "pyarrow",
    "pt": "torch",
    "safetensors": "safetensors",
    "zarr": "zarr",
    "image": "PIL",
    "inspect": "inspect_ai",
}


@pytest.fixture(params=sorted(TARGETS))
def target(request):
    for word, library in NEEDED.items():
        if request.param.startswith(word):
            pytest.importorskip(library)
    return TARGETS[request.param]


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.suffixes[0])
def test_every_format_is_fuzzed(format):
    """Its rows, whole and in parts, and its labels if it has a reader of its own for them."""
    readers = {target.read for target in TARGETS.values() if format_of(Path(target.file)) is format}
    assert _rows in readers
    assert format.column_parts is None or _labels in readers


def test_seeds_whole_and_spoilt_are_read_or_refused(target, tmp_path):
    accepted = [attempt(target, seed, tmp_path) for seed in target.seeds()]
    assert any(accepted)
    # Bytes changed, cut out and doubled: anything but InputError fails.
    rng = np.random.default_rng(20)
    seeds = target.seeds()
    for _ in range(MUTATIONS):
        attempt(target, _spoilt(seeds[rng.integers(len(seeds))], rng), tmp_path)


def _spoilt(seed: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(data) + 1))
        length = int(rng.integers(1, 9))
        kind = rng.integers(3)
        if kind == 0:
            data[at : at + length] = rng.bytes(length)
        elif kind == 1:
            del data[at : at + length]
        else:
            data[at:at] = data[at : at + length]
    return bytes(data)
