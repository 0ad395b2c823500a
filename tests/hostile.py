"""What the tests of hostile files share."""

import io
import zipfile

import pytest

resource = pytest.importorskip("resource", reason="POSIX")


def peak():
    """The largest resident size of this process so far, in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def zipped(members, **options):
    """An archive of these members, as bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()
