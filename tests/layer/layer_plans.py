"""What the tests of the layer's plans share."""

from __future__ import annotations

from plan_cases import params_offset, plan_bytes, records, reseal

from sdm_runtime import Plan
from sdm_runtime.format.plan_format import FieldRecord
from sdm_runtime.format.records import text


def with_fields(plan: Plan, **values: int) -> bytearray:
    """A plan's bytes with other numbers in some fields of the parameter block."""
    data = plan_bytes(plan)
    left = dict(values)
    for kind, at in records(data):
        if kind is FieldRecord and (name := text((field := kind.unpack(data, at)).name)) in left:
            start = params_offset(data) + field.offset
            number = left.pop(name).to_bytes(field.size, "little", signed=True)
            data[start : start + field.size] = number
    assert left == {}
    return reseal(data)
