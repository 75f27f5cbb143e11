"""What a backward needs of the inputs: written by the forward's chunk kernels, and saved."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sdm_runtime.kernels import num_slices
from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.routes.bound_chains import PLAN_ALIGNMENT
from sdm_runtime.tensor.arena import Arena, ArenaLayout, Part


class ChainRecords(NamedTuple):
    """The step chain's operands that follow from the inputs, and the events of the gradients.

    N chunks, n = C*W writes and E = C*(W+R) events each; layouts: docs/step_chain.md, section 3.
    """

    events: Tensor  # f64 [N, E, 2], sorted by slot: log sum; bits of the weight and of the word
    beta: Tensor  # f32 [N*C]
    pd: Tensor  # f32 [N*C, W]
    slots: Tensor  # int32 [N*C, W]
    rec: Tensor  # int32 [N, n, 4], sorted by slot
    bpre: Tensor  # int32 [N, ceil(n/32) + 1]
    qrec: Tensor  # int32 [N, C*R, 4], sorted by slot
    cpe: Tensor | None  # f32 [N, n], staged: the factor of several planes; one plane needs none


def records_layout(geometry: Geometry) -> ArenaLayout:
    """The records of a whole call, by their names above; those read 16 bytes at a time lead."""
    if any(isinstance(size, torch.SymInt) for size in geometry):  # a tracer's: not hashable
        return _layout(geometry)
    return _kept_layout(geometry)


@lru_cache(maxsize=512)
def _kept_layout(geometry: Geometry) -> ArenaLayout:
    return _layout(geometry)


def _layout(geometry: Geometry) -> ArenaLayout:
    count, n, m = geometry.chunks, geometry.chunk_writes, geometry.chunk_reads
    rows, f32, i32 = count * geometry.chunk, torch.float32, torch.int32
    parts = [
        Part("events", torch.float64, (count, n + m, 2), operand=False),
        Part("rec", i32, (count, n, 4)),
        Part("qrec", i32, (count, m, 4)),
        Part("pd", f32, (rows, geometry.writes)),
        Part("slots", i32, (rows, geometry.writes)),
        Part("beta", f32, (rows,)),
        Part("bpre", i32, (count, -(-n // 32) + 1)),
    ]
    if num_slices(geometry.head_dim) > 1:
        parts.append(Part("cpe", f32, (count, n), operand=False))
    return ArenaLayout(parts, alignment=PLAN_ALIGNMENT)


def arena_of(memory: Tensor, geometry: Geometry) -> Arena:
    """The records in a copy of their arena's memory, contiguous int64 or its bytes, anywhere."""
    if memory.data_ptr() % PLAN_ALIGNMENT:  # the parts' offsets assume this
        memory = memory.clone()
    return Arena(records_layout(geometry), memory.view(torch.int64))


def records_of(arena: Arena) -> ChainRecords:
    """All of them, as tensors."""
    parts: dict[str, Any] = {name: arena.get(name) for name in ChainRecords._fields}
    return ChainRecords(**parts)


def segment_records(records: ChainRecords, geometry: Geometry, segment: Segment) -> ChainRecords:
    """The segment's part."""
    if segment.steps == geometry.steps:
        return records
    where = geometry.chunk_range(segment)
    rows = slice(where.start * geometry.chunk, where.stop * geometry.chunk)
    r = records
    return ChainRecords(
        events=r.events[where],
        beta=r.beta[rows],
        pd=r.pd[rows],
        slots=r.slots[rows],
        rec=r.rec[where],
        bpre=r.bpre[where],
        qrec=r.qrec[where],
        cpe=None if r.cpe is None else r.cpe[where],
    )


# Bits of a record's word, and of an event's (docs/step_chain.md, section 3); bit 31: the first of
# its slot's group.
INVALID = 1 << 17
_TOKEN_SHIFT, _TOKEN_MASK, _ENTRY_MASK = 9, 0xFF, 0xFF


def group_rows(records: Tensor) -> tuple[Tensor, Tensor]:
    """Each group's bank row, int64 [P, C*W] by ordinal, and which ordinals are groups.

    records: int32 [P, C*W, 4], write entries sorted by slot.
    """
    word, row = records[..., 0], records[..., 1].long()
    first = (word < 0) & (word & INVALID == 0)
    groups = torch.arange(word.shape[1], device=word.device) < first.sum(1, keepdim=True)
    rows = torch.zeros_like(row)
    rows[groups] = row[first]
    return rows, groups


def entry_places(word: Tensor, entries: int) -> Tensor:
    """Where each record's entry stands among its chunk's, by token; entries: of a token."""
    return (word >> _TOKEN_SHIFT & _TOKEN_MASK) * entries + (word & _ENTRY_MASK)
