"""Effective weights: the staged weights times their decays, sorted and in staged order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.log_sums import LogSums
from sdm_runtime.ops.staging import Chunks
from sdm_runtime.ops.timeline import Entries, Timeline


class Weights(NamedTuple):
    """Float32, in the order of the timeline's writes [N, C*W] and reads [N, C*R]."""

    k: Tensor
    q: Tensor
    decay: Tensor  # exp(L)
    rest: Tensor  # exp(rex), the decay from the write to the chunk's end
    total: Tensor  # cpe = exp(Ltot)
    read_decay: Tensor  # exp(LQ)
    keff: Tensor  # k * exp(L)
    pd: Tensor  # k * exp(rex)
    qeff: Tensor  # q * exp(LQ)


def effective_weights(chunks: Chunks, timeline: Timeline, sums: LogSums) -> Weights:
    """The spec's keff, pd, qeff and cpe, and the factors that make them."""
    f32 = torch.float32
    k = chunks.k.flatten(1).gather(1, timeline.writes.entry)
    q = chunks.q.flatten(1).gather(1, timeline.reads.entry)
    decay = sums.write.to(f32).exp()
    rest = (sums.total - sums.write).to(f32).exp()
    read_decay = sums.read.to(f32).exp()
    return Weights(
        k=k,
        q=q,
        decay=decay,
        rest=rest,
        total=sums.total.to(f32).exp(),
        read_decay=read_decay,
        keff=k * decay,
        pd=k * rest,
        qeff=q * read_decay,
    )


def staged(x: Tensor, entries: Entries) -> Tensor:
    """Put sorted values x [N, m] back in staged order (token * width + column)."""
    return torch.empty_like(x).scatter_(1, entries.entry, x)
