"""What every refusal must be: an InputError whose message is one line and says what the reader needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relfit.util.errors import InputError


def refused(call: Callable[[], Any], *parts: str) -> str:
    """Run the call, which must be refused in one line that contains every part; return the line."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1, message
    assert message == message.strip()
    for part in parts:
        assert part in message, f"{part!r} is missing from {message!r}"
    return message
