"""Names of models: any text that can be written to a file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any


def is_text(value: Any) -> bool:
    r"""Text that can be written: half a character, as a lone surrogate is, cannot.

    >>> is_text("λ 🚀\n"), is_text("\ud83d"), is_text(3)
    (True, False, False)
    """
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


# --------------------
# A result in plain words: names as shown, the summary sentence, the error that is controlled.

# Joiners that emoji and several scripts need; every other invisible character is shown as an escape.
_JOINERS = "\u200c\u200d"
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_MOST_NAMES = 4


def visible(name: str) -> str:
    r"""The name on one line: control, direction and other invisible characters as escapes.

    >>> print(visible("two\nlines"))
    two\nlines
    """
    if not name.strip():
        return repr(name)
    return "".join(
        c if unicodedata.category(c) not in _INVISIBLE or c in _JOINERS else c.encode("unicode_escape").decode()
        for c in name
    )


def quoted(name: str) -> str:
    """The name as it stands in a sentence: in quotes unless it is one plain word."""
    shown = visible(name)
    return shown if re.fullmatch(r"[^\W\d_](?:[^\s,;:'\"]*\w)?", shown) else f"'{shown}'"


def listed(names: Sequence[str], last: str = "and") -> str:
    """The names as a list in words; a long one is cut short.

    >>> listed(["gpt", "llama", "phi"]), listed(list("abcdefg"), "or")
    ('gpt, llama and phi', 'a, b, c or 4 more')
    """
    shown = [quoted(name) for name in names]
    if len(shown) > _MOST_NAMES:
        kept = _MOST_NAMES - 1
        shown = [*shown[:kept], f"{len(names) - kept} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {last} {shown[-1]}"
