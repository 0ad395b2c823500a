"""Names of models: any text that can be written to a file."""

from __future__ import annotations

from typing import Any


def is_text(value: Any) -> bool:
    r"""Text that can be written: half a character, as a lone surrogate is, cannot.

    >>> is_text("λ 🚀\n"), is_text("\ud83d"), is_text(3)
    (True, False, False)
    """
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
