"""Row formats in plans: a number of none, or of one that cannot be there, is refused by name."""

from __future__ import annotations

import re

import pytest
from kernel_cases import BF16, F32, INT4, Shape
from plan_cases import (
    chain_operands,
    chain_plans,
    from_bytes,
    params_offset,
    plan_bytes,
    records,
    reseal,
)

from sdm_runtime import PlanError
from sdm_runtime.format.plan_format import FieldRecord
from sdm_runtime.format.records import text

PLAIN = "a row format: 1 (f32), 2 (bf16), got"
ANY = "a row format: 1 (f32), 2 (bf16), 3 (fp8), 4 (int4), got"


def pa2_plan(types: tuple[str, str, str], **changed: int) -> bytearray:
    """The bytes of a plan of gx_pa2, with other numbers in some fields."""
    shape = Shape(hd=30, types=types)
    data = plan_bytes(chain_plans(chain_operands(shape), shape)[2])
    for kind, at in records(data):
        if kind is FieldRecord and (name := text((field := kind.unpack(data, at)).name)) in changed:
            start = params_offset(data) + field.offset
            data[start : start + 4] = changed.pop(name).to_bytes(4, "little")
    assert changed == {}
    return reseal(data)


@pytest.mark.parametrize(
    ("types", "field", "number", "message"),
    [
        ((BF16, BF16, F32), "bank_type", 3, f"bank_type: expected {PLAIN} 3"),
        ((BF16, BF16, F32), "grad_type", 0, f"grad_type: expected {PLAIN} 0"),
        ((BF16, BF16, F32), "snap_type", 5, f"snap_type: expected {ANY} 5"),
        ((BF16, INT4, F32), "snap_type", 0, f"snap_type: expected {ANY} 0"),
        ((BF16, BF16, F32), "snap_type", 1, "rows no wider than the bank's, got f32"),
        ((BF16, INT4, F32), "hd", 15, "hd: expected whole bytes of codes, got 15"),
    ],
)
def test_wrong_row_types(
    types: tuple[str, str, str], field: str, number: int, message: str
) -> None:
    from_bytes(pa2_plan(types))
    with pytest.raises(PlanError, match=re.escape(message)):
        from_bytes(pa2_plan(types, **{field: number}))
