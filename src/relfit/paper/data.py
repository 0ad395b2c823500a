"""The data of the experiments: the digits inside the package, files from the user, and the
robberies of Chicago.

Downloads and trained models are kept in the platform's cache folder, or in the folder that
the environment variable RELFIT_CACHE names. Nothing is fetched unless the user asked for it.

The robberies of 2016 come from the City of Chicago's open-data portal: its Socrata API gives
the rows of "Crimes - 2001 to Present" (data set ijzp-q8t2) with primary type ROBBERY and
year 2016 as CSV. They are downloaded once, checked, and cached with a checksum.
"""

from __future__ import annotations

import csv
import hashlib
import http.client
import io
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic, write_text_atomic

GREY_LEVELS = 16.0
CACHE_VARIABLE = "RELFIT_CACHE"

PORTAL = "https://data.cityofchicago.org/resource/ijzp-q8t2.csv"
WHERE = "primary_type='ROBBERY' AND year=2016"
MOST_ROWS = 50_000
TIMEOUT = 60.0  # seconds without an answer
MOST_BYTES = 8_000_000  # the whole is about 300 kB
TRIES = 3
PAUSE = 2.0  # seconds before the second try, twice as many before the third
ROWS = (11_000, 13_000)  # 11,957 when the paper was written; records are amended now and then
LONGITUDES = (-88.0, -87.4)
LATITUDES = (41.6, 42.1)
NAMES = {"longitude": "lon", "lon": "lon", "latitude": "lat", "lat": "lat"}
CACHED = "robbery_2016.csv"
HOW_TO_GET = (
    "table2-chicago: its data are not on this machine; add --download to fetch the robberies "
    "of 2016 from the City of "
    "Chicago's portal (300 kB), or --data FILE with a CSV of lon,lat"
)

Log = Callable[[str], None]


class DataAbsent(InputError):
    """The experiment's data are not on this machine; the message says in one line how to get
    them.
    """


@dataclass(frozen=True)
class DataOptions:
    """The options --data FILE, --features DIR and --download."""

    data: Path | None = None
    features: Path | None = None
    download: bool = False


def digits() -> tuple[Array, NDArray[np.uint8]]:
    """The handwritten digits of digits.md: images (1797, 64) with pixels in [0, 1], and
    their labels 0 to 9.
    """
    with (
        files("relfit").joinpath("paper/digits.npz").open("rb") as stored,
        np.load(stored, allow_pickle=False) as data,
    ):
        return data["images"] / GREY_LEVELS, data["labels"]


def cache_folder(name: str) -> Path:
    """The folder of this name in the cache, created if it does not exist."""
    folder = cache_root() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{CACHE_VARIABLE}: cannot create the folder {str(folder)!r} ({error.strerror}); "
            f"set it to a folder that "
            "can be written"
        ) from error
    return folder


def cache_root(
    platform: str = sys.platform, environment: Mapping[str, str] = os.environ
) -> Path:
    """Where the platform keeps what can be fetched or computed again.

    >>> cache_root("linux", {"XDG_CACHE_HOME": "/caches"}).as_posix()
    '/caches/relfit'
    """
    if environment.get(CACHE_VARIABLE):
        return Path(environment[CACHE_VARIABLE])
    if platform == "win32":
        return (
            Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
            / "relfit"
            / "Cache"
        )
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "relfit"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relfit"


def digest(*parts: bytes) -> str:
    """A short SHA-256 of the parts, in this order."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:16]


def robberies(options: DataOptions, log: Log) -> Array:
    """Longitude and latitude (n, 2), sorted, from the user's file, the cache or, if asked
    for, the portal.
    """
    if options.data is not None:
        return _sorted(read_file(options.data))
    cached, checksum = (cache_folder("chicago") / name for name in (CACHED, f"{CACHED}.sha256"))
    if options.download and not _intact(cached, checksum):
        log(f"table2-chicago: downloading {CACHED} from {urllib.parse.urlsplit(PORTAL).netloc}")
        text = "lon,lat\n" + "".join(f"{lon:.9f},{lat:.9f}\n" for lon, lat in download(PORTAL))
        write_text_atomic(checksum, hashlib.sha256(text.encode()).hexdigest() + "\n")
        write_bytes_atomic(cached, text.encode())
    if not cached.exists():
        raise DataAbsent(HOW_TO_GET)
    if not _intact(cached, checksum):
        raise InputError(
            f"{str(cached)!r} is not what was downloaded (its checksum differs); add --download"
        )
    return _sorted(parse(cached.read_text(encoding="utf-8"), str(cached)))


def _sorted(rows: Array) -> Array:
    """The rows sorted by their values, so that the seeded split does not depend on the order
    of the file.
    """
    return np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])])


def read_file(path: Path) -> Array:
    """The rows of a user's CSV file."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"--data: cannot read {str(path)!r} (a folder or device); expected a CSV of lon,lat"
        )
    try:
        return parse(path.read_text(encoding="utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--data: cannot read {str(path)!r} ({error}); expected a CSV of lon,lat"
        ) from error


def parse(text: str, source: str) -> Array:
    r"""The rows (n, 2) of a CSV with columns lon (longitude) and lat (latitude); rows
    without a location are left out.

    >>> parse("latitude,longitude\n41.88,-87.63\n,\n", "example")
    array([[-87.63,  41.88]])
    """
    lines = csv.reader(io.StringIO(text))
    header = [NAMES.get(name.strip().lower(), name) for name in next(lines, [])]
    if not {"lon", "lat"} <= set(header):
        raise InputError(
            f"{source}: expected a CSV with columns lon,lat; its first line is "
            f"{','.join(header)[:80]!r}"
        )
    columns = header.index("lon"), header.index("lat")
    try:
        cells = [[line[column].strip() for column in columns] for line in lines if line]
        rows = np.array(
            [[float(value) for value in row] for row in cells if all(row)], dtype=np.float64
        )
    except (ValueError, IndexError) as error:
        raise InputError(
            f"{source}: expected two numbers on line {lines.line_num} or before, got "
            f"something else"
        ) from error
    rows = rows.reshape(-1, 2)
    low, high = np.array([LONGITUDES, LATITUDES]).T
    outside = ~((rows >= low) & (rows <= high)).all(axis=1)
    if outside.any():
        first = ", ".join(f"{value:g}" for value in rows[outside.argmax()])
        raise InputError(
            f"{source}: expected longitudes {LONGITUDES[0]:g} to {LONGITUDES[1]:g} and "
            f"latitudes {LATITUDES[0]:g} to "
            f"{LATITUDES[1]:g}, got {int(outside.sum())} rows outside Chicago (first: {first})"
        )
    return rows


def download(url: str, *, timeout: float = TIMEOUT, pause: float = PAUSE) -> Array:
    """All rows of the query, in one answer, which the portal gives up to MOST_ROWS rows."""
    query = {
        "$select": "id,longitude,latitude",
        "$where": WHERE,
        "$order": "id",
        "$limit": str(MOST_ROWS),
    }
    text = _fetch(url, query, timeout, pause)
    # The count includes the rows without a location.
    count = len(text.splitlines()) - 1
    low, high = ROWS
    if not low <= count <= high or not text.endswith("\n"):
        raise InputError(
            f"{url}: expected {low} to {high} robberies, the portal sent {count} or a part "
            f"of them; try again, or give a file with --data"
        )
    return parse(text, url)


def _fetch(url: str, query: dict[str, str], timeout: float, pause: float) -> str:
    """The answer to one query; a refusal is final, a failure of the server or the network is
    tried three times.
    """
    for attempt in range(TRIES):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            return _read(f"{url}?{urllib.parse.urlencode(query)}", timeout).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{url}: expected text, got bytes that are not UTF-8; give a file with --data"
            ) from error
        except urllib.error.HTTPError as error:
            reason = f"status {error.code}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, http.client.HTTPException) as error:
            reason = " ".join(str(getattr(error, "reason", error)).split())
    raise InputError(
        f"{url}: cannot download ({reason}); try later, or give a file with --data"
    )


def _read(address: str, timeout: float) -> bytes:
    # Https, or a test's server.
    request = urllib.request.Request(address, headers={"Accept": "text/csv"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
        if address.startswith("https:") and not response.geturl().startswith("https:"):
            raise InputError(
                f"{address.partition('?')[0]}: redirected to an address without https; not kept"
            )
        body: bytes = response.read(MOST_BYTES + 1)
        length = response.headers.get("Content-Length")
    if len(body) > MOST_BYTES:
        raise InputError(
            f"{address.partition('?')[0]}: expected at most {MOST_BYTES} bytes, "
            f"got more; not kept"
        )
    if length is not None and len(body) < int(length):
        raise http.client.IncompleteRead(body, int(length) - len(body))
    return body


def _intact(path: Path, checksum: Path) -> bool:
    if not (path.exists() and checksum.exists()):
        return False
    return (
        hashlib.sha256(path.read_bytes()).hexdigest()
        == checksum.read_text(encoding="utf-8").strip()
    )
