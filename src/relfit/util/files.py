"""Files: written so that a reader finds the old contents or the new, never half; and which images are opened."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from relfit.util.errors import InputError

# Image files: only formats that Pillow decodes itself (EPS, for example, would start another program), and at most so
# many pixels, because a small file may unpack to gigabytes; no image that a model makes comes near this size.
IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MOST_PIXELS = 100_000_000


@contextlib.contextmanager
def open_atomic(path: str | os.PathLike[str], argument: str = "path") -> Iterator[BinaryIO]:
    """A temporary file in the same folder, to write bytes to; it replaces `path` when the block ends without an error.

    A symbolic link is followed: its target is replaced, the link stays. A folder or device is refused. After a crash at
    most a hidden `.NAME.*.tmp` file is left over. Errors name the `argument` that gave the path.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"{argument}: cannot write {os.fspath(path)!r}: it is a folder or a device, not a file")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        # Plain open, not tempfile: the file must get the permissions that the umask allows, not 0600.
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space there" if full else "give a file name in a folder that exists and can be written"
        raise InputError(f"{argument}: cannot write {os.fspath(path)!r}: {error.strerror}; {remedy}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to the file by `open_atomic`."""
    with open_atomic(path) as stream:
        stream.write(data)


def write_text_atomic(path: str | os.PathLike[str], text: str) -> None:
    r"""Write `text` as UTF-8 to the file by `open_atomic`; line ends are kept as they are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text_atomic(f"{folder}/table.md", "a | b\n")
    ...     Path(folder, "table.md").read_text(encoding="utf-8")
    'a | b\n'
    """
    write_bytes_atomic(path, text.encode("utf-8"))
