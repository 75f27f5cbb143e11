"""Spans that share bytes, found without comparing every two of them: files come from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sdm_runtime.inspect.reading.model import Operand


class Span(NamedTuple):
    """The bytes ``begin..end`` that a launch reaches through an operand's pointer."""

    begin: int
    end: int
    operand: Operand


class _Furthest:
    """Of the spans so far the one that ends last, and the last one of another operand than it."""

    def __init__(self) -> None:
        self._best: Span | None = None
        self._other: Span | None = None

    def add(self, span: Span) -> None:
        best = self._best
        if best is None or span.end > best.end:
            if best is not None and best.operand.name != span.operand.name:
                self._other = best
            self._best = span
        elif span.operand.name != best.operand.name and (
            self._other is None or span.end > self._other.end
        ):
            self._other = span

    def get(self, unlike: str | None) -> Span | None:
        """The one that ends last, of an operand that is not called ``unlike``."""
        if self._best is not None and self._best.operand.name == unlike:
            return self._other
        return self._best


def shared_bytes(spans: Iterable[Span], *, of_one_operand: bool) -> Iterator[tuple[Span, Span]]:
    """Pairs that share bytes which one of the two writes, in the order of the file.

    Every span that starts inside another is in one pair, with the one that reaches furthest. With
    ``of_one_operand`` the spans are all of one; else a pair is of two operands.
    """
    everything, written = _Furthest(), _Furthest()
    ordered = sorted(spans, key=lambda span: (span.begin, span.operand.record_at))
    for span in ordered:
        if span.begin >= span.end:
            continue
        unlike = None if of_one_operand else span.operand.name
        earlier = (everything if span.operand.writes else written).get(unlike)
        if earlier is not None and earlier.end > span.begin:
            if earlier.operand.record_at < span.operand.record_at:
                yield earlier, span
            else:
                yield span, earlier
        everything.add(span)
        if span.operand.writes:
            written.add(span)
