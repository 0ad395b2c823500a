"""Text that people read: names as they are shown, lists of names, and other libraries'
errors in one line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, TypeGuard

# Joiners that emoji and several scripts need; every other invisible character is shown as an
# escape.
_JOINERS = "\u200c\u200d"
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def is_text(value: Any) -> TypeGuard[str]:
    r"""True for text that can be written to a file, which excludes text with a lone
    surrogate (half a character).

    >>> is_text("λ 🚀\n"), is_text("\ud83d"), is_text(3)
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def as_name(name: Any) -> Any:
    """A number, such as that of a checkpoint, as the text of a name; anything else as it is.

    >>> as_name(1000), as_name("large"), as_name(None)
    ('1000', 'large', None)
    """
    return str(name) if isinstance(name, Real) and not isinstance(name, bool) else name


def visible(name: str) -> str:
    r"""The name on one line, with control characters, direction marks and other invisible
    characters as escapes.

    >>> print(visible("two\nlines"))
    two\nlines
    """
    if not name.strip():
        return repr(name)
    return "".join(
        c
        if unicodedata.category(c) not in _INVISIBLE or c in _JOINERS
        else c.encode("unicode_escape").decode()
        for c in name
    )


def quoted(name: str) -> str:
    """The name as it stands in a sentence: in quotes unless it is one plain word."""
    shown = visible(name)
    return shown if re.fullmatch(r"[^\W\d_](?:[^\s,;:'\"]*\w)?", shown) else f"'{shown}'"


def listed(
    names: Sequence[str],
    last: str = "and",
    *,
    most: int = 4,
    quote: Callable[[str], str] = quoted,
) -> str:
    """The names as a list in a sentence, of at most `most` items; "k more" is the last item
    of a longer list.

    `quote` is applied to each name: `quoted` to models in running text, `repr` to names in
    errors, `str` to phrases that need no quotes.

    >>> listed(["large", "tuned", "base"]), listed(list("abcdefg"), "or")
    ('large, tuned and base', 'a, b, c or 4 more')
    >>> listed(["x", "y", "z"], most=2, quote=repr)
    "'x' and 2 more"
    """
    kept = names if len(names) <= most else names[: most - 1]
    items = [quote(name) for name in kept]
    if len(kept) < len(names):
        items.append(f"{len(names) - len(kept)} more")
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def plain_number(value: float) -> str:
    """Three digits, with an exponent only where the number is very large or very small.

    >>> plain_number(1676.4), plain_number(0.05), plain_number(13400.0), plain_number(2.5e-7)
    ('1680', '0.05', '13400', '2.5e-07')
    """
    shown = f"{value:.3g}"
    return f"{float(shown):.0f}" if 1e3 <= abs(value) < 1e6 else shown


def first_line(error: BaseException) -> str:
    r"""The first line of an error's message, or the name of its type if it has no message.

    >>> first_line(ValueError("bad shape\ndetails")), first_line(KeyError())
    ('bad shape', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
