"""The forward's step loop: the only part that runs once per step, so its operations are few.

Per step (bf16 bank; f32 saves the last rounding): gather, widen, weighted bag sums for residual and
readings, X * residual, weighted bag sums for the new rows, round, pick, write. Eight torch calls.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.ops.step_indices import StepIndices, Table

_SUM = 0  # embedding_bag's mode


class Rows(NamedTuple):
    """Where the loop gathers bank rows to; step i uses rows [i * stride, + P*C*(W+R)).

    With a stride of P*C*W the read rows land where the next step's snapshot goes: the buffer keeps
    the snapshots of all steps back to back, and one gather serves both.
    """

    buffer: Tensor
    first: int
    stride: int


def run_steps(
    bank: Tensor,
    table: Tensor,
    layout: Table,
    rows: Rows,
    x_beta: Tensor,
    indices: StepIndices,
    geometry: Geometry,
) -> Tensor:
    """Advance the bank over a segment's steps; table's v rows become delta.

    x_beta [steps, P, C, C] f32 = X diag(beta). Returns [steps, 2, P, C, hd] f32: the residuals, and
    the readings of the rows before each step.
    """
    p, c, hd = geometry.streams, geometry.chunk, geometry.head_dim
    scratch = table[layout.group_row : layout.zero_row]
    deltas = table[layout.v_row : layout.group_row].view(-1, p, c, hd)
    offsets = indices.residual_offsets
    outs: list[Tensor] = []
    for i, (gather, bags, weights, x, up_bags, up_weights, up_offsets, source, target) in enumerate(
        zip(
            indices.gather.unbind(0),
            indices.residual_bags.unbind(0),
            indices.residual_weights.unbind(0),
            x_beta.unbind(0),
            indices.update_bags.unbind(0),
            indices.update_weights.unbind(0),
            indices.update_offsets.unbind(0),
            indices.update_source.unbind(0),
            indices.update_rows.unbind(0),
            strict=True,
        )
    ):
        begin = rows.first + i * rows.stride
        fetched = rows.buffer[begin : begin + scratch.shape[0]]
        torch.index_select(bank, 0, gather, out=fetched)
        scratch.copy_(fetched)
        out = _bag_sums(table, bags, weights, offsets)
        torch.bmm(x, out[: p * c].view(p, c, hd), out=deltas[i])
        new = _bag_sums(table, up_bags, up_weights, up_offsets).to(bank.dtype)
        bank.index_copy_(0, target, new.index_select(0, source))
        outs.append(out)
    return torch.stack(outs).view(-1, 2, p, c, hd)


def _bag_sums(table: Tensor, bags: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    """Each bag's weighted sum of table rows, in list order, f32: one reduction per element."""
    sums: Tensor = torch.embedding_bag(table, bags, offsets, False, _SUM, False, weights)[0]
    return sums
