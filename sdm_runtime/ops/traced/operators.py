"""`torch.ops.sdm_runtime.write_read`, with its gradient.

    write_read(Tensor(a!) memory, Tensor k_idx, Tensor k_val, Tensor v, Tensor beta, Tensor g,
               Tensor q_idx, Tensor q_val, *, <the options of sdm_write_read>) -> Tensor

Called on tensors that are their memory it is `sdm_write_read`. A tracer, a fake mode or another
dispatch mode sees it, or with gradients the two operators of `parts.py`; there the order of the
backwards is the graph's, which no lease has to watch. See DESIGN.md, "As an operator",
in the folder above.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from sdm_runtime.ops.autograd.eager import write_read
from sdm_runtime.ops.call.checks import check_form
from sdm_runtime.ops.call.plain_tensors import check_untransformed
from sdm_runtime.ops.call.staging import Inputs, new_readings
from sdm_runtime.ops.traced.parts import INPUTS, Sizes, define, fake_call, implement
from sdm_runtime.ops.traced.tracing import claim, is_graph_input, is_real
from sdm_runtime.tensor.differentiable import once_differentiable

# The options as sdm_write_read has them. torch hands no option over that is its default.
_OPTIONS = (
    "int chunk_size=64, SymInt num_memory_slots=0, SymInt num_parallel=1, "
    'str snapshot_quant="none", bool grad_bank_fp32=False, str gemm="auto", '
    "bool shared_bank=False, bool keep_state=False"
)
_DEFAULTS: dict[str, Any] = {
    "chunk_size": 64,
    "num_memory_slots": 0,
    "num_parallel": 1,
    "snapshot_quant": "none",
    "grad_bank_fp32": False,
    "gemm": "auto",
    "shared_bank": False,
    "keep_state": False,
}


def by_operator(memory: Tensor, inputs: Inputs, **options: Any) -> Tensor:
    """The call as a node of a graph, or of fake tensors."""
    readings: Tensor = torch.ops.sdm_runtime.write_read.default(memory, *inputs, **options)
    return readings


def _run(memory: Tensor, *tensors: Tensor, **options: Any) -> Tensor:
    """Without a backward to come."""
    with torch.no_grad():
        return write_read(memory, Inputs(*tensors), **(_DEFAULTS | options))


def _fake(memory: Tensor, *tensors: Tensor, **options: Any) -> Tensor:
    inputs, call = fake_call(memory, Inputs(*tensors), _DEFAULTS | options)
    return new_readings(memory, inputs, call.geometry)


def _differentiable(memory: Tensor, *tensors: Tensor, **options: Any) -> Tensor:
    """What autograd sees of a call: one function of ours, or nothing."""
    inputs, given = Inputs(*tensors), _DEFAULTS | options
    differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in (memory, *inputs))
    # A mode that looks on may see a call without a gradient; with one, a lease has to be taken.
    if is_real(memory) and (differentiable or not torch._C._len_torch_dispatch_stack()):
        return write_read(memory, inputs, **given)
    for name, x in (("memory", memory), *inputs._asdict().items()):
        check_untransformed(name, x)
    if differentiable:
        claim(memory)
        sequences, _ = check_form(memory, inputs, **given)
        readings: Tensor = _WriteRead.apply(memory, *sequences, given)  # type: ignore[no-untyped-call]
        return readings
    with torch._C._AutoDispatchBelowAutograd():
        return by_operator(memory, inputs, **given)


class _WriteRead(torch.autograd.Function):
    """The operation in the two operators that a graph can hold.

    The backward restores the bank as it does in eager: in a compiled graph its value, and with it
    the caller's tensor if the graph was given it. What such a graph has made and returns cannot
    change after its forward: torch refuses that, and the graph returns a clone.
    """

    @staticmethod
    def forward(ctx: Any, memory: Tensor, *arguments: Any) -> Tensor:
        """Advance the bank; keep what the backward needs."""
        *tensors, given = arguments
        options = {name: value for name, value in given.items() if name != "keep_state"}
        ctx.keep_state = given["keep_state"]
        # Written in place, the caller's tensor would be what is saved, and compilers take what is
        # saved for memory that a backward may use up.
        ctx.given = memory.detach() if is_graph_input(memory) else None
        bank = memory.detach() if ctx.given is None else torch.ops.sdm_runtime.copy_bank(memory)
        ctx.sizes = Sizes.of(Inputs(*tensors), options)._asdict()
        saving = torch.ops.sdm_runtime.write_read_saving.default
        with torch._C._AutoDispatchBelowAutograd():
            readings, *saved = saving(bank, *tensors, **options)
            if ctx.given is not None:
                ctx.given.copy_(bank)
        ctx.save_for_backward(*saved)
        ctx.bank = bank
        result: Tensor = readings
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_readings: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of memory, k_val, v, beta, g and q_val."""
        copied = ctx.given is None and ctx.keep_state
        bank = ctx.bank.clone() if copied else ctx.bank
        backward = torch.ops.sdm_runtime.write_read_backward.default
        grads = backward(bank, *ctx.saved_tensors, grad_readings, **ctx.sizes)
        if ctx.given is not None and not ctx.keep_state:
            ctx.given.copy_(bank)
        memory, k_val, v, beta, g, q_val = grads
        ordered = (memory, None, k_val, v, beta, g, None, q_val, None)
        return tuple(
            x if needed else None for x, needed in zip(ordered, ctx.needs_input_grad, strict=True)
        )


def _refuse_vmap(*_: Any, **__: Any) -> NoReturn:
    raise TypeError(
        "[sdm_write_read] expected tensors outside of torch.func (the operation has a backward of "
        "its own and no rules for vmap, grad or jvp), got one inside of vmap"
    )


define("write_read", f"({INPUTS}, *, {_OPTIONS}) -> Tensor", _run, _fake)
implement("write_read", _differentiable, "Autograd")
implement("write_read", _refuse_vmap, "FuncTorchBatched")
