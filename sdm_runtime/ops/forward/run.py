"""The forward: segments of steps; all chunks of one are prepared at once, then run in order."""

from __future__ import annotations

import torch
from torch import Tensor

from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.call.staging import Inputs, heads_of, new_readings, rows_shape, stage, unstage
from sdm_runtime.ops.call.versions import raise_version
from sdm_runtime.ops.chunks.chunk_kernels import (
    ChunkEvents,
    chunk_inverse,
    chunk_readings,
    event_order,
    kernel_inputs,
    pair_matrices,
    prepare_chunks,
)
from sdm_runtime.ops.forward.chain import GEMM_CHOICE, StepOperands, StepsDone, run_steps
from sdm_runtime.ops.forward.progress import Progress
from sdm_runtime.ops.forward.store import DropStore, KeepStore, Saved, Store
from sdm_runtime.ops.forward.token_step import TokenStep, run_token_step
from sdm_runtime.ops.routes.step_chain import report


def run_forward(
    bank: Tensor, inputs: Inputs, call: Call, *, keep: bool, progress: Progress | None = None
) -> tuple[Tensor, Saved | None]:
    """Advance bank [rows, hd] in place over all tokens, and record the dispatch.

    If it raises, `progress`, where one is given, knows how far the bank has been advanced.

    Returns the readings in the bank's dtype, [P*T, hd] or for v [B, T, H, hd] of that shape, and
    what a backward needs if it is kept.
    Otherwise working memory does not grow with T. Both ways run the same operations on the same
    segments, so their bits agree.
    """
    geometry, progress = call.geometry, progress or Progress()
    readings = new_readings(bank, inputs, geometry)
    rows = readings.view(rows_shape(geometry, heads_of(inputs)))
    segments = list(geometry.segments(cuda=bank.is_cuda))
    store: Store
    if keep:
        steps, keep_state = segments[0].steps, call.keep_state
        store = KeepStore(bank, geometry, steps, call.form, keep_state=keep_state)
    else:
        store = DropStore(bank, geometry, segments[0].steps)
    raise_version(bank)
    done = [_run_segment(bank, inputs, geometry, s, rows, store, progress) for s in segments]
    chains = [chain for steps in done for chain in steps.chains]
    report("sdm_write_read.forward", call, GEMM_CHOICE, bank.device, chains)
    return readings, store.finish()


def _run_segment(
    bank: Tensor,
    inputs: Inputs,
    geometry: Geometry,
    segment: Segment,
    readings: Tensor,
    store: Store,
    progress: Progress,
) -> StepsDone:
    # Who meets whom, and with which weights.
    given = kernel_inputs(inputs)
    order = event_order(given, geometry, segment)
    room = store.buffers(segment)
    records = room.records
    chunks, steps = prepare_chunks(given, geometry, segment, order, bank.dtype, records)
    pairs = pair_matrices(chunks, geometry, with_a=store.needs_a)
    scaled = chunk_inverse(pairs, chunks.beta, room.x, room.qx)

    # The steps.
    v = stage(inputs.v, geometry, segment, bank.dtype)
    operands = StepOperands(
        bank=bank,
        v=v,
        row_weights=steps.row_weights,
        updates=steps.updates,
        x=scaled,
        residual=room.residual,
        reading=torch.empty_like(v, dtype=torch.float32),
        delta=room.delta,
        snap=room.snapshot,
        bpre=None if records is None else records.bpre,
    )

    def token_by_token(step: int) -> TokenStep:
        here = slice(step * geometry.sequences, (step + 1) * geometry.sequences)
        tokens = slice(here.start * geometry.chunk, here.stop * geometry.chunk)
        events = ChunkEvents(chunks.events[here], chunks.places[here], chunks.beta[tokens])
        number, updates = segment.first + step, steps.updates[here]
        return run_token_step(number, bank, v[here], inputs, events, updates, geometry)

    written = progress.begin(room)
    done = run_steps(operands, pairs.qk, geometry, segment, token_by_token, written)

    # What the steps did not need: the readings of the chunk's own writes, added to the old ones.
    chunk_readings(segment, operands.reading, pairs.qk, operands.delta, readings)
    for step, tokens in done.again.items():
        again = Segment(segment.first + step, segment.first + step + 1)
        unstage(tokens.readings, readings, geometry, again)
    store.keep(segment, room, pairs.a, done.again)
    return done
