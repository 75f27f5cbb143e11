"""The backward: the step chain from the last step to the first, then everything else at once."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from sdm_runtime.dispatch import chain_to_offer, offer_chain
from sdm_runtime.errors import CudaError, PlanError
from sdm_runtime.ops.backward import chain as chain_run
from sdm_runtime.ops.backward.advance_again import advance_again
from sdm_runtime.ops.backward.operands import ChainOperands, allocate_operands, fill_operands
from sdm_runtime.ops.backward.terms import InputGradients, TermsRoom, input_gradients
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.ops.call.staging import Inputs, heads_of, rows_shape
from sdm_runtime.ops.chunks.chunk_kernels import WeightGradients, kernel_dtype
from sdm_runtime.ops.forward.store import Saved
from sdm_runtime.ops.routes.step_chain import report


class Lease(Protocol):
    """Who says what becomes of the bank."""

    @property
    def bank(self) -> Tensor:
        """As the forward has left it."""

    @property
    def keep_state(self) -> bool:
        """Whether it is to be left like that in the end."""

    def restoring(self) -> None:
        """The chain is about to write it; raises if it may not."""

    def not_restored(self) -> None:
        """The chain has written nothing."""

    def broken(self, reason: str) -> None:
        """A part of the rows was written."""

    def kept(self) -> None:
        """Restored, and advanced again."""

    def restored(self, *, exact: bool) -> None:
        """Restored; exact: to the bit."""


class InputForms(NamedTuple):
    """What the gradients take from the inputs: dtypes, gates of a token, heads of v."""

    k_val: torch.dtype
    v: torch.dtype
    beta: torch.dtype
    g: torch.dtype
    q_val: torch.dtype
    gates: int
    heads: int | None  # H of v [B, T, H, hd]


def forms_of(inputs: Inputs) -> InputForms:
    """The forms of a call's inputs."""
    k_val, v, beta, g, q_val = inputs.k_val, inputs.v, inputs.beta, inputs.g, inputs.q_val
    return InputForms(
        k_val=k_val.dtype,
        v=v.dtype,
        beta=beta.dtype,
        g=g.dtype,
        q_val=q_val.dtype,
        gates=g.shape[2],
        heads=heads_of(inputs),
    )


class Gradients(NamedTuple):
    """Each in its input's dtype and shape, [P, T, .]; v's may be [B, T, H, hd]."""

    memory: Tensor
    k_val: Tensor
    v: Tensor
    beta: Tensor
    g: Tensor
    q_val: Tensor


class _Room(NamedTuple):
    """What follows the chain needs this memory; none is asked for once the bank has changed."""

    inputs: InputGradients
    terms: TermsRoom
    results: Gradients  # the same tensors as far as they have the right dtypes


def run_backward(
    lease: Lease,
    forms: InputForms,
    saved: Saved,
    grad_readings: Tensor,
    call: Call,
    *,
    exact: bool,
) -> Gradients:
    """Restore the lease's bank and return the gradients for grad_readings.

    They are [P*T, hd], or [B, T, H, hd] where v is, of any strides. exact: the snapshot holds the
    rows' bits.

    Raises:
        CudaError, PlanError: The chain failed before its first launch: memory ran out, or an
            operand has moved. The bank is as the forward left it, and another backward can follow.
        RuntimeError: The chain failed later; the message says that the bank is half restored.
    """
    bank, geometry = lease.bank, call.geometry
    operands = allocate_operands(bank, saved, call)
    gy = grad_readings.view(rows_shape(geometry, forms.heads))
    fill_operands(operands, saved, gy, geometry)
    room = _allocate(operands, forms, geometry)

    _run_chain(lease, operands, saved, call, exact=exact)

    input_gradients(operands, saved, geometry, room.inputs, room.terms)
    for result, gradient in zip(
        room.results, (operands.grad, *_in_order(room.inputs)), strict=True
    ):
        if result is not gradient:
            result.copy_(gradient)
    return room.results


def _allocate(operands: ChainOperands, forms: InputForms, geometry: Geometry) -> _Room:
    out = allocate_gradients(forms, geometry, operands.bank.device)
    made = (operands.grad, *_in_order(out))
    dtypes = (operands.bank.dtype, forms.k_val, forms.v, forms.beta, forms.g, forms.q_val)
    results = [
        x if x.dtype is dtype else torch.empty_like(x, dtype=dtype)
        for x, dtype in zip(made, dtypes, strict=True)
    ]
    return _Room(out, TermsRoom(operands, geometry, forms.gates), Gradients(*results))


def _in_order(out: InputGradients) -> tuple[Tensor, ...]:
    """As Gradients has them, from k_val on."""
    return out.weights.k, out.v, out.beta, out.weights.g, out.weights.q


def _run_chain(
    lease: Lease, operands: ChainOperands, saved: Saved, call: Call, *, exact: bool
) -> None:
    chain = chain_run.build_chain(operands, call)
    offered = chain_to_offer(chain.chain)
    ran: list[None] = []
    allowed = made_again = False
    try:
        lease.restoring()
        allowed = True
        chain.run(ran)
        if lease.keep_state:
            advance_again(lease.bank, saved, call)
            made_again = True
            lease.kept()
        else:
            lease.restored(exact=exact)
    except BaseException as error:
        if ran and not lease.keep_state:  # an interrupt behind the run, or in what it ended
            lease.restored(exact=exact)
            raise
        if made_again:
            lease.kept()
            raise
        if not allowed or (not ran and _issued_nothing(error)):
            lease.not_restored()
            raise
        reason = str(error) or type(error).__name__
        lease.broken(f"the backward of a call on it has failed ({reason})")
        if not isinstance(error, Exception):
            raise
        raise RuntimeError(
            "[sdm_write_read] backward: the step chain failed and left the bank half restored: "
            f"{error}"
        ) from error
    report("sdm_write_read.backward", call, chain.gemm, operands.bank.device, (chain,))
    offer_chain(offered)


def _issued_nothing(error: BaseException) -> bool:
    """Whether a run that has not come to its end refused or failed before its first launch.

    An interrupt falls before the core's run or behind it.
    """
    if isinstance(error, CudaError):
        return error.issued == 0
    return isinstance(error, PlanError) or not isinstance(error, Exception)


def allocate_gradients(
    forms: InputForms, geometry: Geometry, device: torch.device
) -> InputGradients:
    """Room for the gradients of the inputs, each in the kernels' dtype for its own."""

    def room(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, dtype=kernel_dtype(dtype), device=device)

    def new(dtype: torch.dtype, width: int) -> Tensor:
        return room(dtype, (geometry.sequences, geometry.tokens, width))

    return InputGradients(
        weights=WeightGradients(
            k=new(forms.k_val, geometry.writes),
            q=new(forms.q_val, geometry.reads),
            g=new(forms.g, forms.gates),
        ),
        v=room(forms.v, rows_shape(geometry, forms.heads)),
        beta=new(forms.beta, 1),
    )
