"""Files: written so that a reader finds the old contents or the new, never half; inputs are
never written over.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from relfit.util.errors import InputError

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be removed anyway.
    fcntl = None  # type: ignore[assignment]

# Image files: only formats that Pillow decodes itself (EPS, for example, would start another
# program), and at most so many pixels, because a small file may unpack to gigabytes; no image
# that a model makes comes near this size.
IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MOST_PIXELS = 100_000_000


# The files that were read, by device and number, which every link to them shares, and the path
# of each. So many are remembered that no command forgets one, and so few that a service that
# never ends does not grow.
_READ: dict[tuple[int, int], str] = {}
_MOST_REMEMBERED = 100_000
# The temporary files and folders of this process that are there now.
_TEMPORARY: set[str] = set()
# How temporary folders are called, and the file in them that their process has locked.
_FOLDER = "relfit-"
_OWNER = ".owner"


def note_read(path: str | os.PathLike[str]) -> None:
    """Remember an input, a file or a folder with all that is in it, so that no result is
    written over it.
    """
    with contextlib.suppress(OSError, ValueError):
        # Path refuses some names.
        _READ[_identity(os.stat(path))] = os.path.realpath(path)  # noqa: PTH116
    while len(_READ) > _MOST_REMEMBERED:
        _READ.pop(next(iter(_READ)), None)


def forget_read() -> None:
    """Forget all inputs: another command begins."""
    _READ.clear()


def was_read(path: str | os.PathLike[str]) -> bool:
    """True for an input, under whatever name: by a link, a hard link, in other letters, or
    inside a folder.
    """
    target = os.path.realpath(path)
    return any(map(_is_input, (Path(target), *Path(target).parents)))


def _is_input(path: str | os.PathLike[str], folder: int | None = None) -> bool:
    with contextlib.suppress(OSError, ValueError):
        this = _identity(os.stat(path, dir_fd=folder, follow_symlinks=False))
        # A number is used again once its file is gone.
        return this in _READ and _identity(os.stat(_READ[this])) == this  # noqa: PTH116
    return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def open_atomic(
    path: str | os.PathLike[str], argument: str = "path", *, keep_inputs: bool = True
) -> Iterator[BinaryIO]:
    """A temporary file in the same folder, to write bytes to; it replaces `path` when the
    block ends without an error.

    A symbolic link is followed: its target is replaced, the link stays. A folder, a device
    or, with `keep_inputs`, a file that was read is refused. After a crash at most a hidden
    `.NAME.*.tmp` file is left over. Errors name the `argument` that gave the path.
    """
    target = Path(os.path.realpath(path))
    refused = f"{argument}: cannot write {os.fspath(path)!r}: "
    temporary = f".{target.name}.{uuid.uuid4().hex}.tmp"
    with contextlib.ExitStack() as stack:
        try:
            # All steps are taken in one open folder, so that links that change meanwhile do not
            # lead elsewhere.
            folder = None
            name = str(target)
            if os.open in os.supports_dir_fd:
                folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
                name = target.name
                stack.callback(os.close, folder)
            else:
                temporary = str(target.with_name(temporary))
            _check_replaced(name, folder, keep_inputs, refused)
            if keep_inputs and was_read(target.parent):
                raise InputError(f"{refused}it is part of an input; give another file name")
            _note_temporary(stack, str(target.parent / temporary))
            stack.callback(_discard, temporary, folder)
            # Plain open, not tempfile: the file must get the permissions that the umask allows,
            # not 0600.
            with open(
                temporary,
                "xb",
                opener=lambda file, flags: os.open(file, flags, 0o666, dir_fd=folder),
            ) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            _check_replaced(name, folder, keep_inputs, refused)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            remedy = (
                "free some space there"
                if full
                else "give a file name in a folder that exists and can be written"
            )
            raise InputError(f"{refused}{error.strerror}; {remedy}") from error


def _check_replaced(name: str, folder: int | None, keep_inputs: bool, refused: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder).st_mode):
            raise InputError(f"{refused}it is a folder or a device, not a file")
    if keep_inputs and _is_input(name, folder):
        raise InputError(f"{refused}it is an input too; give another file name")


def _discard(temporary: str, folder: int | None) -> None:
    with contextlib.suppress(OSError):
        os.unlink(temporary, dir_fd=folder)


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


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed at the end. Those that killed processes left behind are
    removed first.
    """
    remove_abandoned()
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True)
        _note_temporary(stack, made.name)
        name = stack.enter_context(made)
        if fcntl is not None:
            # The lock ends with the process, however it ends. It is there before the file has
            # its name.
            with contextlib.suppress(OSError):
                lock = stack.enter_context(open(f"{name}/new", "wb"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.rename(lock.name, f"{name}/{_OWNER}")  # noqa: PTH104
        yield Path(name)


def _note_temporary(stack: contextlib.ExitStack, path: str) -> None:
    """Note a temporary file or folder until the stack, which removes it, is closed."""
    _TEMPORARY.add(path)
    stack.callback(_TEMPORARY.discard, path)


def remove_temporary() -> None:
    """Remove this process's temporary files and folders: it ends now, whatever its threads
    do.
    """
    for path in list(_TEMPORARY):
        shutil.rmtree(path, ignore_errors=True)
        _discard(path, None)


def remove_abandoned() -> None:
    """Remove this user's temporary folders whose processes are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*") if fcntl is not None else ():
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.getuid():
                continue
            # Without waiting, as the opening of a pipe would.
            lock = os.open(folder / _OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if stat.S_ISREG(os.fstat(lock).st_mode):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # The lock's file goes last: should this process be killed meanwhile,
                    # another one can go on.
                    for path in folder.iterdir():
                        if path.is_dir() and not path.is_symlink():
                            shutil.rmtree(path, ignore_errors=True)
                        elif path.name != _OWNER:
                            path.unlink()
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
