"""What a caller vouches for, or asks for, around calls of bf16_linear.

Per thread, and in asyncio per task: what one says before it waits is not said for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Tactic:
    """A row of the kernel's tactic table, and how many blocks share an output tile's depth."""

    index: int
    splits: int

    def for_core(self) -> tuple[int, int]:
        """As the core's launchers take it."""
        return self.index, self.splits


_static_weights: ContextVar[bool] = ContextVar("static_weights", default=False)
_forced: ContextVar[Tactic | None] = ContextVar("forced_tactic", default=None)


def weights_are_static() -> bool:
    """Whether this thread, or task, is inside :func:`static_weights`."""
    return _static_weights.get()


def forced() -> Tactic | None:
    """The tactic of :func:`forced_tactic` on this thread, or task."""
    return _forced.get()


@contextmanager
def static_weights() -> Iterator[None]:
    """Vouch that no kernel in flight writes a weight or bias that bf16_linear gets inside.

    The kernel may then be launched programmatically: it reads its weight while the kernel before
    it on the stream is still running, and waits for that one only before it reads x and the bias.
    True in decoding; not true right after an optimizer step on the same stream. A graph captured
    inside keeps the launches as they are, so the promise goes for its replays too.
    """
    before = _static_weights.get()
    _static_weights.set(True)
    try:
        yield
    finally:  # no reset by token: a generator of its own may end it in another context
        _static_weights.set(before)


@contextmanager
def forced_tactic(index: int, splits: int) -> Iterator[None]:
    """Make bf16_linear use its kernel, with this tactic, whatever the rule says: for tuning.

    Inside, a call that the kernel cannot serve is a ValueError, not a fallback.
    """
    before = _forced.get()
    _forced.set(Tactic(index, splits))
    try:
        yield
    finally:
        _forced.set(before)
