"""What both the forward and the backward derive from a segment's inputs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.log_sums import LogSums, log_sums
from sdm_runtime.ops.staging import Chunks, Inputs, stage_chunks
from sdm_runtime.ops.timeline import Timeline, build_timeline
from sdm_runtime.ops.weights import Weights, effective_weights


class SegmentState(NamedTuple):
    """Staged inputs, who shares a slot with whom, and the decayed weights."""

    segment: Segment
    chunks: Chunks
    timeline: Timeline
    sums: LogSums
    weights: Weights


def segment_state(
    inputs: Inputs,
    geometry: Geometry,
    segment: Segment,
    bank_dtype: torch.dtype,
    order: Tensor | None = None,
) -> SegmentState:
    """Derive a segment's state; order, the forward's sort of these chunks, saves another one."""
    chunks = stage_chunks(inputs, geometry, segment, bank_dtype)
    timeline = build_timeline(chunks.k_rows, chunks.q_rows, chunks.valid, geometry.bank_rows, order)
    sums = log_sums(chunks.g, timeline)
    return SegmentState(segment, chunks, timeline, sums, effective_weights(chunks, timeline, sums))
