"""The backward: the step chain from the last step to the first, then everything else at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.kernels import num_slices
from sdm_runtime.ops import chain_run
from sdm_runtime.ops.backward_terms import InputGradients, segment_gradients
from sdm_runtime.ops.bank_lease import BankLease
from sdm_runtime.ops.call import Call
from sdm_runtime.ops.chain_operands import ChainOperands, allocate_operands, fill_segment
from sdm_runtime.ops.chunk_kernels import WeightGradients, kernel_dtype, kernel_inputs
from sdm_runtime.ops.forward_store import Saved
from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.ops.plane_sums import sum_planes
from sdm_runtime.ops.staging import Inputs


class Gradients(NamedTuple):
    """Each in its input's dtype and [P, T, .] shape."""

    memory: Tensor
    k_val: Tensor
    v: Tensor
    beta: Tensor
    g: Tensor
    q_val: Tensor


def run_backward(
    lease: BankLease,
    inputs: Inputs,
    saved: Saved,
    grad_readings: Tensor,
    call: Call,
) -> Gradients:
    """Restore the lease's bank and return the gradients for grad_readings [P*T, hd].

    Raises:
        RuntimeError: The chain failed; the message says that the bank is half restored.
    """
    bank, geometry = lease.bank, call.geometry
    operands = allocate_operands(bank, saved, call, num_slices(geometry.head_dim))
    gy = grad_readings.view(geometry.streams, geometry.tokens, geometry.head_dim)
    given = kernel_inputs(inputs)
    segments = list(geometry.segments(cuda=bank.is_cuda))
    chunks = [fill_segment(operands, given, saved, gy, geometry, s) for s in segments]

    _run_chain(lease, operands, call)

    dots = sum_planes(operands, geometry)
    out = allocate_gradients(given, geometry)
    for segment, events in zip(segments, chunks, strict=True):
        segment_gradients(segment, events, dots, operands, saved, geometry, out)
    return Gradients(
        memory=operands.grad.to(bank.dtype),
        k_val=out.weights.k.to(inputs.k_val.dtype),
        v=out.v.to(inputs.v.dtype),
        beta=out.beta.to(inputs.beta.dtype),
        g=out.weights.g.to(inputs.g.dtype),
        q_val=out.weights.q.to(inputs.q_val.dtype),
    )


def _run_chain(lease: BankLease, operands: ChainOperands, call: Call) -> None:
    chain = chain_run.build_chain(operands, call)
    lease.restoring()
    try:
        chain.run()
    except Exception as error:
        raise RuntimeError(
            "[sdm_write_read] backward: the step chain failed and left the bank half restored: "
            f"{error}"
        ) from error
    lease.restored(exact=call.form.exact)


def allocate_gradients(given: Inputs, geometry: Geometry) -> InputGradients:
    """Room for the gradients of inputs as kernel_inputs gives them; of v, its dtype is used."""
    weights = (given.k_val, given.q_val, given.g)
    v_shape = (geometry.streams, geometry.tokens, geometry.head_dim)
    return InputGradients(
        weights=WeightGradients(*(torch.empty_like(x) for x in weights)),
        v=torch.empty(v_shape, dtype=kernel_dtype(given.v.dtype), device=given.beta.device),
        beta=torch.empty_like(given.beta),
    )
