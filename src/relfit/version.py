"""The version, in one place, readable from a checkout as well as from an installed wheel."""

__version__ = "0.1.0"
