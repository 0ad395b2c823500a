"""The folder for downloads and trained models: the platform's cache folder, or the variable RELFIT_CACHE."""

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.paper.experiment import DataAbsent, Given, Tell, silent
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic, write_text_atomic

VARIABLE = "RELFIT_CACHE"


def cache_folder(name: str) -> Path:
    """The folder of this name in the cache, made if it is not there."""
    folder = cache_root() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{VARIABLE}: cannot make the folder {str(folder)!r} ({error.strerror}); name one that can be written"
        ) from error
    return folder


def cache_root(platform: str = sys.platform, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the platform keeps what can be fetched or computed again.

    >>> cache_root("linux", {"XDG_CACHE_HOME": "/caches"}).as_posix()
    '/caches/relfit'
    """
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "relfit" / "Cache"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "relfit"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relfit"


def digest(*parts: bytes) -> str:
    """A short SHA-256 of the parts, in this order."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:16]


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """An .npz file of plain arrays."""
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **dict(arrays))
    write_bytes_atomic(path, stream.getvalue())


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file; nothing in it is run."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


# --------------------
# The robberies of 2016 from the City of Chicago's open-data portal: downloaded once, checked, cached; or a file.
#
# The portal's Socrata API gives the rows of "Crimes - 2001 to Present" (data set ijzp-q8t2) with primary type ROBBERY
# and year 2016 as CSV, in pages. Nothing is fetched unless the user asked for it.


PORTAL = "https://data.cityofchicago.org/resource/ijzp-q8t2.csv"
WHERE = "primary_type='ROBBERY' AND year=2016"
PAGE = 10_000
TIMEOUT = 60.0  # seconds without an answer
MOST_BYTES = 8_000_000  # the whole is about 300 kB
TRIES = 3
PAUSE = 2.0  # seconds before the second try, twice as many before the third
ROWS = (11_000, 13_000)  # 11,957 when the paper was written; records are amended now and then
LONGITUDES, LATITUDES = (-88.0, -87.4), (41.6, 42.1)
NAMES = {"longitude": "lon", "lon": "lon", "latitude": "lat", "lat": "lat"}
CACHED = "robbery_2016.csv"
HOW = (
    "table2-chicago: its data are not on this machine; add --download to fetch the robberies of 2016 from the City of "
    "Chicago's portal (300 kB), or --data FILE with a CSV of lon,lat"
)


def robberies(given: Given, tell: Tell = silent) -> Array:
    """Longitude and latitude (n, 2), sorted, from the user's file, the cache or, if asked for, the portal."""
    if given.data is not None:
        return sorted_rows(read_file(given.data))
    cached = cache_folder("chicago") / CACHED
    if given.download and not _intact(cached):
        tell(f"table2-chicago: downloading {CACHED} from {urllib.parse.urlsplit(PORTAL).netloc}")
        keep(cached, download(PORTAL))
    if not cached.exists():
        raise DataAbsent(HOW)
    if not _intact(cached):
        raise InputError(f"{str(cached)!r} is not what was downloaded (its checksum differs); add --download")
    return sorted_rows(parse(cached.read_text(encoding="utf-8"), str(cached)))


def sorted_rows(rows: Array) -> Array:
    """The rows in an order of their own, so that the seeded split does not depend on the order of the file."""
    return np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])])


def read_file(path: Path) -> Array:
    """The rows of a user's CSV file."""
    if path.exists() and not path.is_file():
        raise InputError(f"--data: cannot read {str(path)!r} (a folder or device); expected a CSV of lon,lat")
    try:
        return parse(path.read_text(encoding="utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--data: cannot read {str(path)!r} ({error}); expected a CSV of lon,lat") from error


def parse(text: str, source: str) -> Array:
    r"""The rows (n, 2) of a CSV with columns lon (longitude) and lat (latitude); rows without a location are left out.

    >>> parse("latitude,longitude\n41.88,-87.63\n,\n", "example")
    array([[-87.63,  41.88]])
    """
    lines = csv.reader(io.StringIO(text))
    header = [NAMES.get(name.strip().lower(), name) for name in next(lines, [])]
    if not {"lon", "lat"} <= set(header):
        raise InputError(f"{source}: expected a CSV with columns lon,lat; its first line is {','.join(header)[:80]!r}")
    columns = header.index("lon"), header.index("lat")
    try:
        found = [[line[column].strip() for column in columns] for line in lines if line]
        rows = np.array([[float(value) for value in row] for row in found if all(row)], dtype=np.float64)
    except (ValueError, IndexError) as error:
        raise InputError(
            f"{source}: expected two numbers on line {lines.line_num} or before, got something else"
        ) from error
    return _plausible(rows.reshape(-1, 2), source)


def _plausible(rows: Array, source: str) -> Array:
    low, high = np.array([LONGITUDES, LATITUDES]).T
    outside = ~((rows >= low) & (rows <= high)).all(axis=1)
    if outside.any():
        first = ", ".join(f"{value:g}" for value in rows[outside.argmax()])
        raise InputError(
            f"{source}: expected longitudes {LONGITUDES[0]:g} to {LONGITUDES[1]:g} and latitudes {LATITUDES[0]:g} to "
            f"{LATITUDES[1]:g}, got {int(outside.sum())} rows outside Chicago (first: {first})"
        )
    return rows


# --- the portal


def download(url: str, *, page: int = PAGE, timeout: float = TIMEOUT, pause: float = PAUSE) -> Array:
    """All rows of the query, as many as the portal says there are."""
    wanted = _count(_fetch(url, {"$select": "count(*)", "$where": WHERE}, timeout, pause), url)
    low, high = ROWS
    if not low <= wanted <= high:
        raise InputError(f"{url}: expected {low} to {high} robberies, the portal has {wanted}; give a file with --data")
    query = {"$select": "id,longitude,latitude", "$where": WHERE, "$order": "id", "$limit": str(page)}
    pages = [
        _page(_fetch(url, {**query, "$offset": str(start)}, timeout, pause), min(page, wanted - start), url)
        for start in range(0, wanted, page)
    ]
    return np.concatenate(pages)


def _count(text: str, url: str) -> int:
    lines = text.replace('"', "").split()
    if len(lines) != 2 or not lines[1].isdecimal():
        raise InputError(f"{url}: expected a count of rows, got {text[:60]!r}; try later or give a file with --data")
    return int(lines[1])


def _page(text: str, rows: int, url: str) -> Array:
    """One page; the count includes the rows without a location."""
    found = len(text.splitlines()) - 1
    if found != rows or not text.endswith("\n"):
        raise InputError(f"{url}: expected a page of {rows} rows, got {found} or a part of them; try again")
    return parse(text, url)


def _fetch(url: str, query: dict[str, str], timeout: float, pause: float) -> str:
    """The answer to one query; a refusal is final, a server's or network's failure is tried three times."""
    address = f"{url}?{urllib.parse.urlencode(query)}"
    for attempt in range(TRIES):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            return _read(address, timeout).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{url}: expected text, got bytes that are not UTF-8; give a file with --data") from error
        except urllib.error.HTTPError as error:
            reason = f"status {error.code}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, http.client.HTTPException) as error:
            reason = " ".join(str(getattr(error, "reason", error)).split())
    raise InputError(f"{url}: cannot download ({reason}); try later, or give a file with --data")


def _read(address: str, timeout: float) -> bytes:
    request = urllib.request.Request(address, headers={"Accept": "text/csv"})  # noqa: S310  (https, or a test's server)
    with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
        if address.startswith("https:") and not response.geturl().startswith("https:"):
            raise InputError(f"{address.partition('?')[0]}: was led to an address without https; not kept")
        body: bytes = response.read(MOST_BYTES + 1)
        length = response.headers.get("Content-Length")
    if len(body) > MOST_BYTES:
        raise InputError(f"{address.partition('?')[0]}: expected at most {MOST_BYTES} bytes, got more; not kept")
    if length is not None and len(body) < int(length):
        raise http.client.IncompleteRead(body, int(length) - len(body))
    return body


# --- the cached copy and its checksum


def keep(path: Path, rows: Array) -> None:
    """Write the rows and, beside them, the checksum of the file."""
    text = "lon,lat\n" + "".join(f"{lon:.9f},{lat:.9f}\n" for lon, lat in rows)
    write_text_atomic(_checksum(path), hashlib.sha256(text.encode()).hexdigest() + "\n")
    write_bytes_atomic(path, text.encode())


def _checksum(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _intact(path: Path) -> bool:
    if not (path.exists() and _checksum(path).exists()):
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == _checksum(path).read_text(encoding="utf-8").strip()
