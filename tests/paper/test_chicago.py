"""table2-chicago: the loader against a local server, the fitted models, and the quick version."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from refusals import refused

from relfit.paper import chicago
from relfit.paper.chicago import download, robberies
from relfit.paper.experiment import CACHE_VARIABLE, DataOptions
from relfit.paper.reproduce import CATALOGUE, Scope, reproduce

ROWS = 25
EXAMPLE = np.round(np.random.default_rng(5).normal((-87.68, 41.84), (0.03, 0.05), (ROWS, 2)), 6)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "chicago"


# --- the portal


class Portal:
    """A server on this machine that answers as the portal does, or as it is told to."""

    def __init__(self):
        self.queries = []
        self.script = []  # answers to give before the true ones: (status, body, announced length)
        portal = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                query = {key: value[0] for key, value in parse_qs(urlsplit(self.path).query).items()}
                portal.queries.append(query)
                status, body, length = portal.script.pop(0) if portal.script else (200, portal.answer(), None)
                self.send_response(status)
                if length != "none":
                    self.send_header("Content-Length", str(length or len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/resource/ijzp-q8t2.csv"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def answer(self):
        lines = [f'"{k}","{lon}","{lat}"' for k, (lon, lat) in enumerate(EXAMPLE)]
        lines.insert(3, '"99","",""')  # a record whose place is withheld
        return "\n".join(['"id","longitude","latitude"', *lines, ""]).encode()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def portal(monkeypatch):
    served = Portal()
    monkeypatch.setattr(chicago, "ROWS", (20, 30))
    monkeypatch.setattr(chicago, "PORTAL", served.url)
    yield served
    served.close()


def test_download_in_one_answer(portal):
    assert np.array_equal(download(portal.url), EXAMPLE)
    (query,) = portal.queries
    assert query["$where"] == "primary_type='ROBBERY' AND year=2016"
    assert int(query["$limit"]) > 13_000  # a query without a limit gives a thousand rows


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, b"", None), "status 404"),
        ((200, b'"id","longitude"\n', 500), "IncompleteRead"),
        ((200, b"longitude,latitude\n" + b"-87.6,41.8\n" * 25 + b"-87.6,41", "none"), "a part of them"),
        ((200, b"<html>down for maintenance</html>", None), "the portal sent 0"),
        ((200, b"<html>\n" + b"x\n" * 26, None), "columns lon,lat"),
        ((200, b"\xff\xfe", None), "not UTF-8"),
        ((200, b"longitude,latitude\n" + b"-87.6,41.8\n" * 3, None), "the portal sent 3"),
        ((200, b"longitude,latitude\n" + b"2.35,48.85\n" * 26, None), "26 rows outside Chicago"),
        ((200, b"x" * 9_000_000, None), "at most 8000000 bytes"),
    ],
)
def test_download_refuses_what_is_not_the_data(portal, answer, words):
    portal.script = [answer]
    refused(lambda: download(portal.url), words)
    assert len(portal.queries) == 1


def test_downloaded_once_and_verified_afterwards(portal, cache):
    first = robberies(DataOptions(download=True), print)
    assert sorted(map(tuple, first)) == sorted(map(tuple, EXAMPLE))
    asked = len(portal.queries)
    assert np.array_equal(robberies(DataOptions(download=True), print), first)
    assert np.array_equal(robberies(DataOptions(), print), first)
    assert len(portal.queries) == asked
    cached = cache / "robbery_2016.csv"
    cached.write_text(cached.read_text().replace("-87.6", "-87.5", 1))
    refused(lambda: robberies(DataOptions(), print), "checksum differs")
    assert np.array_equal(robberies(DataOptions(download=True), print), first)
    assert len(portal.queries) > asked


# --- the models


def city(n, seed=3):
    """Points in five clusters inside Chicago."""
    rng = np.random.default_rng(seed)
    centres = np.array([[-87.75, 41.92], [-87.65, 41.95], [-87.7, 41.8], [-87.6, 41.85], [-87.62, 41.72]])
    return centres[rng.integers(5, size=n)] + rng.normal(scale=0.012, size=(n, 2))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The quick recipe's models on made-up points, and the points they have not seen."""
    pytest.importorskip("sklearn")
    pytest.importorskip("zuko")
    train, test = chicago.split(city(1600), 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
        return chicago.fit(train, chicago.QUICK, print), test


def test_log_densities_are_normalised(fitted):
    """So that NLLs of mixtures and flows can be compared: ∫ p = 1 by the midpoint rule, far into the tails."""
    models, _ = fitted
    edges = np.linspace(-12.0, 12.0, 241)
    middle = (edges[1:] + edges[:-1]) / 2.0
    grid = np.stack(np.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
    for name, model in models.items():
        total = np.exp(chicago.log_density(model, grid)).sum() * (middle[1] - middle[0]) ** 2
        assert total == pytest.approx(1.0, abs=0.02), name


# --- the experiment


@pytest.fixture
def city_file(tmp_path):
    path = tmp_path / "city.csv"
    path.write_text("lon,lat\n" + "".join(f"{lon:.9f},{lat:.9f}\n" for lon, lat in city(1600)))
    return path


def test_quick_version(city_file, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("zuko")
    experiment, data_options = CATALOGUE["table2-chicago"], DataOptions(data=city_file)
    with ThreadPoolExecutor(2) as pool:
        options = {"scope": Scope(quick=True), "executor": pool, "progress": False, "data_options": data_options}
        report = reproduce(experiment, tmp_path / "out", **options)
        again = reproduce(experiment, tmp_path / "out", **options)
    assert [str(check) for check in report.checks if not check.ok] == []
    assert (again.table, again.seconds) == (report.table, report.seconds)  # nothing was trained or run again
    for words in ("IMQ, BY", "Gaussian, Bonferroni", "select 25%, by", "MAF (5), normal base, little L2"):
        assert words in report.table
    assert "</svg>" in (report.folder / "figure.svg").read_text(encoding="utf-8")
    run = json.loads((report.folder / "run.json").read_text(encoding="utf-8"))
    assert run["trials"] == 12
    prepared = experiment.prepare(data_options, True, print)
    setting = {**experiment.settings(True)[0], **prepared}
    _check_trial(setting, chicago.trial(setting, 0)["decisions"])
    refused(lambda: chicago.load(prepared["study"], "another file"), "run the command again")


def _check_trial(setting, decisions):
    known = chicago.load(setting["study"], setting["contents"])
    tests = {decision["test"] for decision in decisions}
    assert len(decisions) == 5 * len(tests) == 5 * 8
    for test in tests:
        assert sum(decision["selected"] for decision in decisions if decision["test"] == test) == 1
    rows = np.random.default_rng(0).choice(len(known.points), setting["n"], replace=False)
    nll = {decision["model"]: decision["value"] for decision in decisions if decision["test"] == "NLL"}
    assert nll["MoG (2)"] == pytest.approx(-known.log_probs[1][rows].mean())
    plain = {d["model"]: d["pvalue"] for d in decisions if d["test"] == "RelMulti 50%, none"}
    strict = {d["model"]: d["worse"] for d in decisions if d["test"] == "RelMulti 50%, bonferroni"}
    assert all(worse == (plain[model] <= 0.05 / 4) for model, worse in strict.items())
