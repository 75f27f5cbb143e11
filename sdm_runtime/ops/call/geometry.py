"""Sizes of one call, and the segments of steps that are prepared together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

MIN_CHUNK = 16
MAX_CHUNK = 256
MAX_ENTRIES = 256

# Working memory of one segment. Two sizes only, so that a call's bits depend on shapes and device.
_SEGMENT_BYTES_HOST = 64 << 20
_SEGMENT_BYTES_CUDA = 2 << 30


class Segment(NamedTuple):
    """Steps ``[first, last)`` of a call; their chunks are ``[first * P, last * P)``."""

    first: int
    last: int

    @property
    def steps(self) -> int:
        """How many steps the segment holds."""
        return self.last - self.first


class Geometry(NamedTuple):
    """P sequences of T tokens, cut into chunks of C tokens, with W writes and R reads per token.

    Chunk ``ti * P + p`` is sequence p's chunk at step ti; the last step may be ragged.
    """

    sequences: int
    tokens: int
    chunk: int
    writes: int
    reads: int
    head_dim: int
    bank_rows: int
    slots: int = 0  # bank rows of each sequence, in order; 0: every sequence has the whole bank

    @property
    def steps(self) -> int:
        """Number of steps, ceil(T / C)."""
        return -(-self.tokens // self.chunk)

    @property
    def chunks(self) -> int:
        """Number of chunks, steps * P."""
        return self.steps * self.sequences

    @property
    def chunk_writes(self) -> int:
        """Write entries of one chunk, C * W."""
        return self.chunk * self.writes

    @property
    def snapshot_rows(self) -> int:
        """Snapshot rows of one chunk: no chunk writes more, nor more than its sequence has."""
        return min(self.chunk_writes, self.slots or self.bank_rows)

    @property
    def chunk_reads(self) -> int:
        """Read entries of one chunk, C * R."""
        return self.chunk * self.reads

    def token_range(self, segment: Segment) -> tuple[int, int]:
        """The tokens of every sequence that lie in the segment, ``[begin, end)``."""
        return segment.first * self.chunk, min(segment.last * self.chunk, self.tokens)

    def chunk_range(self, segment: Segment) -> slice:
        """The segment's chunks among all chunks."""
        return slice(segment.first * self.sequences, segment.last * self.sequences)

    def segments(self, *, cuda: bool) -> Iterator[Segment]:
        """Cut the steps so that a segment's working memory stays bounded whatever T is."""
        entries = self.chunk_writes + self.chunk_reads
        # The sort, events and records of every entry, and a few matrices and rows per chunk.
        per_chunk = 120 * entries + 16 * self.chunk * (self.head_dim + self.chunk)
        budget = _SEGMENT_BYTES_CUDA if cuda else _SEGMENT_BYTES_HOST
        size = max(1, budget // (per_chunk * self.sequences))
        for first in range(0, self.steps, size):
            yield Segment(first, min(first + size, self.steps))


def effective_chunk(chunk_size: int, tokens: int) -> int:
    """Shrink the chunk of a short call: one chunk of T tokens needs no padding up to chunk_size.

    Of a tracer's T a symbol, which settles nothing about T.
    """
    if not isinstance(tokens, int):
        return torch.sym_min(chunk_size, torch.sym_max(MIN_CHUNK, tokens))
    return min(chunk_size, max(MIN_CHUNK, tokens))


def part_of(x: Tensor, where: slice) -> Tensor:
    """x[where]; x itself where that is all of it, as in most calls: a view costs the host."""
    return x if where.stop - where.start == x.shape[0] else x[where]
