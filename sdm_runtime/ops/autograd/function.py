"""The autograd function around the forward and the backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdm_runtime.ops.autograd.autocast import without_autocast
from sdm_runtime.ops.autograd.later_uses import LaterUses, has_earlier_uses
from sdm_runtime.ops.autograd.saved_tensors import HandedOver, flatten
from sdm_runtime.ops.backward.run import forms_of, run_backward
from sdm_runtime.ops.call.bank_lease import BankLease, Watcher
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.forward.progress import Progress
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
        lease: BankLease,
        progress: Progress,
    ) -> Tensor:
        """Advance the bank; keep what the backward needs."""
        inputs = Inputs(k_idx, k_val, v, beta, g, q_idx, q_val)
        bank = lease.bank
        with without_autocast(bank.device.type):
            readings, saved = run_forward(bank, inputs, call, keep=True, progress=progress)
        lease.advanced()
        assert saved is not None
        ctx.lease, ctx.call, ctx.forms = lease, call, forms_of(inputs)
        ctx.later_uses = None
        tensors = flatten(saved)
        ctx.handed_over = HandedOver(tensors, call)
        ctx.save_for_backward(*tensors)
        return readings

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_readings: Tensor) -> tuple[Tensor | None, ...]:
        """Restore the bank; the gradients of memory, k_val, v, beta, g and q_val."""
        lease, call = ctx.lease, ctx.call
        lease.require_advanced()
        saved, exact, same_delta = ctx.handed_over.take_back(ctx.saved_tensors)
        if call.keep_state and not (exact and same_delta):
            raise ValueError(
                "[sdm_write_read] backward: expected the saved snapshot and delta to the bit, "
                "since keep_state=True makes the bank of them again, got rounded ones from a "
                "saved-tensor hook"
            )
        try:
            with without_autocast(lease.bank.device.type):
                grads = run_backward(
                    *(lease, ctx.forms, saved, grad_readings, call),
                    exact=exact and call.form.exact,
                )
        except torch.OutOfMemoryError:
            release_memory()
            raise
        if ctx.later_uses is not None:
            ctx.later_uses.returned(grads.memory)
        g = grads
        inputs = (g.memory, None, g.k_val, g.v, g.beta, g.g, None, g.q_val)
        ordered = (*inputs, None, None, None)
        return tuple(
            x if needed else None for x, needed in zip(ordered, ctx.needs_input_grad, strict=True)
        )


def advance(
    memory: Tensor, inputs: Inputs, call: Call, lease: BankLease, progress: Progress
) -> Tensor:
    """The readings of a call with a backward to come."""
    watched = memory.requires_grad and memory.is_leaf and not has_earlier_uses(memory)
    readings: Tensor = WriteRead.apply(memory, *inputs, call, lease, progress)  # type: ignore[no-untyped-call]
    if watched:
        node: Any = readings.grad_fn
        node.later_uses = LaterUses(memory, lease)
    return readings


def watch_bank(readings: Tensor, watcher: Watcher) -> None:
    """Tell `watcher`, as long as it lives, what the backward of a call does to its bank.

    readings: as the call returned them, with a backward to come. Of tensors without memory there is
    no bank to restore.
    """
    lease: BankLease | None = getattr(readings.grad_fn, "lease", None)
    if lease is not None:
        lease.watch(watcher)
