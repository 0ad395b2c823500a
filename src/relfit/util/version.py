"""The version, in one place, readable from a checkout as well as from an installed wheel."""

from __future__ import annotations

__version__ = "0.1.0"
