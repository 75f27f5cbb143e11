"""A call on tensors that are their memory: checked, run, and recorded for its backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdm_runtime.ops.autograd.autocast import without_autocast
from sdm_runtime.ops.autograd.function import advance
from sdm_runtime.ops.call.bank_lease import BankLease, PassingWrite
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.checks import check_backend, check_call, check_saveable
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.forward.progress import Progress
from sdm_runtime.ops.forward.run import run_forward
from sdm_runtime.ops.routes.bound_chains import release_memory


def write_read(memory: Tensor, inputs: Inputs, **options: Any) -> Tensor:
    """What `sdm_write_read` says, of its arguments."""
    inputs, call = check_call(memory, inputs, **options)
    check_backend(memory)
    try:
        return _dispatch(memory, inputs, call)
    except torch.OutOfMemoryError:
        release_memory()
        raise


def _dispatch(memory: Tensor, inputs: Inputs, call: Call) -> Tensor:
    differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in (memory, *inputs))
    if differentiable:
        check_saveable(memory, inputs)
    progress = Progress()
    hold: BankLease | PassingWrite
    hold = BankLease(memory, keep_state=call.keep_state) if differentiable else PassingWrite(memory)
    try:
        if isinstance(hold, BankLease):
            readings = advance(memory, inputs, call, hold, progress)
        else:
            with torch.no_grad(), without_autocast(memory.device.type):
                readings, _ = run_forward(hold.bank, inputs, call, keep=False, progress=progress)
            hold.advanced()
    except BaseException as error:
        _undo(hold, progress, call, error)
        raise
    return readings


def _undo(
    hold: BankLease | PassingWrite, progress: Progress, call: Call, error: BaseException
) -> None:
    """After a forward that raised: the bank as it was, or known to be half written."""
    if not hold.undoing():
        return
    restored = False
    try:
        restored = progress.undo(hold.bank, call.geometry, exact=call.form.exact)
    finally:
        if restored:
            hold.undone(repeated=type(error).__module__ == "torch.utils.checkpoint")
        else:
            reason = str(error) or type(error).__name__
            hold.failed(f"a call that advances it has failed ({reason})")
