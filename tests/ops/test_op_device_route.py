"""The operations that a device takes, whose sizes follow from shapes alone, run on CPU tensors."""

from __future__ import annotations

import pytest
import torch
from op_cases import Case, errors, run
from test_op_values import _LIMIT, _SHAPES

from sdm_runtime.ops import step_indices, step_loop


@pytest.fixture(autouse=True)
def _no_value_is_read(monkeypatch):
    for module in (step_indices, step_loop):
        monkeypatch.setattr(module, "reads_are_free", lambda x: False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", _SHAPES)
def test_matches_the_recurrence(name, dtype):
    found = errors(_SHAPES[name].but(dtype=dtype))
    assert max(found.values()) < _LIMIT[dtype], found


@pytest.mark.parametrize("quant", ["bf16", "fp8", "int4"])
@pytest.mark.parametrize("bank", [torch.float32, torch.bfloat16])
def test_matches_the_host_route_for_every_snapshot(bank, quant, monkeypatch):
    case = Case(dtype=bank, options={"snapshot_quant": quant})
    given = run(case)
    for module in (step_indices, step_loop):
        monkeypatch.setattr(module, "reads_are_free", lambda x: True)
    wanted = run(case)
    limit = 1e-6 if bank == torch.float32 else 4e-3
    for name, x in wanted.grads.items():
        torch.testing.assert_close(given.grads[name], x, rtol=limit, atol=limit * x.abs().max())
