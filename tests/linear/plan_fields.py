"""Numbers in the parameter block of a plan's bytes."""

from __future__ import annotations

from plan_cases import params_offset, records, reseal

from sdm_runtime.format.plan_format import FieldRecord
from sdm_runtime.format.records import text


def field_span(data, name: str) -> slice:
    """The bytes of a field in the parameter block."""
    start = params_offset(data)
    for kind, at in records(data):
        if kind is FieldRecord and text((field := kind.unpack(data, at)).name) == name:
            return slice(start + field.offset, start + field.offset + field.size)
    raise KeyError(name)


def field_value(data, name: str) -> int:
    return int.from_bytes(data[field_span(data, name)], "little", signed=True)


def with_fields(data, **values: int) -> bytearray:
    """A copy with these numbers in the block, sealed."""
    changed = bytearray(data)
    for name, value in values.items():
        span = field_span(data, name)
        changed[span] = value.to_bytes(span.stop - span.start, "little", signed=True)
    return reseal(changed)


def inverse(splits: int) -> int:
    """What the kernel multiplies by for a division by the splits."""
    return -(-(1 << 30) // splits)
