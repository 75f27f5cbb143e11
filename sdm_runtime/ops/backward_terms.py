"""What follows the chain: matrix products, pair terms, the gradients of the gates (section 2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.chain_operands import ChainOperands, chunk_range
from sdm_runtime.ops.forward_store import Saved
from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.ops.log_sums import segmented_suffix_sum
from sdm_runtime.ops.pairs import pair_gradients
from sdm_runtime.ops.segment_state import SegmentState
from sdm_runtime.ops.timeline import Timeline
from sdm_runtime.ops.weights import staged


class ChainResults(NamedTuple):
    """The chain's row dots, f32 [N, C*W] (or C*R), in staged order."""

    dpd: Tensor  # <G, delta>
    dkeff: Tensor  # -beta <d_u, M0>
    d_total: Tensor  # cpe <G, M0>, the same for all writes of a slot
    dqeff: Tensor  # <gy, M0>


class SegmentGradients(NamedTuple):
    """Staged [chunks, C, .]; of v and beta f32, else f64."""

    k: Tensor
    v: Tensor
    beta: Tensor
    g: Tensor  # [chunks, C, W]
    q: Tensor


def segment_gradients(
    state: SegmentState,
    results: ChainResults,
    operands: ChainOperands,
    saved: Saved,
    geometry: Geometry,
) -> SegmentGradients:
    """The gradients of one segment's inputs, after the chain has run."""
    where = chunk_range(geometry, state.segment)
    chunk, timeline, w = geometry.chunk, state.timeline, state.weights
    beta = state.chunks.beta.unsqueeze(2)
    d_u = operands.d_u[where]
    delta, innovation, gy = (
        x.view(geometry.chunks, chunk, -1)[where]
        for x in (saved.delta, saved.innovation, operands.gy)
    )

    # X^T d_delta = d_u and X u = delta turn the spec's dM into -tril(d_u delta^T, -1), and
    # d_beta's two sums into <d_u, innovation>.
    d_a = torch.bmm(d_u, delta.transpose(1, 2)).mul_(-beta)
    d_qk = torch.bmm(gy, delta.transpose(1, 2))
    pairs = pair_gradients(timeline, w, state.sums, d_a, d_qk)

    f64 = torch.float64
    dpd, dkeff, d_total = (
        x[where].gather(1, timeline.writes.entry).to(f64)
        for x in (results.dpd, results.dkeff, results.d_total)
    )
    dqeff = results.dqeff[where].gather(1, timeline.reads.entry).to(f64)
    d_k = pairs.k + dkeff * w.decay + dpd * w.rest
    d_q = pairs.q + dqeff * w.read_decay
    kept = dpd * w.pd
    write_log = pairs.write_log + dkeff * w.keff - kept
    read_log = pairs.read_log + dqeff * w.qeff
    d_g = _gate_gradients(timeline, write_log, read_log, kept, d_total)
    shape = (beta.shape[0], chunk, -1)
    return SegmentGradients(
        k=staged(d_k, timeline.writes).view(shape),
        v=beta * d_u,
        beta=(d_u * innovation).sum(2, keepdim=True),
        g=staged(d_g, timeline.writes).view(shape),
        q=staged(d_q, timeline.reads).view(shape),
    )


def _gate_gradients(
    timeline: Timeline, write_log: Tensor, read_log: Tensor, kept: Tensor, d_total: Tensor
) -> Tensor:
    """Each gate enters every later log sum of its slot, and the slot's total: f64 [N, C*W].

    kept is dpd * pd, whose sum over the slot belongs to the total's gradient.
    """
    writes, reads = timeline.writes, timeline.reads
    log_suffix, kept_suffix = segmented_suffix_sum(torch.stack((write_log, kept)), writes.stop)
    read_suffix = segmented_suffix_sum(read_log, reads.stop)
    # A token's gates on one slot act together: from the first of them on.
    later = log_suffix.gather(1, timeline.run_start)
    reader = timeline.reader_start.clamp_max(read_log.shape[1] - 1)
    seen = timeline.reader_stop > timeline.reader_start
    readers = torch.where(seen, read_suffix.gather(1, reader), 0)
    gradient: Tensor = later + readers + kept_suffix.gather(1, writes.start) + d_total
    return gradient
