"""What a caller vouches for, or asks for, around calls of bf16_linear. Per thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Tactic:
    """A row of the kernel's tactic table, and how many blocks share an output tile's depth."""

    index: int
    splits: int

    def for_core(self) -> tuple[int, int]:
        """As the core's launchers take it."""
        return self.index, self.splits


class _Modes(threading.local):
    static_weights: bool = False
    forced: Tactic | None = None


_modes = _Modes()


def weights_are_static() -> bool:
    """Whether this thread is inside :func:`static_weights`."""
    return _modes.static_weights


def forced() -> Tactic | None:
    """The tactic of :func:`forced_tactic` on this thread."""
    return _modes.forced


@contextmanager
def static_weights() -> Iterator[None]:
    """Vouch that no kernel in flight writes a weight or bias that bf16_linear gets inside.

    The kernel may then be launched programmatically: it reads its weight while the kernel before
    it on the stream is still running, and waits for that one only before it reads x and the bias.
    True in decoding; not true right after an optimizer step on the same stream. A graph captured
    inside keeps the launches as they are, so the promise goes for its replays too.
    """
    before = _modes.static_weights
    _modes.static_weights = True
    try:
        yield
    finally:
        _modes.static_weights = before


@contextmanager
def forced_tactic(index: int, splits: int) -> Iterator[None]:
    """Make bf16_linear use its kernel, with this tactic, whatever the rule says: for tuning.

    Inside, a call that the kernel cannot serve is a ValueError, not a fallback.
    """
    before = _modes.forced
    _modes.forced = Tactic(index, splits)
    try:
        yield
    finally:
        _modes.forced = before
