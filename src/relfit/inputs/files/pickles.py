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
# A file of old torch holds a mark, a version, a note on the machine and the tensors, one pickle each.
_OLD_PICKLES = 4


def check_pickle(path: Path) -> None:
    """Refuse a file whose pickle names what tensors are not made of, or that is packed: torch packs nothing."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as stream:
            for _ in range(_OLD_PICKLES):
                _check(path, stream)
        return
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
