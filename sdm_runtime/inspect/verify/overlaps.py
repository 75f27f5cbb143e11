"""Operands that must be apart, within a plan and across the plans of a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdm_runtime.format.records import word
from sdm_runtime.inspect.reading.model import Operand
from sdm_runtime.inspect.verify.findings import Finding, Place
from sdm_runtime.inspect.verify.sweep import Span, shared_bytes


def check_overlaps(place: Place) -> Iterator[Finding]:
    """Two pointers into one operand share no byte that the launch writes."""
    by_name: dict[str, list[Span]] = {}
    for operand in place.plan.operands:
        span = Span(operand.offset, operand.offset + operand.extent, operand)
        by_name.setdefault(operand.name, []).append(span)
    for name, spans in by_name.items():
        for a, b in shared_bytes(spans, of_one_operand=True):
            begin, end = max(a.begin, b.begin), min(a.end, b.end)
            message = (
                f"'{a.operand.field}' and '{b.operand.field}' both point into '{name}' and share "
                f"its bytes {begin}..{end}, which the launch writes in any order"
            )
            yield place.error("overlap", message, subject=name, byte=b.operand.record_at)


def check_same_operands(places: Sequence[Place]) -> Iterator[Finding]:
    """An operand that several plans name can be one tensor: the same bytes and dtype."""
    seen: dict[str, tuple[Place, Operand]] = {}
    for place in places:
        for operand in place.plan.operands:
            first_place, first = seen.setdefault(operand.name, (place, operand))
            if _needed(first) != _needed(operand):
                message = (
                    f"'{operand.name}' is {_needed(operand)} here and {_needed(first)} in plan "
                    f"{first_place.index} ({first_place.plan.kernel}): no tensor is both. Plans of "
                    "two shapes in one chain?"
                )
                yield place.error("operands", message, subject=operand.name, byte=operand.record_at)


def _needed(operand: Operand) -> str:
    return f"{operand.offset + operand.extent} bytes of {word(operand.dtype)}"
