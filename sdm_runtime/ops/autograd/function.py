"""The autograd function around the forward and the backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdm_runtime.ops.autograd.autocast import without_autocast
from sdm_runtime.ops.autograd.saved_tensors import flatten, forms_of_saved, unflatten
from sdm_runtime.ops.backward.run import forms_of, run_backward
from sdm_runtime.ops.call.bank_lease import BankLease
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.forward.run import run_forward
from sdm_runtime.ops.routes.bound_chains import release_memory
from sdm_runtime.tensor.differentiable import once_differentiable


class WriteRead(torch.autograd.Function):
    """Readings of the inputs and of the bank before the call.

    The bank is written through a detached alias, not declared with mark_dirty: a parameter (a
    leaf) can then be advanced directly, views too, and the history of `memory` stays what it was,
    so the gradient returned for it is that of the bank before the call. The lease keeps the
    version counter honest, which mark_dirty would otherwise do.

    Everything the backward reads goes through save_for_backward, so that saved-tensor hooks can
    move it; the bank does not, since the caller's own storage is what must be restored.
    """

    @staticmethod
    def forward(
        ctx: Any,
        memory: Tensor,
        k_idx: Tensor,
        k_val: Tensor,
        v: Tensor,
        beta: Tensor,
        g: Tensor,
        q_idx: Tensor,
        q_val: Tensor,
        call: Call,
    ) -> Tensor:
        """Advance the bank; keep what the backward needs."""
        inputs = Inputs(k_idx, k_val, v, beta, g, q_idx, q_val)
        lease = BankLease(memory)
        with without_autocast(memory.device.type):
            readings, saved = run_forward(lease.bank, inputs, call, keep=True)
        lease.advanced()
        assert saved is not None
        ctx.lease, ctx.call, ctx.forms = lease, call, forms_of(inputs)
        tensors = flatten(saved)
        ctx.saved_forms = forms_of_saved(tensors)
        ctx.save_for_backward(*tensors)
        return readings

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_readings: Tensor) -> tuple[Tensor | None, ...]:
        """Restore the bank; the gradients of memory, k_val, v, beta, g and q_val."""
        lease, call = ctx.lease, ctx.call
        lease.require_advanced()
        saved = unflatten(ctx.saved_tensors, ctx.saved_forms, call.geometry)
        try:
            with without_autocast(lease.bank.device.type):
                grads = run_backward(lease, ctx.forms, saved, grad_readings, call)
        except torch.OutOfMemoryError:
            release_memory()
            raise
        ordered = (
            grads.memory,
            None,
            grads.k_val,
            grads.v,
            grads.beta,
            grads.g,
            None,
            grads.q_val,
            None,
        )
        return tuple(
            x if needed else None for x, needed in zip(ordered, ctx.needs_input_grad, strict=True)
        )
