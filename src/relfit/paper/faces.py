"""The four feature files of table1-celeba, made from folders of photographs.

The photographs are divided by an attribute in CelebA's list, smiling or not. Features are
computed once and kept in the cache; a run that was stopped resumes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from relfit.features.base import EXTRACTORS
from relfit.features.run import extract_features
from relfit.paper.experiment import DataOptions, Log, cache_folder, digest
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic, write_text_atomic

ATTRIBUTE = "Smiling"
MODEL = "efficientnet-lite0"
REAL_FILES = ("ref_smile.npy", "ref_nonsmile.npy")
GENERATED_FILES = ("gen_smile.npy", "gen_nonsmile.npy")
# What the files hold, in words.
ABOUT = "about.json"
# Folders of generated faces of one group each.
GENERATED_FOLDERS = ("smiling", "other")


def feature_files(options: DataOptions, log: Log) -> Path:
    """The folder of the feature files of these photographs, computed where they are new."""
    images = options.images
    if images is None or options.attributes is None:
        raise InputError(
            "--images: expected --attributes FILE with it, CelebA's list_attr_celeba.txt or .csv"
        )
    model = options.model or MODEL
    if model not in EXTRACTORS or EXTRACTORS[model].kind != "images":
        known = [name for name, entry in EXTRACTORS.items() if entry.kind == "images"]
        raise InputError(f"--model: expected one of {', '.join(known)}; got {model!r}")
    smiling = attributes(options.attributes)
    names, features = _features(images, model, options, log)
    unknown = [name for name in names if name not in smiling]
    if unknown:
        raise InputError(
            f"--attributes: has no line for {len(unknown)} of the {len(names)} images, such as "
            f"{unknown[0]!r}; leave these images out, or give their list"
        )
    first = np.array([smiling[name] for name in names])
    files = dict(zip(REAL_FILES, (features[first], features[~first]), strict=True))
    made = (
        {} if options.generated is None else _generated(options.generated, model, options, log)
    )
    files |= made
    counts = f"{first.sum():,} smiling and {(~first).sum():,} other photographs"
    about = f"{features.shape[1]} features of {model}, of {counts}"
    if made:
        about += f" and {sum(len(rows) for rows in made.values()):,} generated faces"
    folder = cache_folder("celeba") / digest(*(rows.tobytes() for rows in files.values()))
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        _save(folder / name, rows)
    write_text_atomic(folder / ABOUT, json.dumps({"about": about}) + "\n")
    log(f"table1-celeba: {about}")
    return folder


def attributes(path: Path) -> dict[str, bool]:
    """Whether each image of CelebA's list smiles, by its name; the list has spaces or commas."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--attributes: cannot read {str(path)!r} ({error})") from error
    rows = [line.replace(",", " ").split() for line in lines if line.strip()]
    start = next((k for k, row in enumerate(rows) if ATTRIBUTE in row), None)
    if start is None:
        raise InputError(
            f"--attributes: expected a line with the names of the attributes, {ATTRIBUTE} among "
            f"them, in {str(path)!r}; found none"
        )
    header = rows[start]
    # In the .txt file the header has no name for the images' column.
    named = header[0] in ("image_id", "image")
    column = header.index(ATTRIBUTE) + (0 if named else 1)
    width = len(header) + (0 if named else 1)
    found = {}
    for k, row in enumerate(rows[start + 1 :], start + 2):
        if len(row) != width or row[column] not in ("1", "-1", "0"):
            raise InputError(
                f"--attributes: line {k} of {path.name}: expected a name and {width - 1} values "
                f"of 1 or -1, got {' '.join(row)[:60]!r}"
            )
        found[row[0]] = row[column] == "1"
    return found


def _features(
    folder: Path, model: str, options: DataOptions, log: Log
) -> tuple[list[str], Array]:
    """The names of the images of a folder, and their features."""
    files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    sizes = [str((folder / name).stat().st_size) for name in files]
    key = digest(model.encode(), "\0".join(files).encode(), " ".join(sizes).encode())
    target = cache_folder("celeba") / f"{key}.npy"
    names = target.with_suffix(".names.txt")
    if not (target.exists() and names.exists()):
        log(f"table1-celeba: {model} of {folder}")
        weights = None if options.weights is None else str(options.weights)
        extract_features(folder, model, target, weights=weights)
    rows = np.load(target, allow_pickle=False)
    return names.read_text(encoding="utf-8").splitlines(), rows


def _generated(folder: Path, model: str, options: DataOptions, log: Log) -> Mapping[str, Array]:
    """Generated faces of both groups: of two subfolders, or one folder in halves."""
    parts = [folder / name for name in GENERATED_FOLDERS]
    if all(part.is_dir() for part in parts):
        each = [_features(part, model, options, log)[1] for part in parts]
    else:
        rows = _features(folder, model, options, log)[1]
        each = [rows[::2], rows[1::2]]
    return dict(zip(GENERATED_FILES, each, strict=True))


def _save(path: Path, rows: Array) -> None:
    stream = io.BytesIO()
    np.save(stream, np.asarray(rows, dtype=np.float32), allow_pickle=False)
    write_bytes_atomic(path, stream.getvalue())
