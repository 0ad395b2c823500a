"""What the pickle in a .pt file would call, found by reading its instructions and following none of them.

torch's own reader of bare tensors calls a short list of functions only, but some of them make gigabytes out of a few
bytes. A tensor, or a dictionary of tensors, numbers and text, needs none of those.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from pathlib import Path
from typing import IO

from relfit.errors import InputError

_HARMLESS = re.compile(
    r"collections OrderedDict|torch (?:[a-z]\w*|\w*Storage|Size)|torch\.storage \w+Storage|torch\._utils _rebuild_\w+"
    r"|torch\.serialization _get_layout|torch\.nn\.parameter Parameter|torch\._tensor _rebuild_from_type_v2"
)


def check_pickle(path: Path) -> None:
    """Refuse a file in torch's old format, that is packed (torch packs nothing), or that names what no tensor needs."""
    if not zipfile.is_zipfile(path):
        # The old format can name tensors that it does not hold; torch then gives whatever was in memory.
        raise InputError(
            f"{path}: truncated, damaged or a bare pickle, such as torch before 1.6 wrote and relfit never loads; load "
            "it there and save the tensor again by torch.save"
        )
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise _refusal(path)
        for name in archive.namelist():
            if name.endswith(".pkl"):
                with archive.open(name) as stream:
                    _check(path, stream)


def _check(path: Path, stream: IO[bytes]) -> None:
    for code, argument, _ in pickletools.genops(stream):
        if code.name in ("STACK_GLOBAL", "INST") or (code.name == "GLOBAL" and not _HARMLESS.fullmatch(str(argument))):
            raise _refusal(path)


def _refusal(path: Path) -> InputError:
    return InputError(
        f"{path}: holds Python objects or code (pickle), which relfit never loads, or is packed; save the tensor alone "
        "by torch.save"
    )
