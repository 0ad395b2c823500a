"""JSON: a file of one value, or of one object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relfit.compute.memory import require_room
from relfit.data.files.base import check_plain, reading
from relfit.util.errors import InputError

LONGEST_LINE = 2**26  # bytes


def read_json(path: Path) -> Any:
    """The contents of a JSON file."""
    check_plain(path)
    with reading(path):
        # Parsed, a text takes about ten times its length.
        require_room(path, 10 * path.stat().st_size)
        return _parsed(str(path), path.read_bytes())


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with one object on each line, with the number of its line."""
    check_plain(path)
    with reading(path), open(path, "rb") as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > LONGEST_LINE:
                size = f"at most {LONGEST_LINE >> 20} MiB in a line"
                raise InputError(f"{where}: expected {size}, got more; it is damaged")
            if line.strip():
                value = _parsed(where, line)
                if not isinstance(value, dict):
                    raise InputError(f"{where}: expected a JSON object, got {kind_of(value)}")
                yield number, value


def _parsed(where: str, data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:80]
        raise InputError(
            f"{where}: expected JSON, which is cut off or damaged here ({reason})"
        ) from None


def kind_of(value: Any) -> str:
    """What a value of JSON is, in words."""
    kinds = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")
