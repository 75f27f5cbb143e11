"""Until the operation lands: a slow stand-in with its manners (in place, restored, once)."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from layer_model64 import recurrence

import sdm_runtime


class _SlowOp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, memory, k_idx, k_val, v, beta, g, q_idx, q_val, slots):
        inputs = (memory, k_val, v, beta, g, q_val)
        saved = memory.clone()
        ctx.save_for_backward(saved, k_idx, q_idx, *inputs)
        ctx.slots = slots
        with torch.no_grad():
            readings, final = _SlowOp.run(saved, k_idx, q_idx, inputs[1:], slots)
            memory.data.copy_(final)
        return readings

    @staticmethod
    def run(memory, k_idx, q_idx, rest, slots):
        dtype = memory.dtype
        k_val, v, beta, g, q_val = (t.double() for t in rest)
        k_val, v, q_val = (t.to(dtype).double() for t in (k_val, v, q_val))
        bank = memory.double().view(-1, slots, memory.shape[-1])
        offset = torch.arange(bank.shape[0]).view(-1, 1, 1) * slots
        g = g.expand_as(k_val)
        readings, final = recurrence(
            bank, k_idx.long() - offset, k_val, v, beta, g, q_idx.long() - offset, q_val
        )
        return readings.flatten(0, 1).to(dtype), final.flatten(0, 1)

    @staticmethod
    def backward(ctx, grad):
        saved, k_idx, q_idx, memory, *rest = ctx.saved_tensors
        leaves = [t.detach().requires_grad_() for t in (saved, *rest)]
        with torch.enable_grad():
            readings, _ = _SlowOp.run(leaves[0], k_idx, q_idx, leaves[1:], ctx.slots)
        gm, gk, gv, gb, gg, gq = torch.autograd.grad(readings, leaves, grad)
        if getattr(ctx, "done", False):
            raise RuntimeError("second backward")
        ctx.done = True
        memory.data.copy_(saved)
        return gm, None, gk, gv, gb, gg, None, gq, None


def slow_write_read(memory, k_idx, k_val, v, beta, g, q_idx, q_val, *, num_memory_slots, **_):
    return _SlowOp.apply(memory, k_idx, k_val, v, beta, g, q_idx, q_val, num_memory_slots)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    if importlib.util.find_spec("sdm_runtime.ops") is None:
        monkeypatch.setitem(vars(sdm_runtime), "sdm_write_read", slow_write_read)
