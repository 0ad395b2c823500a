"""Valid files to start from, and how mutated bytes become a file.

Formats with checksums or lengths would refuse nearly every mutation at the door: there a first byte below 16 says that
the rest is the inside of such a file, which is then packed correctly.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import shutil
import struct
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from relfit.api import decide
from relfit.kernels.standard import Gaussian
from relfit.stats.joint import JointEstimate
from relfit.util.files import IMAGE_FORMATS

ROWS = np.array([[1.0, 2.5], [-3.0, 4e-7], [5.0, 6e12]])
INSIDE = b"\x00"
_APART = b"\xff"  # between two parts of an inside, where the first is text


def write(data: bytes, path: Path) -> None:
    # Another file each time: one that is still mapped must not change.
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _is_inside(data: bytes) -> bool:
    return data[:1] < b"\x10"


# --- NumPy's files


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npy_seeds() -> list[bytes]:
    kinds = [ROWS, np.asfortranarray(ROWS), ROWS.astype(">f4"), np.arange(6), np.ones((0, 2)), np.array(1.0)]
    records = np.zeros(2, dtype=[("é", "<f8"), ("b", "<i4", (2,))])
    return [*map(_npy, kinds), _npy(records), _npy(np.array(["a", "b"]))]


def npz_seeds() -> list[bytes]:
    out = []
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, x=ROWS)
        out.append(stream.getvalue())
    return [*out, *(INSIDE + data for data in npy_seeds())]


def store_npz(data: bytes, path: Path) -> None:
    write(_zipped({"x.npy": data[1:]}) if _is_inside(data) else data, path)


def _zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


# --- text

_CSV = (
    *(
        b"x,y\n1,2.5\n-3,4e-7\n",
        b"1,2\r\n3,4\r\n",
        b'\xef\xbb\xbf"a, b",c\n"1","2"\n',
        b"1\n\n2\n",
        b"x\tgroup\n1\t2\n",
    ),
    *(
        b"=1+1,x\n1,2\n",
        "1,5;2,5\n".encode("utf-16"),
        b"1_000,2\n",
        b"1,000,2\n",
        b"nan,inf\n-inf,1e999\n",
        b"a\x00b\n1\n",
    ),
)


def csv_seeds() -> list[bytes]:
    return list(_CSV)


def gz_seeds() -> list[bytes]:
    return [gzip.compress(_CSV[0]), *(INSIDE + text for text in _CSV)]


def store_gz(data: bytes, path: Path) -> None:
    write(gzip.compress(data[1:], 1) if _is_inside(data) else data, path)


# --- Arrow and Parquet


def _tables() -> list[Any]:
    import pyarrow as pa

    numbers = pa.table({"x": ROWS[:, 0], "y": np.arange(3), "group": np.array([1, 1, 2], dtype=np.uint8)})
    lists = pa.table({"v": pa.array(ROWS.tolist()), "w": pa.FixedSizeListArray.from_arrays(ROWS.ravel(), 2)})
    nulls = pa.table({"x": pa.array([1.0, None]), "d": pa.array([Decimal("1.5"), Decimal(2)])})
    text = pa.table({"group": pa.array(["a", "b", "a"]).dictionary_encode(), "x": [True, False, True]})
    return [numbers, lists, nulls, text]


def parquet_seeds() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = []
    for table in _tables():
        for options in (dict(compression="none", use_dictionary=False), dict(compression="zstd")):
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, store_schema=False, **options)
            out.append(sink.getvalue().to_pybytes())
    return out


def arrow_seeds() -> list[bytes]:
    import pyarrow as pa

    out = []
    for table in _tables():
        for new, compression in ((pa.ipc.new_file, None), (pa.ipc.new_stream, None), (pa.ipc.new_file, "zstd")):
            sink = pa.BufferOutputStream()
            with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
                writer.write_table(table)
            out.append(sink.getvalue().to_pybytes())
    return out


# --- tensors


def _saved(held: Any) -> bytes:
    import torch

    out = io.BytesIO()
    torch.save(held, out)
    return out.getvalue()


def _held() -> list[Any]:
    import torch

    rows = torch.from_numpy(ROWS)
    return [rows, {"x": rows.float(), "note": 1}, rows.to_sparse(), rows.bfloat16(), [rows]]


def pt_seeds() -> list[bytes]:
    whole = [_saved(held) for held in _held()]
    inside = []
    for data in whole:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inside.append(INSIDE + archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl"))))
    return [*whole, *inside]


def store_pt(data: bytes, path: Path) -> None:
    records = {f"a/data/{k}": bytes(64) for k in range(3)}
    members = {"a/data.pkl": data[1:], "a/byteorder": b"little", **records, "a/version": b"3\n"}
    write(_zipped(members) if _is_inside(data) else data, path)


def safetensors_seeds() -> list[bytes]:
    from safetensors.numpy import save

    header = {"x": {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]}}
    small = {"y": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}, "__metadata__": {"a": "b"}}
    inside = [INSIDE + json.dumps(h).encode() + _APART + bytes(n) for h, n in ((header, 48), (small, 8))]
    return [save({"x": ROWS}), save({"x": ROWS, "y": np.arange(4, dtype=np.int8)}), *inside]


def store_safetensors(data: bytes, path: Path) -> None:
    if _is_inside(data):
        header, _, body = data[1:].partition(_APART)
        data = struct.pack("<Q", len(header)) + header + body
    write(data, path)


# --- Zarr


def zarr_seeds() -> list[bytes]:
    three = {
        **{"zarr_format": 3, "node_type": "array", "shape": [3, 2], "data_type": "float64", "fill_value": 0},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    packed = {**three, "codecs": [*three["codecs"], {"name": "zstd", "configuration": {"level": 0, "checksum": False}}]}
    two = {
        **{"zarr_format": 2, "shape": [3, 2], "chunks": [3, 2], "dtype": "<f8", "compressor": None, "filters": None},
        **{"fill_value": 0.0, "order": "C", "dimension_separator": "."},
    }
    delta = {**two, "filters": [{"id": "delta", "dtype": "<f8"}], "compressor": {"id": "zlib", "level": 1}}
    found = [(b"3", three), (b"3", packed), (b"2", two), (b"2", delta)]
    return [first + json.dumps(described).encode() + _APART + ROWS.tobytes() for first, described in found]


def _zarr_members(data: bytes) -> dict[str, bytes]:
    described, _, chunk = data[1:].partition(_APART)
    return {".zarray": described, "0.0": chunk} if data[:1] == b"2" else {"zarr.json": described, "c/0/0": chunk}


def store_zarr(data: bytes, path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    for name, part in _zarr_members(data).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(part)


def zarr_zip_seeds() -> list[bytes]:
    inside = zarr_seeds()
    return [*(_zipped(_zarr_members(data)) for data in inside), *(INSIDE + data for data in inside)]


def store_zarr_zip(data: bytes, path: Path) -> None:
    write(_zipped(_zarr_members(data[1:])) if _is_inside(data) else data, path)


# --- results


@functools.cache
def _results() -> list[dict[str, Any]]:
    joint = JointEstimate(("a", "b", "<c>"), [0.1, 0.2, 0.9], 0.01 * np.eye(3), sizes=(50, 50, 50, 50))
    tests = ("relpsi", "best-set", "carve")
    made = [decide(joint, test=test, rng=0, margin=margin).to_dict() for test in tests for margin in (0.0, 0.1)]
    inputs = {"reference": "0", "models": {"a": None}}
    rich = {**made[0], "kernel": Gaussian(1.0).to_dict(), "inputs": inputs, "command": ["compare", "x.npy"]}
    return [*made, {**rich, "status": [["tie"], ["duplicate of a"], []], "locations": [[1.0, 2.0]]}]


def json_seeds() -> list[bytes]:
    whole = _results()
    fields = [_field(k, value) for k, value in enumerate(whole[-1].values())]
    return [*(json.dumps(result).encode() for result in whole), *(INSIDE + field for field in fields)]


def _field(number: int, value: object) -> bytes:
    return bytes([number]) + json.dumps(value).encode()


def store_json(data: bytes, path: Path) -> None:
    """Insides are fields of a sound result that are replaced: a byte for which, then JSON."""
    if _is_inside(data):
        whole = dict(_results()[-1])
        for part in filter(None, data[1:].split(_APART)):
            with contextlib.suppress(ValueError, RecursionError):
                whole[list(whole)[part[0] % len(whole)]] = json.loads(part[1:])
        data = json.dumps(whole).encode()
    write(data, path)


# --- images


def image_seeds() -> list[bytes]:
    from PIL import Image

    rng = np.random.default_rng(0)
    colours, grey = rng.integers(256, size=(5, 4, 3), dtype=np.uint8), rng.integers(256, size=(6, 6), dtype=np.uint8)
    out = []
    for form in IMAGE_FORMATS:
        for pixels in (colours, grey):
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, form)
            out.append(stream.getvalue())
    return out


# --- evaluation logs


def _lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def lm_eval_seeds() -> list[bytes]:
    def line(number: int, **more: Any) -> dict[str, Any]:
        called = {"gen_args_0": {"arg_0": "1 + 1 ="}}
        hashes = {"doc_hash": "a1", "target_hash": "b2"}
        return {
            "doc_id": number,
            "filter": "none",
            "metrics": ["acc"],
            "acc": 1.0,
            "arguments": called,
            **hashes,
            **more,
        }

    two = [line(0, filter=name, acc=value) for name, value in (("strict", 0), ("loose", None))]
    return [_lines(line(0), line(1, acc=False)), _lines(*two), _lines(line(0, metrics=["f1", "acc"], f1=[0, 1]))]


def helm_seeds() -> list[bytes]:
    def instance(name: str, mean: Any, **more: Any) -> dict[str, Any]:
        stat = {"name": {"name": "exact_match", "split": "test"}, "count": 1, "mean": mean}
        return {"instance_id": name, "train_trial_index": 0, "stats": [stat], **more}

    typos = {"perturbation": {"name": "typos"}}
    return [json.dumps([instance("id1", 1.0), instance("id2", 0), instance("id1", 0.5, **typos)]).encode()]


def every_eval_ever_seeds() -> list[bytes]:
    scored = {"score": 0.5, "is_correct": True}
    named = {"model_id": "m", "evaluation_name": "t", "evaluation_result_id": "r", "sample_hash": "h"}
    return [_lines(*({**named, "sample_id": k, "input": {"raw": "?"}, "evaluation": scored} for k in "ab"))]


def inspect_seeds() -> list[bytes]:
    scores = {"match": {"value": "C"}, "marks": {"value": {"a": 0.5}}}
    samples = [{"id": k, "epoch": 1, "input": "?", "target": "!", "scores": scores} for k in (1, "two")]
    run = {"created": "2026-01-02T03:04:05+00:00", "task": "t", "dataset": {}, "model": "m", "config": {}}
    return [json.dumps({"version": 2, "status": "success", "eval": run, "samples": samples}).encode()]
