"""No command reaches for a network unless it was asked to: every attempt fails the test."""

import io
import socket
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from refusals import refused

from relfit.cli import main
from relfit.data.files import read_rows
from relfit.paper import chicago as paper_data

FILES = ["human.npy", "gpt.npy", "claude.npy"]


class Attempted(BaseException):
    """Not an Exception: no handler on the way may take it for a failure of its own and go on."""


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    def refuse(*args, **_options):
        raise Attempted(args)

    for name in ("connect", "connect_ex", "sendto", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELFIT_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for k, name in enumerate(FILES):
        np.save(tmp_path / name, rng.normal(k / 4, 1.0, (60, 2)))


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["compare", *FILES, "--json", "out.json", "--html", "out.html", "--junit", "out.xml"], 0),
        (["pair", *FILES], 0),
        (["plan", *FILES, "--trials", "100"], 0),
        (["demo", "--html", "demo.html"], 0),
        (["doctor"], 0),
        (["features", "--list"], 0),
        (["features", "--help"], 0),
        (["reproduce", "--list"], 0),
        (["reproduce", "table2-chicago", "--quick", "--out", "reproduction"], 2),
        (["compare", "https://example.org/a.npy", *FILES[1:]], 2),
        (["compare", "s3://bucket/a.parquet", *FILES[1:]], 2),
        (["report", "https://example.org/result.json"], 2),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else str(value),
)
def test_commands(args, status, capsys):
    found = main(args)
    err = capsys.readouterr().err
    assert found == status, err
    assert "Traceback" not in err


def test_report_and_rerun(capsys):
    assert main(["compare", *FILES, "--json", "out.json"]) == 0
    assert main(["report", "out.json", *FILES, "--html", "out.html"]) == 0
    assert main(["rerun", "out.json"]) == 0
    assert 'src="http' not in Path("out.html").read_text(encoding="utf-8")
    capsys.readouterr()


def test_an_address_is_no_file():
    for name in ("https://example.org/a.npy", "s3://bucket/a.parquet", "http://example.org/a.zarr"):
        refused(lambda name=name: read_rows(name), "is an address on the internet", "download the file first")


def test_a_download_is_not_led_away_from_https(monkeypatch):
    class Answer(io.BytesIO):
        headers: ClassVar = {}

        def geturl(self):
            return "http://example.org/data.csv"

    monkeypatch.setattr(paper_data.urllib.request, "urlopen", lambda *_args, **_options: Answer(b"count\n12000\n"))
    refused(lambda: paper_data.download(paper_data.PORTAL), "without https")
