"""Calls without a backward to come."""

from __future__ import annotations

import pytest
import torch
from op_cases import Case, call, make_inputs
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime.ops.call import geometry

CASE = Case(P=2, T=100, S=30, gate_per_write=True)


def _advance(case, grad_mode, requires_grad):
    inputs = make_inputs(case)
    inputs["v"].requires_grad_(requires_grad)
    with torch.set_grad_enabled(grad_mode):
        readings = call(case, inputs)
    return readings, inputs["memory"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("segment", [1, 64 << 20])
def test_same_bits_as_with_a_backward(dtype, segment, monkeypatch):
    monkeypatch.setattr(geometry, "_SEGMENT_BYTES_HOST", segment)
    case = CASE.but(dtype=dtype)
    wanted, bank = _advance(case, True, True)
    assert wanted.requires_grad
    for grad_mode, requires_grad in ((False, True), (True, False)):
        given, advanced = _advance(case, grad_mode, requires_grad)
        assert not given.requires_grad
        assert torch.equal(given, wanted.detach())
        assert torch.equal(advanced, bank)


def test_inference_mode():
    wanted, _ = _advance(CASE, False, False)
    with torch.inference_mode():
        inputs = make_inputs(CASE)
        assert torch.equal(call(CASE, inputs), wanted)


def test_calls_continue_each_other():
    # Cut at a chunk boundary, two calls are one.
    whole = make_inputs(CASE.but(T=96))
    wanted = call(CASE.but(T=96), dict(whole, memory=whole["memory"].clone()))
    bank = whole["memory"].clone()
    parts = []
    for part in (slice(0, 32), slice(32, 96)):
        cut = {k: x[:, part] for k, x in whole.items() if k != "memory"}
        parts.append(call(CASE, {"memory": bank, **cut}).view(2, -1, CASE.hd))
    assert torch.equal(torch.cat(parts, 1), wanted.view(2, -1, CASE.hd))


class _Largest(TorchDispatchMode):
    """Bytes of the largest tensor that an operation makes."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, torch.Tensor):
                self.bytes = max(self.bytes, x.untyped_storage().nbytes())
        return out


def _largest(tokens, requires_grad):
    case = Case(P=1, T=tokens, S=64, hd=8, W=8, R=8, C=16)
    inputs = make_inputs(case)
    # What the caller holds does not count, nor do the readings: both are as long as T.
    inputs["v"].requires_grad_(requires_grad)
    with _Largest() as largest:
        call(case, inputs)
    return largest.bytes


def test_working_memory_does_not_grow_with_the_tokens(monkeypatch):
    monkeypatch.setattr(geometry, "_SEGMENT_BYTES_HOST", 1 << 18)
    longest = 3200
    readings = longest * 8 * 4
    assert _largest(longest, False) <= max(_largest(800, False), readings)
    # The control: with a backward to come it does.
    assert _largest(longest, True) > 3 * _largest(800, True) > 0
