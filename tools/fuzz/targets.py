"""What is fuzzed: for every reader the name of its file, valid files to start from, and the call that reads it.

A reader may return or raise InputError; anything else is a finding.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relfit.compute.memory import Budget
from relfit.data.arrays import as_rows, spilled_rows
from relfit.data.tables import read_labels, split_labels
from relfit.features.run import decode
from relfit.results.comparison import Comparison
from relfit.util.errors import InputError
from tools.fuzz.seeds import (
    arrow_seeds,
    csv_seeds,
    every_eval_ever_seeds,
    gz_seeds,
    helm_seeds,
    image_seeds,
    inspect_seeds,
    json_seeds,
    lm_eval_seeds,
    npy_seeds,
    npz_seeds,
    parquet_seeds,
    pt_seeds,
    safetensors_seeds,
    store_gz,
    store_json,
    store_npz,
    store_pt,
    store_safetensors,
    store_zarr,
    store_zarr_zip,
    write,
    zarr_seeds,
    zarr_zip_seeds,
)


@dataclass(frozen=True)
class Target:
    """One reader: its file's name, valid inputs, how bytes are stored under that name, and what reads it.

    `watched` are the modules whose branches guide the mutations; relfit's own are always among them.
    """

    file: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], Any]
    store: Callable[[bytes, Path], None] = write
    watched: tuple[str, ...] = ()


def attempt(target: Target, data: bytes, folder: Path) -> bool:
    """Store the bytes and read them; False if they were refused, in one line, as they should be."""
    path = folder / target.file
    target.store(data, path)
    try:
        target.read(path)
    except InputError as error:
        if len(str(error).splitlines()) != 1:
            raise RuntimeError(f"a refusal of several lines: {error!r}") from error
        return False
    return True


# --- the readers


def _rows(path: Path) -> None:
    """Read the file whole; every fourth file also in parts, as under a memory budget, which must give the same rows."""
    in_parts = _in_parts(path) if path.is_file() and path.stat().st_size % 4 == 0 else None
    whole = as_rows("rows", path)
    if in_parts is not None and not np.array_equal(in_parts, whole):
        raise RuntimeError("other rows in parts than as a whole")


def _in_parts(path: Path) -> Any:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, contextlib.suppress(InputError):
        return spilled_rows("rows", str(path), Budget(10**9, Path(folder)))[:]


def _labels(path: Path) -> None:
    with contextlib.suppress(InputError):
        read_labels(path)
    split_labels(path, "group")


def _columns(path: Path) -> None:
    """The named columns of a table, and the table of scores that they make."""
    from relfit.data.scores import scores
    from relfit.data.tables import keyed_columns

    columns = keyed_columns("table", path)
    _encoded(path)
    if path.suffix not in (".csv", ".jsonl", ".json"):
        return
    if columns is not None and {"item", "model", "score"} <= set(columns):
        scores(path, item="item", model="model", score="score", stratum="task" if "task" in columns else None)
    scores(path)


def _encoded(path: Path) -> None:
    """The same columns as rows of numbers, which are finite or refused."""
    from relfit.data.encode import Encode, Encoding, encoded_tables
    from relfit.data.tables import read_table

    with contextlib.suppress(InputError):
        table = read_table("table", path)
        if table is not None:
            encoding, rows, _ = encoded_tables({None: table}, "auto", Encode())
            if rows[None].shape != (len(table), len(encoding.labels)) or np.isnan(rows[None]).any():
                raise RuntimeError("a table of other rows than its own")
            if Encoding.from_dict(encoding.to_dict()) != encoding:
                raise RuntimeError("an encoding does not survive its own record")


def _result(path: Path) -> None:
    from relfit.cli.report import read_result

    result = read_result(str(path))
    again = Comparison.from_json(result.to_json())
    if again.rows() != result.rows():
        raise RuntimeError("a result does not survive its own JSON")
    for shown in (str, Comparison.to_csv, Comparison.to_latex, Comparison.to_markdown, Comparison.methods_text):
        shown(result).encode()
    result._repr_html_().encode()


def _image(path: Path) -> None:
    decode(path.name, path.read_bytes())


def _items(path: Path) -> None:
    from relfit.features.run import list_items

    for item in list_items(path, "text"):
        item.decode(item.payload(), "text")


def _evals(path: Path) -> None:
    from relfit.data.evals import read_evals

    evals = read_evals(path)
    if evals.values.shape != (len(evals.items), len(evals.names)) or np.isinf(evals.values).any():
        raise RuntimeError("scores that are no numbers, or of the wrong shape")
    str(evals).encode()


def _places(path: Path) -> None:
    from relfit.paper.chicago import read_file

    read_file(path)


def _table_seeds() -> list[bytes]:
    wide = "a,b\n" + "".join(f"{k % 3}.5,{k % 5}\n" for k in range(25))
    long = "item,model,score,task\n" + "".join(f"{k % 30},m{k // 30},{k % 2},t{k % 3}\n" for k in range(60))
    return [wide.encode(), long.encode(), long.replace("m1,1", "m1,").encode()]


def _json_table_seeds() -> list[bytes]:
    rows = [f'{{"item": {k % 30}, "model": "m{k // 30}", "score": {k % 2}.25}}\n' for k in range(60)]
    wide = [f'{{"a": {k % 3}.5, "b": null}}\n' if k == 7 else f'{{"a": {k % 3}.5, "b": {k % 5}}}\n' for k in range(25)]
    return ["".join(rows).encode(), "".join(wide).encode()]


def _json_record_seeds() -> list[bytes]:
    return [b"[" + b",".join(seed.splitlines()) + b"]" for seed in _json_table_seeds()]


_ZIP = ("zipfile",)
_NUMPY = ("numpy.lib._format_impl", "numpy.lib._npyio_impl")

TARGETS: dict[str, Target] = {
    "npy": Target("a.npy", npy_seeds, _rows, watched=_NUMPY),
    "npz": Target("a.npz", npz_seeds, _rows, store_npz, (*_NUMPY, *_ZIP)),
    "csv": Target("a.csv", csv_seeds, _rows),
    "csv.gz": Target("a.csv.gz", gz_seeds, _rows, store_gz, ("gzip", "_compression")),
    "labels": Target("a.tsv", csv_seeds, _labels),
    "parquet": Target("a.parquet", parquet_seeds, _rows),
    "parquet labels": Target("a.parquet", parquet_seeds, _labels),
    "arrow": Target("a.arrow", arrow_seeds, _rows),
    "arrow labels": Target("a.arrow", arrow_seeds, _labels),
    "pt": Target("a.pt", pt_seeds, _rows, store_pt, ("torch._weights_only_unpickler", "torch.serialization", *_ZIP)),
    "safetensors": Target("a.safetensors", safetensors_seeds, _rows, store_safetensors),
    "zarr": Target("a.zarr", zarr_seeds, _rows, store_zarr, ("zarr",)),
    "zarr in zip": Target("a.zip", zarr_zip_seeds, _rows, store_zarr_zip, ("zarr", *_ZIP)),
    "result": Target("a.json", json_seeds, _result, store_json),
    "image": Target("a.png", image_seeds, _image, watched=("PIL",)),
    "jsonl": Target("a.jsonl", lambda: [b'{"text": "a"}\n{"text": "\\u00e9"}\n', b'{"text": [1]}'], _items),
    "columns": Target("a.csv", _table_seeds, _columns),
    "columns of json lines": Target("a.jsonl", _json_table_seeds, _columns),
    "columns of json records": Target("a.json", _json_record_seeds, _columns),
    "parquet columns": Target("a.parquet", parquet_seeds, _columns),
    "arrow columns": Target("a.arrow", arrow_seeds, _columns),
    "lm-eval": Target("samples_t_2026-01-02T03-04-05.jsonl", lm_eval_seeds, _evals),
    "inspect json": Target("a.json", inspect_seeds, _evals),
    "helm": Target("per_instance_stats.json", helm_seeds, _evals),
    "every-eval-ever": Target("a.jsonl", every_eval_ever_seeds, _evals),
    "places": Target("a.csv", lambda: [b"lon,lat\n-87.6,41.8\n", b"latitude,longitude,x\n41.9,-87.7,1\n,,\n"], _places),
}
