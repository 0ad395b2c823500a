"""Write a file so that a reader finds the old contents or the new, never half of either."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path

from relfit.util.errors import InputError


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to a temporary file in the same folder, flush it to disk, then rename it to `path`.

    A symbolic link is followed: its target is replaced, the link stays. A folder or device is refused.
    After a crash at most a hidden `.NAME.*.tmp` file is left over.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"path: cannot write {os.fspath(path)!r}: it is a folder or a device, not a file")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        # Plain open, not tempfile: the file must get the permissions that the umask allows, not 0600.
        with open(temporary, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        mend = "make room there" if full else "give a file name in a folder that exists and can be written"
        raise InputError(f"path: cannot write {os.fspath(path)!r}: {error.strerror}; {mend}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_text_atomic(path: str | os.PathLike[str], text: str) -> None:
    r"""Write `text` as UTF-8, as `write_bytes_atomic` does; line ends are kept as they are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text_atomic(f"{folder}/table.md", "a | b\n")
    ...     Path(folder, "table.md").read_text(encoding="utf-8")
    'a | b\n'
    """
    write_bytes_atomic(path, text.encode("utf-8"))
