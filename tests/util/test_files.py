"""Files are replaced whole: the old contents or the new, with the permissions of an ordinary file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile

import pytest
from refusals import refused

from relfit.util.files import open_atomic, remove_abandoned, write_text_atomic


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_permissions_follow_the_umask(tmp_path):
    (tmp_path / "plain").write_text("x")
    write_text_atomic(tmp_path / "atomic", "x")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "atomic")}
    assert len(modes) == 1


def test_old_contents_stay_when_the_write_or_the_block_fails(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    write_text_atomic(target, "old")
    with pytest.raises(KeyboardInterrupt), open_atomic(target):
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
    target = tmp_path / "a.txt"
    write_text_atomic(target, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(lambda: write_text_atomic(target, "new"), "No space left")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_link_is_followed(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_text_atomic(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_missing_folders_devices_and_folders_are_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    for path, said in (
        (tmp_path / "nowhere" / "a.txt", "folder that exists"),
        (tmp_path / "file" / "a.txt", "path"),
        (tmp_path, "device"),
        ("/dev/null", "device"),
    ):
        refused(lambda path=path: write_text_atomic(path, "x"), said)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes in folders")
def test_a_pipe_in_a_temporary_folder_is_not_waited_for(tmp_path):
    """N5: anybody may make one in a folder that all users share, and opening it would wait for a writer."""
    (tmp_path / "relfit-x").mkdir()
    os.mkfifo(tmp_path / "relfit-x" / ".owner")
    script = "from relfit.util.files import temporary_folder\nwith temporary_folder(): print('made')"
    command, environment = [sys.executable, "-c", script], {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "made\n"
    assert (tmp_path / "relfit-x" / ".owner").exists()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners")
def test_nothing_in_the_folder_of_another_user_is_opened(tmp_path, monkeypatch):
    """The owner is looked at first: what another user left there is not ours to open."""
    (tmp_path / "relfit-x").mkdir()
    (tmp_path / "relfit-x" / ".owner").touch()
    opened = []
    usual, own = os.open, os.getuid()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: opened.append(path) or usual(path, *rest, **more))
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    remove_abandoned()
    assert opened == []
    monkeypatch.setattr(os, "getuid", lambda: own)
    remove_abandoned()
    assert opened
    assert list(tmp_path.iterdir()) == []
