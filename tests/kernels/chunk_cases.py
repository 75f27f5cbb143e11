"""Random operands of the kernels that take all chunks of a call: inputs, order and outputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sdm_runtime.ops.call.geometry import Geometry, Segment

POISON = 0x7F7F7F7F  # no place, row or record's word
F32, BF16, F64, I32 = torch.float32, torch.bfloat16, torch.float64, torch.int32


class Staged:
    """A case whose staged chunks are those of its steps from first_step on."""

    P: int
    T: int
    C: int
    first_step: int

    @property
    def steps(self) -> int:
        return -(-self.T // self.C)

    @property
    def chunks(self) -> int:
        return (self.steps - self.first_step) * self.P


@dataclass(frozen=True)
class ChunkCase(Staged):
    """Sizes by the letters of docs/step_chain.md; a small S gives long groups."""

    P: int = 2
    T: int = 40
    C: int = 16
    W: int = 3
    R: int = 4
    S: int = 9
    gates: int = 1
    values: torch.dtype = F32
    indices: torch.dtype = I32
    bf16_weights: bool = False
    repeats: bool = False  # a token may write a slot twice
    shared: bool = False  # all sequences have the whole bank
    doubled: bool = False  # every second entry names the slot of the one before it
    decay: float = 1.0  # g is uniform in [-decay, 0]
    outside: float = 0.0  # this share of the entries names a row outside its sequence
    first_step: int = 0  # the staged chunks start here
    seed: int = 0

    @property
    def events(self) -> int:
        return self.C * (self.W + self.R)


Tensors = dict[str, torch.Tensor]


def chunk_inputs(case: ChunkCase) -> Tensors:
    """The caller's tensors, [P, T, .]."""
    gen = torch.Generator().manual_seed(case.seed)
    lead = (case.P, case.T)
    base = torch.arange(case.P).view(-1, 1, 1) * case.S
    if case.shared:
        base = torch.randint(0, case.P, (*lead, 1), generator=gen) * case.S
    k_idx = torch.rand(*lead, case.S, generator=gen).argsort(-1)[..., : case.W]
    if case.repeats:
        k_idx = torch.randint(0, case.S, (*lead, case.W), generator=gen)
    q_idx = torch.randint(0, case.S, (*lead, case.R), generator=gen)
    if case.doubled:
        for idx in (k_idx, q_idx):
            idx[..., 1::2] = idx[..., ::2][..., : idx.shape[-1] // 2]

    def normal(width: int) -> torch.Tensor:
        return torch.randn(*lead, width, generator=gen).to(case.values)

    k_idx, q_idx = k_idx + base, q_idx + base
    if case.outside:
        k_idx, q_idx = (_some_outside(case, x, gen) for x in (k_idx, q_idx))
    return {
        "k_idx": k_idx.to(case.indices),
        "q_idx": q_idx.to(case.indices),
        "k_val": normal(case.W),
        "q_val": normal(case.R),
        "beta": torch.rand(*lead, 1, generator=gen).to(case.values),
        "g": (-case.decay * torch.rand(*lead, case.gates, generator=gen)).to(case.values),
    }


def _owned(case: ChunkCase) -> tuple[torch.Tensor, torch.Tensor]:
    """Every sequence's first row and the end of its rows, [P, 1, 1]."""
    first = torch.arange(case.P).view(-1, 1, 1) * (0 if case.shared else case.S)
    return first, first + (case.P * case.S if case.shared else case.S)


def _some_outside(case: ChunkCase, x: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    """With rows of other sequences, of no bank, and what an int32 would take for a row."""
    first, end = _owned(case)
    foreign = [first - 1, end, *(torch.full_like(first, v) for v in (2**31 - 1, -(2**31)))]
    if case.indices == torch.int64:
        foreign += [first + 2**32, first - 2**32, first + 2**40, first + 2**31]
        foreign += [torch.full_like(first, v) for v in (2**63 - 1, -(2**63))]
    pick = torch.randint(len(foreign), x.shape, generator=gen)
    values = torch.cat(foreign, 2).expand(*x.shape[:2], -1).gather(2, pick)
    return torch.where(torch.rand(x.shape, generator=gen) < case.outside, values, x)


def outside_of(case: ChunkCase, x: torch.Tensor) -> torch.Tensor:
    """Which of the indices are outside."""
    first, end = _owned(case)
    return (x.long() < first) | (x.long() >= end)


def chunk_order(case: ChunkCase, inputs: Tensors) -> Tensors:
    """Every staged chunk's events in stable order by slot, by torch's sort.

    Those outside come last but for padding.
    """
    tokens, rows = case.steps * case.C, case.P * case.S
    slots = torch.full((case.P, tokens, case.W + case.R), rows + 1, dtype=torch.int64)
    given = torch.cat([inputs[name].long() for name in ("k_idx", "q_idx")], 2)
    slots[:, : case.T] = given.masked_fill(outside_of(case, given), rows)
    staged = slots.view(case.P, case.steps, case.C, -1).transpose(0, 1)[case.first_step :]
    found = torch.sort(staged.reshape(case.chunks, -1), dim=1, stable=True)
    sorted_slots = found.values.masked_fill(found.values >= rows, -1)
    return {"sorted_slots": sorted_slots.to(I32), "order": found.indices.to(I32)}


def order_outputs(case: ChunkCase) -> Tensors:
    """What event_order writes."""
    return {name: poisoned((case.chunks, case.events), I32) for name in ("sorted_slots", "order")}


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Memory whose contents would show."""
    if dtype.is_floating_point:
        return torch.full(shape, torch.nan, dtype=dtype)
    return torch.full(shape, POISON, dtype=dtype)


def prepare_outputs(case: ChunkCase) -> Tensors:
    """What chunk_prepare writes for the pairs."""
    return {
        "events": poisoned((case.chunks, case.events, 2), F64),
        "places": poisoned((case.chunks, case.events), I32),
    }


def chain_outputs(case: ChunkCase) -> Tensors:
    """What chunk_prepare writes for the step chain; the events are apart."""
    n, rows, writes = case.chunks, case.chunks * case.C, case.C * case.W
    return {
        "beta": poisoned((rows,), F32),
        "pd": poisoned((rows, case.W), F32),
        "slots": poisoned((rows, case.W), I32),
        "cpe": poisoned((rows, case.W), F32),
        "rec": poisoned((n, writes, 4), I32),
        "bpre": poisoned((n, -(-writes // 32) + 1), I32),
        "qrec": poisoned((n, case.C * case.R, 4), I32),
    }


def gradient_inputs(case: ChunkCase) -> Tensors:
    """What the chain and the products before chunk_gradients leave."""
    gen = torch.Generator().manual_seed(case.seed + 1)
    n, rows = case.chunks, case.chunks * case.C
    shapes: dict[str, tuple[int, ...]] = {"d_m": (n, case.C, case.C), "d_qk": (n, case.C, case.C)}
    shapes |= dict.fromkeys(("dpd", "dkeff", "d_total"), (rows, case.W))
    shapes["dqeff"] = (rows, case.R)
    return {name: torch.randn(*shape, generator=gen) for name, shape in shapes.items()}


def gradient_outputs(case: ChunkCase) -> Tensors:
    """What chunk_gradients writes, scratch included."""
    out = {
        "terms": poisoned((case.chunks, case.events, 2), F64),
        "dk": poisoned((case.P, case.T, case.W), case.values),
        "dq": poisoned((case.P, case.T, case.R), case.values),
        "dg": poisoned((case.P, case.T, case.gates), case.values),
    }
    if case.gates < case.W:
        out["gates"] = poisoned((case.chunks * case.C, case.W), F64)
    return out


def step_outputs(case: ChunkCase) -> Tensors:
    """What chunk_prepare writes for the forward's steps."""
    return {
        "row_weights": poisoned((case.chunks * case.C, case.W + case.R, 2), I32),
        "updates": poisoned((case.chunks, case.C * case.W, 4), I32),
    }


CASES = {
    "plain": ChunkCase(),
    "gate a write": ChunkCase(gates=3, decay=3.0),
    "repeats": ChunkCase(P=1, S=4, W=5, R=6, repeats=True, gates=5),
    "long runs": ChunkCase(P=1, T=20, S=2, W=30, R=20, repeats=True),
    "runs longer than a warp": ChunkCase(P=1, T=18, S=3, W=80, R=70, repeats=True, gates=80),
    "one slot": ChunkCase(P=1, T=20, S=1, W=1, R=3),
    "wide": ChunkCase(P=1, T=20, W=33, R=40, S=60),
    "long chunk": ChunkCase(P=1, T=130, C=128, W=2, R=3, S=70),
    "bfloat16": ChunkCase(values=BF16, indices=torch.int64, bf16_weights=True),
    "shared bank": ChunkCase(P=3, shared=True),
    "rounded": ChunkCase(values=F32, bf16_weights=True, decay=300.0),
    "later steps": ChunkCase(first_step=1, P=3),
    # Slots that most chunks name once, or one token alone.
    "alone": ChunkCase(S=300),
    "alone, a gate a write": ChunkCase(S=300, gates=3, values=BF16),
    "alone, one write": ChunkCase(W=1, R=2, S=100),
    "doubled": ChunkCase(P=1, W=4, R=5, S=300, doubled=True),
    "doubled, a gate a write": ChunkCase(P=1, W=5, R=4, S=100, gates=5, doubled=True),
}


# What only a device, or a twin that is called by itself, ever meets.
OUTSIDE = {
    "outside": ChunkCase(outside=0.2),
    "outside, int64": ChunkCase(outside=0.3, indices=torch.int64, gates=3),
    "outside, the last row is hot": ChunkCase(outside=0.3, S=2, W=6, R=5, repeats=True, P=3),
    "outside, one slot": ChunkCase(outside=0.5, S=1, W=2, R=3, repeats=True),
    "outside, shared": ChunkCase(outside=0.2, P=3, shared=True, indices=torch.int64),
    "outside, later steps": ChunkCase(outside=0.2, first_step=1, P=3, values=BF16),
    "outside, long chunk": ChunkCase(outside=0.1, P=1, T=250, C=128, W=4, R=3, S=70),
    "outside, wide": ChunkCase(outside=0.3, P=1, T=20, W=33, R=40, S=60, gates=33),
    "outside, many slots": ChunkCase(outside=0.2, S=65537, indices=torch.int64),
    "all outside": ChunkCase(outside=1.0, S=300),
}


@dataclass(frozen=True)
class TriangleCase:
    """Operands of chunk_inverse."""

    N: int = 2
    C: int = 64
    scale: float = 0.1
    special: int = 0  # so many elements of the triangles are NaN or infinite
    seed: int = 0


TRIANGLES = [
    *(TriangleCase(C=c) for c in (1, 2, 3, 16, 31, 32, 33, 36, 63, 64, 100, 128)),
    TriangleCase(N=1, C=250),
    TriangleCase(N=1, C=256, scale=0.03),
    TriangleCase(N=3, C=20, scale=3.0),
    TriangleCase(C=72, special=2),
    TriangleCase(C=65, special=5),
]


def triangles(case: TriangleCase) -> Tensors:
    """System, qk and beta; NaN wherever the kernel must not look."""
    gen = torch.Generator().manual_seed(case.seed)
    shape = (case.N, case.C, case.C)
    system, qk = (case.scale * torch.randn(*shape, generator=gen) for _ in range(2))
    for matrix, reach in ((system, 0), (qk, 1)):
        for _ in range(case.special):
            chunk, row = (int(torch.randint(high, (), generator=gen)) for high in (case.N, case.C))
            column = int(torch.randint(max(row, 1), (), generator=gen))
            kind = int(torch.randint(3, (), generator=gen))
            matrix[chunk, row, column] = (torch.nan, torch.inf, -torch.inf)[kind]
        matrix += torch.full(shape, torch.nan).triu(reach)
    return {"system": system, "qk": qk, "beta": torch.rand(case.N * case.C, generator=gen)}


@dataclass(frozen=True)
class ReadingCase(Staged):
    """Operands of chunk_readings; the staged chunks start at first_step."""

    P: int = 2
    T: int = 40
    C: int = 16
    hd: int = 36
    heads: int = 0  # beside each other, [P / heads, T, heads, hd]; 0: [P, T, hd]
    first_step: int = 0
    values: torch.dtype = F32
    special: int = 0  # so many elements of qk and delta are NaN or infinite
    seed: int = 0


READINGS = [
    *(ReadingCase(T=2 * c, C=c, hd=40) for c in (1, 2, 3, 7, 8, 9, 31, 33, 64)),
    *(ReadingCase(T=c + 5, C=c) for c in (16, 36, 63, 65, 100, 128)),
    *(ReadingCase(hd=hd) for hd in (1, 3, 4, 5, 32, 64, 65, 128, 130, 260)),
    *(ReadingCase(hd=hd, values=BF16) for hd in (1, 4, 30, 128, 132)),
    ReadingCase(P=1, T=250, C=250, hd=70),
    ReadingCase(P=1, T=256 + 65, C=256, hd=68, values=BF16),
    ReadingCase(P=6, T=45, heads=3, first_step=1),
    ReadingCase(P=6, T=45, heads=2, first_step=2, hd=33, values=BF16),
    ReadingCase(P=4, T=1, heads=1, hd=128, values=BF16),
    ReadingCase(T=100, C=50, hd=64, special=3),
    ReadingCase(T=130, C=72, hd=33, special=3, values=BF16),
]


def reading_operands(case: ReadingCase) -> Tensors:
    """Reading, qk and delta; NaN where the kernel must not look: padding, and qk's other half."""
    gen = torch.Generator().manual_seed(case.seed)
    rows, square = (case.chunks, case.C, case.hd), (case.chunks, case.C, case.C)
    reading, delta = (torch.randn(*rows, generator=gen) for _ in range(2))
    qk = torch.randn(*square, generator=gen) / case.C**0.5
    for tensor in (qk, delta):
        for kind in (torch.nan, torch.inf, -torch.inf)[: case.special]:
            at = torch.randint(tensor[0].numel(), (), generator=gen)
            tensor[0].view(-1)[at] = kind
    qk += torch.full(square, torch.nan).triu(1)
    given = {"reading": reading, "qk": qk, "delta": delta}
    padding = case.steps * case.C - case.T
    if padding:
        for tensor in given.values():
            tensor[-case.P :, -padding:] = torch.nan
    return given


def reading_output(case: ReadingCase) -> torch.Tensor:
    """What chunk_readings writes."""
    apart, beside = (case.P, case.T), (case.P // max(case.heads, 1), case.T, case.heads)
    return poisoned((*(beside if case.heads else apart), case.hd), case.values)


def by_sequence(case: ReadingCase, readings: torch.Tensor) -> torch.Tensor:
    """[P, T, hd] of either layout."""
    return readings.transpose(1, 2).flatten(0, 1) if case.heads else readings


# For event_order alone: lists of many lengths, digits of all widths, and hot slots.
ORDER_CASES = {
    "one slot": ChunkCase(S=1, W=1),
    "two slots": ChunkCase(S=2, repeats=True),
    "64 slots": ChunkCase(S=64),
    "65 slots": ChunkCase(S=65, P=3),
    "4096 slots": ChunkCase(S=4096, W=8, R=8, first_step=1),
    "16384 slots": ChunkCase(S=16384, P=3, indices=torch.int64),
    "65536 slots": ChunkCase(S=65536, C=40, W=33, R=31),
    "65537 slots": ChunkCase(S=65537),
    "few hot": ChunkCase(S=3, C=64, T=100, W=16, R=17, repeats=True),
    "shared": ChunkCase(P=5, S=300, shared=True),
    "one token": ChunkCase(P=7, T=1, S=400, W=20, R=21),
    "a write and a read": ChunkCase(C=3, T=10, W=1, R=1, S=50),
}


def sizes(case: ChunkCase) -> tuple[Geometry, Segment]:
    slots = 0 if case.shared else case.S
    geometry = Geometry(case.P, case.T, case.C, case.W, case.R, 8, case.P * case.S, slots)
    return geometry, Segment(case.first_step, case.steps)
