"""Files: written so that a reader finds the old contents or the new, never half; inputs are
never written over; and SQLite files of our own: created once, checked when opened, safe
against kill -9 and power cuts.

With synchronous=FULL, what is committed to SQLite survives a power cut. In WAL mode that takes
one flush, and any number of processes may write to one file of a shared format, but not on a
network file system. An exclusive format is locked by the one process that has it open, until
it closes the file or dies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

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


# ── SQLite ───────────────────────────────────────────────────────────────────────────────────────

# Seconds to wait for another process: to finish its transaction in a shared file, to close an
# exclusive one.
BUSY_SECONDS = 60.0
EXCLUSIVE_SECONDS = 1.0


@dataclass(frozen=True)
class Format:
    """A kind of file: the argument that names it, what it is, its mark in SQLite's header,
    its schema and tables.
    """

    argument: str
    name: str
    application: int
    schema: int
    create: str
    exclusive: bool = False
    wal: bool = True


class Database:
    """An open file of one format, and a context manager; a file of another format, or a
    damaged one, is refused.
    """

    def __init__(self, path: str | os.PathLike[str], form: Format) -> None:
        self.path = os.fspath(path)
        self.form = form
        seconds = EXCLUSIVE_SECONDS if form.exclusive else BUSY_SECONDS
        try:
            self.connection = sqlite3.connect(self.path, timeout=seconds, isolation_level=None)
        except sqlite3.Error as error:
            raise self._refusal(
                f"cannot open {self.path!r} ({error}); give a file in a folder that exists"
            ) from error
        # A damaged text is still a text, and is found by its checksum.
        self.connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            self._prepare()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # SQLite's own message can quote a damaged name.
            self.connection.close()
            reason = str(error)
            remedy = f"give {form.name} or a new file name"
            if _is_busy(error):
                reason = "another process is writing it"
                remedy = "wait for that process, or end it"
            raise self._refusal(f"cannot use {self.path!r} ({reason}); {remedy}") from error
        except BaseException:
            self.connection.close()
            raise
        # By its full name: the working directory may change.
        self._place = os.path.abspath(self.path)  # noqa: PTH100
        self._status = None if self.path == ":memory:" else os.stat(self._place)  # noqa: PTH116
        note_read(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all or nothing: committed to disk at the end, rolled back on any exception,
        an interrupt included.
        """
        try:
            with self._transaction("IMMEDIATE"):
                self._check_place()
                yield self.connection
        except sqlite3.Error as error:
            advice = (
                "what it holds is kept: once this is fixed, the same call resumes from there"
            )
            raise self._refusal(f"cannot write {self.path!r} ({error}); {advice}") from error

    def _check_place(self) -> None:
        """Refuse to write to a file that is no longer where it was opened: nobody would find
        it.
        """
        if self._status is None:
            return
        try:
            there = os.path.samestat(os.stat(self._place), self._status)  # noqa: PTH116
        except OSError:
            there = False
        if not there:
            raise self._refusal(
                f"{self.path!r} was removed or replaced since it was opened; restore it and "
                f"start again"
            )

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read; a file whose tables are no longer those of its format is refused."""
        try:
            yield self.connection
        except sqlite3.Error as error:
            raise self._refusal(
                f"{self.path!r} is damaged ({error}); delete it, or give a new file name"
            ) from error

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self.connection.execute(f"BEGIN {kind}")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            # SQLite may have rolled back already, for example when the disk is full.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def _prepare(self) -> None:
        """Create the tables in a new file, or check that an existing file is sound and of
        this schema.
        """
        if self.form.exclusive:
            # The lock lasts until the connection closes or the process dies.
            self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.connection.execute("PRAGMA synchronous = FULL")
        with self._transaction("EXCLUSIVE" if self.form.exclusive else "IMMEDIATE"):
            marks = self._pragma("application_id"), self._pragma("user_version")
            if marks == (0, 0) and not self._objects(self.connection):
                for statement in self.form.create.split(";"):
                    self.connection.execute(statement)
                self.connection.execute(f"PRAGMA application_id = {self.form.application}")
                self.connection.execute(f"PRAGMA user_version = {self.form.schema}")
        if self._pragma("application_id") != self.form.application:
            raise self._refusal(
                f"{self.path!r} is an SQLite file of another program; give a new file name"
            )
        schema = self._pragma("user_version")
        if schema != self.form.schema:
            raise self._refusal(
                f"{self.path!r} has schema {schema}, not {self.form.schema}; use the relfit "
                f"that wrote it or a new file"
            )
        if self._objects(self.connection) != self._expected():
            why = "its tables are not those that relfit writes"
            raise self._refusal(
                f"{self.path!r} is damaged ({why}); delete it, or give a new file name"
            )
        # What SQLite says of a fault, such as numbers of pages, helps nobody to mend it.
        if self._pragma("quick_check(1)") != "ok":
            raise self._refusal(
                f"{self.path!r} is damaged; restore a copy or give a new file name"
            )
        if self.form.wal:
            self._use_wal()

    def _expected(self) -> set[Any]:
        """What `_objects` gives for a file that was just created."""
        with closing(sqlite3.connect(":memory:")) as empty:
            empty.executescript(self.form.create)
            return self._objects(empty)

    @staticmethod
    def _objects(connection: sqlite3.Connection) -> set[Any]:
        """Tables, indices, views and triggers with their definitions; a view may run without
        end.
        """
        return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))

    def _use_wal(self) -> None:
        """Switch to WAL mode, again and again while the file is busy: SQLite does not wait
        for this by itself.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _pragma(self, name: str) -> Any:
        return self.connection.execute(f"PRAGMA {name}").fetchone()[0]

    def _refusal(self, message: str) -> InputError:
        return InputError(f"{self.form.argument}: {message}")


def _is_busy(error: Exception) -> bool:
    # The low byte is the primary code; the rest says which kind of busy.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
