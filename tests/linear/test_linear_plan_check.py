"""What the plan check of bf16_linear refuses; the plan is recorded for a GPU that is not there."""

from __future__ import annotations

import pytest
import torch
from core_testing import core_testing
from cuda_refs import as_cuda
from linear_cases import operands
from plan_cases import edited, find_reloc, from_bytes

from sdm_runtime import PlanError
from sdm_runtime.format.plan_format import RelocRecord


def single_plan(m: int, n: int, k: int) -> bytearray:
    """In two splits, without a bias."""
    x, weight, _ = operands(m, n, k)
    y = torch.zeros(m, n).bfloat16()
    refs = (as_cuda(x, data=1 << 20), as_cuda(weight, data=1 << 21), None, as_cuda(y, data=1 << 22))
    return bytearray(core_testing().hopper_plan_bf16_linear(*refs, (0, 2), False, 132))


@pytest.mark.parametrize(("operand", "align"), [("x", 3), ("weight", 3), ("y", 1)])
def test_alignments_are_those_of_the_copy_engine_and_of_paired_stores(operand, align):
    data = single_plan(3, 64, 256)
    from_bytes(data)  # the control
    with pytest.raises(PlanError, match=rf"\[bf16_linear\] {operand}: expected addresses aligned"):
        from_bytes(edited(data, RelocRecord, find_reloc(data, operand), align_log2=align))


def test_columns_that_are_stored_one_by_one_need_no_more_than_their_own_alignment():
    data = single_plan(3, 63, 256)
    assert RelocRecord.unpack(data, find_reloc(data, "y")).align_log2 == 1
    from_bytes(data)
