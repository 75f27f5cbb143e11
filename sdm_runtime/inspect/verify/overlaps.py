"""Operands that must be apart, within a plan and across the plans of a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from sdm_runtime.inspect.model import Operand
from sdm_runtime.inspect.verify.findings import Finding, Place
from sdm_runtime.plan_records import word


def check_overlaps(place: Place) -> Iterator[Finding]:
    """Two pointers into one operand share no byte that the launch writes."""
    for a, b in combinations(place.plan.operands, 2):
        if a.name != b.name or not (a.writes or b.writes):
            continue
        begin = max(a.offset, b.offset)
        end = min(a.offset + a.extent, b.offset + b.extent)
        if begin < end:
            message = (
                f"'{a.field}' and '{b.field}' both point into '{a.name}' and share its bytes "
                f"{begin}..{end}, which the launch writes in any order"
            )
            yield place.error("overlap", message, subject=a.name, byte=b.record_at)


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
