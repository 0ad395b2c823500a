"""Features into a file: the same rows however the run was cut up, and no mixing of models or inputs."""

import sqlite3

import numpy as np
import pytest
from refusals import refused

from relfit.features.base import Network
from relfit.features.run import extract_features

TEXTS = [f"text number {k}{' x' * (k % 5)}" for k in range(30)]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS))
    return path


def _expected(texts=TEXTS):
    return np.array([[len(t), sum(t.encode()), 1] for t in texts], np.float32)


def _files(folder):
    return sorted(path.name for path in folder.iterdir())


def _stopping(extractor, after):
    """The extractor, but it raises once `after` batches are done: what an interrupted run leaves behind."""
    calls = []

    def embed(batch):
        calls.append(batch)
        if len(calls) > after:
            raise KeyboardInterrupt
        return extractor.features(batch)

    return Network(extractor.name, extractor.kind, extractor.dim, extractor.fingerprint, embed)


def test_rows_and_names(source, counting, tmp_path):
    out = tmp_path / "f.npy"
    calls = []
    result = extract_features(source, counting, out, batch=7, progress=lambda *call: calls.append(call))
    rows = np.load(out)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, _expected())
    assert (result.rows, result.dim, result.resumed, result.broken) == (30, 3, 0, {})
    assert (tmp_path / "f.names.txt").read_text().split() == [f"texts.txt:{k}" for k in range(1, 31)]
    assert calls == [(7, 30), (14, 30), (21, 30), (28, 30), (30, 30)]
    assert _files(tmp_path) == ["f.names.txt", "f.npy", "texts.txt"]


def test_an_interrupted_run_is_resumed(source, counting, tmp_path):
    out = tmp_path / "f.npy"
    with pytest.raises(KeyboardInterrupt):
        extract_features(source, _stopping(counting, 3), out, batch=4)
    assert not out.exists()
    counting.seen.clear()
    result = extract_features(source, counting, out, batch=5)
    assert result.resumed == 12
    assert counting.seen == TEXTS[12:]
    assert np.array_equal(np.load(out), _expected())
    assert not (tmp_path / "f.npy.partial").exists()


def test_another_model_is_not_mixed_in(source, counting, tmp_path):
    out = tmp_path / "f.npy"
    with pytest.raises(KeyboardInterrupt):
        extract_features(source, _stopping(counting, 2), out, batch=4)
    other = Network("other", "text", 3, "other weights", counting.features)
    refused(
        lambda: extract_features(source, other, out),
        *("f.npy.partial", "another model (counting 1; now other weights)", "delete the file to begin again"),
    )
    assert extract_features(source, counting, out).resumed == 8


def test_one_process_at_a_time(source, counting, tmp_path):
    out = tmp_path / "f.npy"

    def embed(batch):
        refused(lambda: extract_features(source, counting, out), "f.npy.partial", "another process is writing it")
        return counting.features(batch)

    extract_features(source, Network("counting", "text", 3, "counting 1", embed), out, limit=3)
    assert np.array_equal(np.load(out), _expected(TEXTS[:3]))


def test_a_foreign_partial_file_is_left_alone(source, counting, tmp_path):
    for content in (b"not a database, but long enough to look at" * 30, b"SQLite format 3\0" + b"\1" * 500):
        (tmp_path / "f.npy.partial").write_bytes(content)
        refused(lambda: extract_features(source, counting, tmp_path / "f.npy"), "f.npy.partial")
        assert (tmp_path / "f.npy.partial").read_bytes() == content


def test_a_damaged_batch_is_noticed(source, counting, tmp_path):
    out = tmp_path / "f.npy"
    with pytest.raises(KeyboardInterrupt):
        extract_features(source, _stopping(counting, 2), out, batch=4)
    with sqlite3.connect(tmp_path / "f.npy.partial") as partial:
        partial.execute("UPDATE batches SET rows = x'00'")
    partial.close()
    refused(lambda: extract_features(source, counting, out), "its batches do not match")


def test_broken_images_are_named_or_counted(tmp_path, png, mean_colour):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for k in range(6):
        (pictures / f"{k}.png").write_bytes(png(np.full((4, 4, 3), 10 * k, np.uint8)))
    (pictures / "1.png").write_bytes(b"")
    (pictures / "4.png").write_bytes(b"junk")
    out = tmp_path / "f.npy"
    refused(lambda: extract_features(pictures, mean_colour, out, batch=1), "image '1.png'", "--skip-broken leaves such")
    result = extract_features(pictures, mean_colour, out, batch=2, skip_broken=True)
    assert result.resumed == 1
    assert list(result.broken) == ["1.png", "4.png"]
    assert np.array_equal(np.load(out)[:, 0], [0, 20, 30, 50])
    assert (tmp_path / "f.names.txt").read_text().split() == ["0.png", "2.png", "3.png", "5.png"]


@pytest.mark.parametrize(
    ("rows", "part"),
    [(np.zeros((2, 3)), "shape (30, 3), got (2, 3)"), (np.full((30, 3), np.nan), "'texts.txt:1' are not finite")],
)
def test_a_model_that_returns_rubbish_is_named(source, tmp_path, rows, part):
    bad = Network("bad", "text", 3, "bad", lambda batch: rows)
    refused(lambda: extract_features(source, bad, tmp_path / "f.npy"), "model 'bad'", part)


def test_refused_arguments(source, counting, tmp_path):
    refused(lambda: extract_features(source, counting, tmp_path / "f.csv"), "output", ".npy")
    refused(lambda: extract_features(source, counting, tmp_path / "f.npy", batch=0), "batch")
    refused(lambda: extract_features(tmp_path, counting, tmp_path / "f.npy"), "outside the source folder")
    refused(lambda: extract_features(source, "no-such", tmp_path / "f.npy"), "expected one of efficientnet-lite0")
    refused(lambda: extract_features(source, counting, tmp_path / "none" / "f.npy"), "f.npy.partial")
