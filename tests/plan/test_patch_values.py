"""Patches at the ends of 64 bits: the line fits, its parts need not."""

import pytest
import torch
from plan_cases import edited, from_bytes, plan_bytes, records

from sdm_runtime import PlanError, StepChain, kernels
from sdm_runtime.format.plan_format import PatchRecord

P, C, HD, STEPS = 1, 4, 8, 3
MOST = (1 << 63) - 1
LINES = [
    # base, stride; the steps that the launches of steps 0, 1 and 2 then take, clamped to 0..2
    (0, 1, [0, 1, 2]),
    (MOST, -MOST, [2, 0, 0]),  # 2 * stride leaves int64, base + 2 * stride does not
    (-MOST - 1, MOST, [0, 0, 2]),
]


def patched_chain(t, base, stride):
    data = plan_bytes(kernels.plan_gx_gemm(**t, steps=STEPS, num_parallel=P))
    at = next(at for kind, at in records(data) if kind is PatchRecord)
    line = {"base": base, "stride": stride, "lowest": 0, "highest": STEPS - 1}
    plan = from_bytes(edited(data, PatchRecord, at, **line))
    return StepChain([plan.bind(**t)], STEPS)


@pytest.mark.parametrize(("base", "stride", "steps"), LINES)
def test_a_line_that_fits_is_followed(base, stride, steps):
    t = {"d_u": torch.zeros(STEPS, C, HD), "x": torch.ones(STEPS, C, C)}
    t["d_dv"] = torch.ones(STEPS, C, HD)
    chain = patched_chain(t, base, stride)
    chain.run()
    times = [float(t["d_u"][step, 0, 0]) / C for step in range(STEPS)]
    assert times == [steps.count(step) for step in range(STEPS)]


def test_a_line_that_leaves_64_bits_is_refused():
    t = {"d_u": torch.zeros(STEPS, C, HD), "x": torch.ones(STEPS, C, C)}
    t["d_dv"] = torch.ones(STEPS, C, HD)
    with pytest.raises(PlanError, match=r"base \+ step \* stride leaves int64"):
        patched_chain(t, MOST, 1)
