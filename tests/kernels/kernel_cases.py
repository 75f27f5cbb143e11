"""Operands of the step kernels, drawn from a seed: sorted entries and every row type and layout."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

BF16, F32, E4M3, INT4 = "bf16", "f32", "e4m3", "int4"
DTYPES = {BF16: torch.bfloat16, F32: torch.float32, E4M3: torch.float8_e4m3fn, INT4: torch.uint8}

# bank, snapshot, grad
ROW_TYPES = [
    *[(BF16, snap, grad) for snap in (BF16, E4M3, INT4) for grad in (BF16, F32)],
    *[(F32, snap, F32) for snap in (F32, BF16, E4M3, INT4)],
]


@dataclass
class Shape:
    """Sizes of one problem; ``slots`` rows per sequence, the last chunk may be ragged."""

    hd: int = 8
    sequences: int = 2
    chunk: int = 4
    writes: int = 3
    reads: int = 2
    steps: int = 2
    slots: int = 16
    padding: int = 1  # tokens missing in the last step
    hot: bool = False  # most entries on few slots
    picks: str = "uniform"  # or "skewed", "one-hot": as trained models pick slots
    repeat: bool = False  # a token may name a slot twice
    without_slot: bool = False  # every third entry by token has row -1 and weight -0
    per_entry: bool = False  # the snapshot layout
    no_snapshot: bool = False  # fx_write keeps none
    few_rows: bool = False  # a chunk's dense snapshot has no more rows than its sequence
    types: tuple[str, str, str] = (BF16, BF16, BF16)
    special: bool = False  # denormals, huge values, infinities and NaNs among the numbers
    seed: int = 0

    @property
    def chunks(self) -> int:
        return self.steps * self.sequences

    @property
    def tokens(self) -> int:
        return self.steps * self.chunk - self.padding


SPECIAL = (
    0.0,
    -0.0,
    1e-45,
    -3e-42,
    1.2e-38,
    2.0**-130,
    3e38,
    -3.3e38,
    math.inf,
    -math.inf,
    math.nan,
)


@dataclass
class Draw:
    """Seeded numbers; with ``special``, one in six is a hard one."""

    seed: int
    special: bool
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def floats(self, *shape: int) -> torch.Tensor:
        values = torch.randn(shape, generator=self.generator)
        if self.special:
            values *= torch.exp(8 * torch.randn(shape, generator=self.generator))
            picks = torch.randint(6 * len(SPECIAL), shape, generator=self.generator)
            for i, number in enumerate(SPECIAL):
                values[picks == i] = number
        return values

    def rows(self, kind: str, rows: int, hd: int) -> torch.Tensor:
        if kind in (E4M3, INT4):
            width = hd if kind == E4M3 else hd // 2
            raw = torch.randint(256, (rows, width), generator=self.generator, dtype=torch.uint8)
            return raw if self.seed % 2 or kind == INT4 else raw.view(torch.float8_e4m3fn)
        return self.floats(rows, hd).to(DTYPES[kind])

    def slots(self, shape: Shape, per_token: int) -> torch.Tensor:
        """Slots ``[N, C, per_token]`` within a sequence: distinct in a token unless ``repeat``."""
        size = (shape.chunks, shape.chunk)
        if shape.repeat:
            most = 2 if shape.hot else shape.slots
            return torch.randint(most, (*size, per_token), generator=self.generator)
        if shape.picks == "skewed":  # distinct in a token while 7 and the slots have no divisor
            u = torch.rand((*size, 1), generator=self.generator)
            return ((shape.slots * u**6).long() + 7 * torch.arange(per_token)) % shape.slots
        weights = torch.rand((*size, shape.slots), generator=self.generator)
        if shape.hot:
            weights[..., : shape.slots // 4] += 0.8
        if shape.picks == "one-hot":  # a sink that every token names, among other slots
            weights[..., shape.slots // 3] = 2
        picked = weights.argsort(-1, descending=True)[..., :per_token]
        if shape.picks == "one-hot":
            order = torch.rand(picked.shape, generator=self.generator).argsort(-1)
            picked = picked.gather(-1, order)
        return picked


def padding_tokens(shape: Shape) -> torch.Tensor:
    """Bool ``[N, C]``: tokens at or past T."""
    step = torch.arange(shape.chunks) // shape.sequences
    return step[:, None] * shape.chunk + torch.arange(shape.chunk) >= shape.tokens


def float_bits(values: torch.Tensor) -> torch.Tensor:
    return values.float().contiguous().view(torch.int32)


def sort_records(shape: Shape, slots: torch.Tensor, scale, decay) -> torch.Tensor:
    """int32 ``[N, C*per_token, 4]``: entries sorted by slot, padding last, a group each."""
    per_token = slots.shape[-1]
    records = torch.zeros(shape.chunks, shape.chunk * per_token, 4, dtype=torch.int64)
    invalid = padding_tokens(shape)
    for n in range(shape.chunks):
        entries = [(t, w) for t in range(shape.chunk) for w in range(per_token)]
        valid = [e for e in entries if not invalid[n, e[0]]]
        valid.sort(key=lambda e: int(slots[n, e[0], e[1]]))
        keys = [int(slots[n, t, w]) for t, w in valid]
        first = 0
        for i, (t, w) in enumerate(valid):
            starts = i == 0 or keys[i - 1] != keys[i]
            ends = i + 1 == len(keys) or keys[i + 1] != keys[i]
            first = i if starts else first
            word = starts << 31 | ends << 30 | min(i - first, 4095) << 18 | t << 9 | w
            row = n % shape.sequences * shape.slots + keys[i]
            records[n, i, 0], records[n, i, 1] = word, row
            records[n, i, 2] = float_bits(scale[n, t, w])
            records[n, i, 3] = float_bits(decay[n, keys[i]])
        for i, (t, w) in enumerate([e for e in entries if invalid[n, e[0]]], start=len(valid)):
            records[n, i, 0] = 3 << 30 | 1 << 17 | t << 9 | w
            records[n, i, 3] = float_bits(torch.ones(()))
    low = records & 0xFFFFFFFF
    return torch.where(low >= 1 << 31, low - (1 << 32), low).to(torch.int32).contiguous()


def block_counts(records: torch.Tensor) -> torch.Tensor:
    """Bpre: valid FIRSTs before each block of 32 positions, int32 ``[N, ceil(n/32)+1]``."""
    words = records[..., 0].to(torch.int64) & 0xFFFFFFFF
    counts = ((words >> 31 & 1) & ~(words >> 17)) & 1
    size = counts.shape[1]
    before = torch.nn.functional.pad(counts.cumsum(1), (1, 0))
    return before[:, [min(32 * b, size) for b in range(-(-size // 32) + 1)]].to(torch.int32)


def snapshot_rows(shape: Shape) -> int:
    """Rows of a chunk's dense snapshot."""
    entries = shape.chunk * shape.writes
    return min(entries, shape.slots) if shape.few_rows else entries


def planes(shape: Shape, per_token: int) -> torch.Tensor:
    """A poisoned output for row dots."""
    count = 1 + (shape.hd - 1) // 128
    return torch.full((count, shape.chunks * shape.chunk * per_token), -7.25e30)


def leave_out(slots: torch.Tensor, weights: torch.Tensor) -> None:
    """Makes every third entry one without a slot, in place."""
    for x, none in ((slots, -1), (weights, -0.0)):
        x.view(-1)[::3] = none


def gwr_case(shape: Shape):
    draw = Draw(shape.seed, shape.special)
    tokens = shape.chunks * shape.chunk
    sequence = (torch.arange(shape.chunks) % shape.sequences)[:, None, None]
    slots = draw.slots(shape, shape.writes) + sequence * shape.slots
    slots[padding_tokens(shape)] = 0
    tensors = {
        "grad": draw.rows(shape.types[2], shape.sequences * shape.slots, shape.hd),
        "delta": draw.floats(tokens, shape.hd),
        "pd": draw.floats(tokens, shape.writes),
        "slots": slots.reshape(tokens, -1).to(torch.int32),
        "d_dv": torch.full((tokens, shape.hd), -7.25e30),
        "dpd": planes(shape, shape.writes),
    }
    if shape.without_slot:
        leave_out(tensors["slots"], tensors["pd"])
    sizes = {"num_parallel": shape.sequences, "chunk_size": shape.chunk, "num_tokens": shape.tokens}
    return tensors, sizes


def gemm_case(shape: Shape):
    draw = Draw(shape.seed, shape.special)
    rows = (shape.chunks, shape.chunk)
    tensors = {
        "d_u": draw.floats(*rows, shape.hd),
        "x": draw.floats(*rows, shape.chunk),
        "d_dv": draw.floats(*rows, shape.hd),
    }
    return tensors, {"num_parallel": shape.sequences}


def pa2_case(shape: Shape):
    draw = Draw(shape.seed, shape.special)
    bank_kind, snap_kind, grad_kind = shape.types
    rows, tokens = shape.sequences * shape.slots, shape.chunks * shape.chunk
    slots = draw.slots(shape, shape.writes)
    decay = draw.floats(shape.chunks, shape.slots).abs()
    rec = sort_records(shape, slots, draw.floats(*slots.shape), decay)
    chunk_rows = rec.shape[1] if shape.per_entry else snapshot_rows(shape)
    step_rows = shape.sequences * chunk_rows
    spread = step_rows + 5 if shape.per_entry else step_rows
    snap = draw.rows(snap_kind, (shape.steps - 1) * spread + step_rows, shape.hd)
    tensors = {
        "grad": draw.rows(grad_kind, rows, shape.hd),
        "bank": draw.rows(bank_kind, rows, shape.hd),
        "snap": snap,
        "d_u": draw.floats(tokens, shape.hd),
        "beta": draw.floats(tokens),
        "kpay": rec[..., 0].contiguous(),
        "rec": rec,
        "out_eff": planes(shape, shape.writes),
        "out_g": planes(shape, shape.writes),
    }
    if snap_kind in (E4M3, INT4):
        tensors["scales"] = draw.floats(snap.shape[0])
    sizes = {"num_parallel": shape.sequences, "chunk_size": shape.chunk, "num_writes": shape.writes}
    if shape.per_entry:
        sizes["snap_step_rows"] = spread
    else:
        tensors["bpre"] = block_counts(rec)
    if shape.few_rows and not shape.per_entry:
        sizes["snap_chunk_rows"] = chunk_rows
    return tensors, sizes


def gds_case(shape: Shape):
    draw = Draw(shape.seed, shape.special)
    rows, tokens = shape.sequences * shape.slots, shape.chunks * shape.chunk
    slots = draw.slots(shape, shape.reads)
    no_decay = torch.zeros(shape.chunks, shape.slots)
    tensors = {
        "grad": draw.rows(shape.types[2], rows, shape.hd),
        "bank": draw.rows(shape.types[0], rows, shape.hd),
        "gy": draw.floats(tokens, shape.hd),
        "qrec": sort_records(shape, slots, draw.floats(*slots.shape), no_decay),
        "dq": planes(shape, shape.reads),
    }
    sizes = {"num_parallel": shape.sequences, "chunk_size": shape.chunk, "num_reads": shape.reads}
    return tensors, sizes


def row_weights(slots: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Int32 ``[rows, entries, 2]``: bank row and bits of its weight."""
    return torch.stack((slots.to(torch.int32), float_bits(weights)), -1).contiguous()


def read_case(shape: Shape):
    draw = Draw(shape.seed, shape.special)
    tokens = shape.chunks * shape.chunk
    sequence = (torch.arange(shape.chunks) % shape.sequences)[:, None, None]
    slots = torch.cat([draw.slots(shape, n) for n in (shape.writes, shape.reads)], -1)
    slots += sequence * shape.slots
    slots[padding_tokens(shape)] = 0
    slots = slots.view(tokens, -1)
    rows = (shape.chunks, shape.chunk, shape.hd)
    bank = draw.rows(shape.types[0], shape.sequences * shape.slots, shape.hd)
    v = draw.rows(shape.types[0], tokens, shape.hd).view(rows)
    weights = draw.floats(*slots.shape)
    if shape.without_slot:
        leave_out(slots, weights)
    tensors = {
        "bank": bank,
        "v": v,
        "row_weights": row_weights(slots, weights),
        "residual": torch.full(rows, -7.25e30),
        "reading": torch.full(rows, -7.25e30),
    }
    sizes = {"num_parallel": shape.sequences, "chunk_size": shape.chunk}
    return tensors, sizes | {"num_writes": shape.writes, "num_tokens": shape.tokens}


def write_case(shape: Shape):
    draw = Draw(shape.seed, shape.special)
    bank_kind = shape.types[0]
    tokens = shape.chunks * shape.chunk
    slots = draw.slots(shape, shape.writes)
    decay = draw.floats(shape.chunks, shape.slots).abs()
    updates = sort_records(shape, slots, draw.floats(*slots.shape), decay)
    tensors = {
        "bank": draw.rows(bank_kind, shape.sequences * shape.slots, shape.hd),
        "delta": draw.floats(tokens, shape.hd),
        "updates": updates,
    }
    sizes = {"num_parallel": shape.sequences, "chunk_size": shape.chunk, "num_writes": shape.writes}
    if not shape.no_snapshot:
        rows = snapshot_rows(shape)
        kept = torch.full((shape.chunks * rows, shape.hd), -7.25e30, dtype=DTYPES[bank_kind])
        tensors |= {"snap": kept, "bpre": block_counts(updates)}
        if shape.few_rows:
            sizes["snap_chunk_rows"] = rows
    return tensors, sizes
