"""Values of any kind as messages show them."""

from __future__ import annotations

_MOST_CHARACTERS = 40


def short(value: object) -> str:
    """Return a value on one short line; of what holds others, or is of no plain type, the type."""
    if value is None:
        return "none"
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if not isinstance(value, (str, int, float)):
        return f"a {type(value).__name__}"
    text = str(value)
    shown = text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + ".."
    return "".join(c if c.isprintable() else "?" for c in shown)
