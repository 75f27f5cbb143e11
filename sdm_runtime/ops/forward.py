"""The forward: segments of steps; all chunks of one are prepared at once, then run in order."""

from __future__ import annotations

import torch
from torch import Tensor

from sdm_runtime.ops.chunk_kernels import (
    ChunkEvents,
    kernel_inputs,
    pair_matrices,
    prepare_chunks,
    step_lists,
)
from sdm_runtime.ops.chunk_matrices import unit_inverse
from sdm_runtime.ops.event_order import event_order
from sdm_runtime.ops.forward_store import DropStore, KeepStore, Saved, SegmentResults, Store
from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.quant import SnapshotFormat
from sdm_runtime.ops.staging import Inputs, stage, unstage
from sdm_runtime.ops.step_indices import step_indices
from sdm_runtime.ops.step_loop import run_steps
from sdm_runtime.ops.token_step import TokenStep, run_token_step


def run_forward(
    bank: Tensor, inputs: Inputs, geometry: Geometry, form: SnapshotFormat | None
) -> tuple[Tensor, Saved | None]:
    """Advance bank [rows, hd] in place over all tokens.

    Returns the readings [P*T, hd] in the bank's dtype, and what a backward needs in the given
    snapshot form. Without a form nothing is kept, and working memory does not grow with T. Both
    ways run the same operations on the same segments, so their bits agree.
    """
    # Allocated in its last shape: autograd would refuse to let the caller change a view in place.
    readings = bank.new_empty(geometry.streams * geometry.tokens, geometry.head_dim)
    by_stream = readings.view(geometry.streams, geometry.tokens, geometry.head_dim)
    segments = list(geometry.segments(cuda=bank.is_cuda))
    store: Store
    if form is None:
        store = DropStore(bank, geometry, segments[0].steps)
    else:
        store = KeepStore(bank, geometry, segments[0].steps, form)
    for segment in segments:
        _run_segment(bank, inputs, geometry, segment, by_stream, store)
    return readings, store.finish()


def _run_segment(
    bank: Tensor,
    inputs: Inputs,
    geometry: Geometry,
    segment: Segment,
    readings: Tensor,
    store: Store,
) -> None:
    # Who meets whom, and with which weights.
    given = kernel_inputs(inputs)
    order = event_order(given, geometry, segment)
    chunks = prepare_chunks(given, geometry, segment, order, bank.dtype, store.records(segment))
    a, qk = pair_matrices(chunks, geometry)
    beta = stage(inputs.beta, geometry, segment, torch.float32)
    x = unit_inverse(a, beta)
    qx = torch.bmm(qk, x)

    # The steps.
    table = store.table(segment)
    lists = step_lists(chunks, given, geometry, segment, table)
    v = stage(inputs.v, geometry, segment, bank.dtype)
    delta = table.rows[table.v_row :][: v.shape[0] * v.shape[1]].view(v.shape)
    delta.copy_(v)
    x_beta = x * beta.transpose(1, 2)
    x_beta = x_beta.view(segment.steps, geometry.streams, geometry.chunk, geometry.chunk)

    def token_by_token(step: int, rows: Tensor) -> TokenStep:
        here = slice(step * geometry.streams, (step + 1) * geometry.streams)
        events = ChunkEvents(*(part[here] for part in chunks))
        number, used = segment.first + step, lists.used[here]
        return run_token_step(number, bank, rows, v[here], inputs, events, used, geometry)

    done = run_steps(bank, table, x_beta, step_indices(lists, geometry), geometry, token_by_token)

    # What the steps did not need: the readings of the chunk's own writes, added to the old ones.
    u = done.residuals * beta
    y = torch.baddbmm(done.readings, qx, u)
    for step, tokens in done.again.items():
        y[step * geometry.streams :][: geometry.streams] = tokens.readings
    unstage(y, readings, geometry, segment)
    store.keep(segment, SegmentResults(a, x, qx, done.residuals, delta, done.again))
