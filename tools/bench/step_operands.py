"""Operands of the step kernels at the sizes that benchmarks time, made on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from slot_picks import pick_slots

FIRST, LAST = 1 << 31, 1 << 30


@dataclass(frozen=True)
class Sizes:
    """A shape: P sequences, C tokens a chunk, W = R entries a token, S slots a sequence."""

    name: str
    sequences: int
    chunk: int
    entries: int
    hd: int
    slots: int
    steps: int  # of a whole call

    @property
    def chunks(self) -> int:
        return self.sequences * self.steps

    @property
    def tokens(self) -> int:
        return self.chunks * self.chunk

    @property
    def slices(self) -> int:
        return 1 + (self.hd - 1) // 128

    @property
    def row_bytes(self) -> int:
        """Of one kind of bf16 row, every entry's once, in one step."""
        return self.sequences * self.chunk * self.entries * self.hd * 2


SHAPES = [
    Sizes("long128", 2, 64, 16, 128, 16384, 1024),
    Sizes("small128", 8, 64, 32, 128, 16384, 256),
    Sizes("flag32k", 2, 64, 64, 1024, 65536, 512),
    Sizes("flag_b4", 8, 64, 64, 1024, 65536, 128),
    Sizes("cfg14b", 8, 256, 128, 1024, 65536, 16),
]


def draw_slots(sizes: Sizes, picks: str, generator: torch.Generator) -> torch.Tensor:
    """Bank rows that tokens pick: int64 [N, C, W], distinct in a token."""
    tokens = (sizes.chunks, sizes.chunk)
    slots = pick_slots(picks, tokens, sizes.entries, sizes.slots, generator)
    sequence = torch.arange(sizes.chunks, device=generator.device) % sizes.sequences
    return slots + (sequence * sizes.slots)[:, None, None]


def sort_records(slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sorted entries int32 [N, C*W, 4] and counts int32 [N, ceil(C*W/32)+1] of [N, C, W] slots."""
    chunks, _, width = slots.shape
    rows, order = slots.reshape(chunks, -1).sort(dim=1, stable=True)
    first = torch.ones_like(rows, dtype=torch.bool)
    first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    last = torch.ones_like(first)
    last[:, :-1] = first[:, 1:]
    position = torch.arange(rows.shape[1], device=slots.device)
    begin = torch.where(first, position, 0).cummax(1).values  # of each entry's group
    distance = (position - begin).clamp(max=4095)
    word = first * FIRST + last * LAST + (distance << 18) + order // width * 512 + order % width
    records = torch.empty(*rows.shape, 4, dtype=torch.int32, device=slots.device)
    records[..., 0] = torch.where(word >= 1 << 31, word - (1 << 32), word)
    records[..., 1] = rows
    records[..., 2:] = torch.rand(*rows.shape, 2, device=slots.device).view(torch.int32)
    counts = torch.nn.functional.pad(first.cumsum(1), (1, 0))[:, ::32].to(torch.int32)
    missing = -(-rows.shape[1] // 32) + 1 - counts.shape[1]
    return records, torch.nn.functional.pad(counts, (0, missing)).contiguous()


def make_operands(sizes: Sizes, picks: str = "uniform") -> dict[str, torch.Tensor]:
    """Every operand of the backward's and the forward's kernels, bf16 rows, dense snapshots."""
    generator = torch.Generator("cuda").manual_seed(0)

    def floats(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda") * 0.01

    def rows(count: int) -> torch.Tensor:
        return torch.empty(count, sizes.hd, device="cuda", dtype=torch.bfloat16).normal_(0, 0.01)

    write_slots = draw_slots(sizes, picks, generator)
    rec, bpre = sort_records(write_slots)
    entries = sizes.tokens * sizes.entries
    planes = {n: floats(sizes.slices, entries) for n in ("dpd", "out_eff", "out_g", "dq")}
    names = ("d_u", "d_dv", "delta", "gy", "residual", "reading")
    by_token = {n: floats(sizes.tokens, sizes.hd) for n in names}
    read_slots = draw_slots(sizes, picks, generator)
    slots = torch.cat((write_slots, read_slots), 2).reshape(sizes.tokens, -1).to(torch.int32)
    weights = floats(*slots.shape).view(torch.int32)
    bank_rows = sizes.sequences * sizes.slots
    return {
        **planes,
        **by_token,
        "grad": rows(bank_rows),
        "bank": rows(bank_rows),
        "snap": rows(entries),
        "x": floats(sizes.chunks, sizes.chunk, sizes.chunk),
        "beta": floats(sizes.tokens),
        "pd": floats(sizes.tokens, sizes.entries),
        "slots": write_slots.reshape(sizes.tokens, -1).to(torch.int32),
        "rec": rec,
        "kpay": rec[..., 0].contiguous(),
        "bpre": bpre,
        "qrec": sort_records(read_slots)[0],
        "v": rows(sizes.tokens),
        "row_weights": torch.stack((slots, weights), 2),
        "updates": rec,
    }
