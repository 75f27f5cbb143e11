"""The backward: the step chain from the last step to the first, then everything else at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.kernels import num_slices
from sdm_runtime.ops import chain_run
from sdm_runtime.ops.backward_terms import ChainResults, segment_gradients
from sdm_runtime.ops.bank_lease import BankLease
from sdm_runtime.ops.call import Call
from sdm_runtime.ops.chain_operands import (
    ChainOperands,
    allocate_operands,
    chunk_range,
    fill_segment,
)
from sdm_runtime.ops.forward_store import Saved
from sdm_runtime.ops.plane_sums import sum_planes
from sdm_runtime.ops.segment_state import SegmentState, segment_state
from sdm_runtime.ops.staging import Inputs, unstage


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
    states: list[SegmentState] = []
    for segment in geometry.segments(cuda=bank.is_cuda):
        order = saved.order[chunk_range(geometry, segment)].to(torch.int64)
        state = segment_state(inputs, geometry, segment, bank.dtype, order)
        fill_segment(operands, state, saved, gy, geometry)
        states.append(state)

    _run_chain(lease, operands, call)

    results = sum_planes(operands, geometry)
    return _gradients(states, results, operands, inputs, saved, call)


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


def _gradients(
    states: list[SegmentState],
    results: ChainResults,
    operands: ChainOperands,
    inputs: Inputs,
    saved: Saved,
    call: Call,
) -> Gradients:
    geometry = call.geometry
    v_shape = (geometry.streams, geometry.tokens, geometry.head_dim)
    out = Gradients(
        memory=operands.grad.to(operands.bank.dtype),
        k_val=torch.empty_like(inputs.k_val),
        v=torch.empty(v_shape, dtype=inputs.v.dtype, device=operands.bank.device),
        beta=torch.empty_like(inputs.beta),
        g=torch.empty_like(inputs.g),
        q_val=torch.empty_like(inputs.q_val),
    )
    for state in states:
        terms = segment_gradients(state, results, operands, saved, geometry)
        per_gate = terms.g if inputs.g.shape[2] > 1 else terms.g.sum(2, keepdim=True)
        for part, target in (
            (terms.k, out.k_val),
            (terms.v, out.v),
            (terms.beta, out.beta),
            (per_gate, out.g),
            (terms.q, out.q_val),
        ):
            unstage(part, target, geometry, state.segment)
    return out
