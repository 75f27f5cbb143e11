"""The forward's step loop: the only part that runs once per step, so its operations are few.

Per step of a bf16 bank: gather, widen, weighted bag sums for residuals and old readings, X times
the residuals, weighted bag sums for the new rows, pick, round, write: 8 torch calls. An f32 bank
takes 7: no widening, no rounding, but its own sums for the readings. The CPU picks no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.ops.readback import reads_are_free
from sdm_runtime.ops.step_indices import Bags, StepIndices
from sdm_runtime.ops.step_table import StepTable
from sdm_runtime.ops.token_step import TokenStep, all_finite

_SUM = 0  # embedding_bag's mode


class StepResults(NamedTuple):
    """Of a segment's G = steps * P chunks, f32."""

    residuals: Tensor  # [G, C, hd]: v minus the answer of the bank before the step
    readings: Tensor  # [G, C, hd], of the bank before the step
    again: dict[int, TokenStep]  # the steps that were run token by token


def run_steps(
    bank: Tensor,
    table: StepTable,
    x_beta: Tensor,
    indices: StepIndices,
    geometry: Geometry,
    token_by_token: Callable[[int, Tensor], TokenStep],
) -> StepResults:
    """Advance the bank over a segment's steps; the table's v rows become delta.

    x_beta [steps, P, C, C] f32 = X diag(beta). token_by_token(step, group rows) runs a step that is
    not finite again, before it is written.
    """
    p, c, n, hd = geometry.streams, geometry.chunk, geometry.chunk_writes, geometry.head_dim
    rows, steps, tokens = table.rows, x_beta.shape[0], p * c
    deltas = rows[table.v_row :][: steps * tokens].view(steps, p, c, hd).unbind(0)
    before = table.step_rows(steps, indices.gather[0].shape[0])
    fetched = table.fetched_rows(steps, indices.gather[0].shape[0])
    may_check = reads_are_free(bank)
    residuals: list[Tensor] = []
    readings: list[Tensor] = []
    again: dict[int, TokenStep] = {}
    for i, x in enumerate(x_beta.unbind(0)):
        gathered = before[i] if fetched is None else fetched[i]
        torch.index_select(bank, 0, indices.gather[i], out=gathered)
        if fetched is not None:
            before[i].copy_(gathered)
        sums = _bag_sums(rows, indices.residual, i)
        if indices.reads is None:
            residual, reading = sums.view(2, p, c, hd).unbind(0)
        else:
            residual, reading = sums.view(p, c, hd), _bag_sums(bank, indices.reads, i)
        torch.bmm(x, residual, out=deltas[i])
        new = _bag_sums(rows, indices.updates, i)
        if indices.update_source is not None:
            new = new.index_select(0, indices.update_source[i])
        if may_check and not all_finite(residual, reading, deltas[i]):
            again[i] = token_by_token(i, before[i][: p * n].view(p, n, hd))
            deltas[i].copy_(again[i].delta)
            new = again[i].rows
        bank.index_copy_(0, indices.update_rows[i], new.to(bank.dtype))
        residuals.append(residual)
        readings.append(reading)
    shape = (steps * p, c, hd)
    return StepResults(torch.stack(residuals).view(shape), torch.stack(readings).view(shape), again)


def _bag_sums(rows: Tensor, bags: Bags, step: int) -> Tensor:
    """Each bag's weighted sum of rows, f32, in list order: no result depends on threads."""
    sums: Tensor = torch.embedding_bag(
        rows, bags.rows[step], bags.offsets[step], False, _SUM, False, bags.weights[step]
    )[0]
    return sums
