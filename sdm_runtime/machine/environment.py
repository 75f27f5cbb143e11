"""Environment variables: switches, and words of a list. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence

_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


def switch(name: str) -> bool:
    """Whether a switch is on, now: 1, true, yes or on, in any case.

    It is off when it is 0, false, no, off, empty or not set. Raises ValueError for another word:
    who sets it to something should not find out later that it meant nothing.
    """
    value = os.environ.get(name)
    if value is None:
        return False
    word = value.lower()
    if word not in _ON and word not in _OFF:
        raise ValueError(
            f"{name}: expected 1, true, yes or on; or 0, false, no, off or nothing, got '{value}'"
        )
    return word in _ON


def expect_choice(name: str, words: Sequence[str]) -> None:
    """Raise ValueError where the variable is set to something that is none of ``words``."""
    value = os.environ.get(name)
    if value is not None and value not in words:
        expected = f"{', '.join(words[:-1])} or {words[-1]}"
        raise ValueError(f"{name}: expected {expected}, got '{value}'")
