"""The forward as a device takes it, one chain that nothing looks into, run on CPU tensors."""

from __future__ import annotations

import pytest
import torch
from op_cases import Case, errors, run
from test_op_values import _LIMIT, _SHAPES

from sdm_runtime.ops.forward import chain as forward_chain


@pytest.fixture(autouse=True)
def _no_value_is_read(monkeypatch):
    monkeypatch.setattr(forward_chain, "reads_are_free", lambda x: False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", _SHAPES)
def test_matches_the_recurrence(name, dtype):
    found = errors(_SHAPES[name].but(dtype=dtype))
    assert max(found.values()) < _LIMIT[dtype], found


@pytest.mark.parametrize("quant", ["none", "bf16", "fp8", "int4"])
@pytest.mark.parametrize("bank", [torch.float32, torch.bfloat16])
def test_same_bits_as_step_by_step(bank, quant, monkeypatch):
    case = Case(dtype=bank, options={"snapshot_quant": quant})
    given = run(case)
    monkeypatch.setattr(forward_chain, "reads_are_free", lambda x: True)
    wanted = run(case)
    assert torch.equal(given.readings, wanted.readings)
    assert torch.equal(given.advanced, wanted.advanced)
    for name, x in wanted.grads.items():
        assert torch.equal(given.grads[name], x), name
