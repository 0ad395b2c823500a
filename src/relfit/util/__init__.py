"""What every package uses: errors, atomic files, SQLite, progress, random streams, text; and
the version.
"""

__version__ = "0.2.0"
