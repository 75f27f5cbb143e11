"""What a launch's parameter block holds."""

from __future__ import annotations

from sdm_runtime.format.plan_format import PatchKind
from sdm_runtime.inspect.reading.model import PlanModel


def patched_block(plan: PlanModel, ti: int) -> bytes:
    """The parameter block of step ``ti``, its pointers zero: addresses come with the binding."""
    start = plan.params_at - plan.at
    block = bytearray(plan.data[start : start + plan.header.param_bytes])
    for patch in plan.patches:
        field = plan.field(patch.field)
        assert field is not None  # decoding checked it
        if patch.kind is not PatchKind.POINTER:
            # A value that the field cannot hold is for `verify` to find; here its low bits stand.
            value = patch.value(ti) % (1 << 8 * field.size)
            place = slice(field.offset, field.offset + field.size)
            block[place] = value.to_bytes(field.size, "little")
    return bytes(block)
