"""The backward: the step chain from the last step to the first, then everything else at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.dispatch import offer_chain
from sdm_runtime.errors import CudaError, PlanError
from sdm_runtime.ops.backward import chain as chain_run
from sdm_runtime.ops.backward.operands import ChainOperands, allocate_operands, fill_operands
from sdm_runtime.ops.backward.terms import InputGradients, input_gradients
from sdm_runtime.ops.call.bank_lease import BankLease
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.ops.call.staging import Inputs, heads_of, rows_shape
from sdm_runtime.ops.chunks.chunk_kernels import WeightGradients, kernel_dtype
from sdm_runtime.ops.forward.store import Saved
from sdm_runtime.ops.routes.step_chain import report


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


def run_backward(
    lease: BankLease,
    forms: InputForms,
    saved: Saved,
    grad_readings: Tensor,
    call: Call,
) -> Gradients:
    """Restore the lease's bank and return the gradients for grad_readings.

    They are [P*T, hd], or [B, T, H, hd] where v is, of any strides.

    Raises:
        CudaError, PlanError: The chain failed before its first launch: memory ran out, or an
            operand has moved. The bank is as the forward left it, and another backward can follow.
        RuntimeError: The chain failed later; the message says that the bank is half restored.
    """
    bank, geometry = lease.bank, call.geometry
    operands = allocate_operands(bank, saved, call)
    gy = grad_readings.view(rows_shape(geometry, forms.heads))
    fill_operands(operands, saved, gy, geometry)

    _run_chain(lease, operands, call)

    out = allocate_gradients(forms, geometry, bank.device)
    input_gradients(operands, saved, geometry, out)
    return Gradients(
        memory=operands.grad.to(bank.dtype),
        k_val=out.weights.k.to(forms.k_val),
        v=out.v.to(forms.v),
        beta=out.beta.to(forms.beta),
        g=out.weights.g.to(forms.g),
        q_val=out.weights.q.to(forms.q_val),
    )


def _run_chain(lease: BankLease, operands: ChainOperands, call: Call) -> None:
    chain = chain_run.build_chain(operands, call)
    lease.restoring()
    try:
        chain.run()
    except Exception as error:
        if _issued_nothing(error):
            lease.not_restored()
            raise
        raise RuntimeError(
            "[sdm_write_read] backward: the step chain failed and left the bank half restored: "
            f"{error}"
        ) from error
    lease.restored(exact=call.form.exact)
    report("sdm_write_read.backward", call, chain.gemm, operands.bank.device, (chain,))
    offer_chain(chain.chain)


def _issued_nothing(error: Exception) -> bool:
    """Whether a run refused or failed before its first launch."""
    return isinstance(error, PlanError) or (isinstance(error, CudaError) and error.issued == 0)


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
