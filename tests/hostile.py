"""What the tests of hostile files share."""

import io
import os
import pickle
import zipfile

import numpy as np
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


def saved(array):
    """The bytes of a .npy file."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


class Trap:
    """Unpickling this makes the folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)

    def stayed_shut(self):
        """True if nothing unpickled it so far, and it works."""
        shut = not self.path.exists()
        pickle.loads(pickle.dumps(self))
        return shut and self.path.exists()
