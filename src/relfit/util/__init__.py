"""Small things every room uses: errors, atomic files, SQLite, progress, random streams, text."""
