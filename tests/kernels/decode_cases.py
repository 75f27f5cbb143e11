"""Cases of the decoding step, and the recurrence in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sdm_runtime.layer.decode_step import decode_step

F32, BF16 = torch.float32, torch.bfloat16
Tensors = dict[str, Any]


@dataclass(frozen=True)
class DecodeCase:
    """Sizes and kinds; B * H sequences."""

    B: int = 1
    T: int = 1
    H: int = 2
    W: int = 5
    R: int = 4
    S: int = 12
    hd: int = 64
    bank: torch.dtype = F32
    v: torch.dtype | None = None  # the bank's
    repeats: bool = False  # slots may stand twice in a token
    gates: int = 1
    key_weighted: bool = False
    strided: bool = False  # v and readings lie in wider rows
    seed: int = 0

    @property
    def P(self) -> int:
        return self.B * self.H

    @property
    def options(self) -> dict:
        return {"slots": self.S, "key_weighted": self.key_weighted}


# What a token may name: few and many entries, more reads than writes and fewer, slots twice, a read
# of each written slot, a gate a write.
CASES = {
    "plain": DecodeCase(),
    "one of each": DecodeCase(W=1, R=1, S=1),
    "batches": DecodeCase(B=3, H=2, strided=True),
    "twice": DecodeCase(W=9, R=13, S=6, repeats=True),
    "one slot": DecodeCase(W=7, R=5, S=1, repeats=True, gates=7),
    "a gate a write": DecodeCase(W=6, R=6, S=8, gates=6, strided=True),
    "keys weigh": DecodeCase(W=6, R=3, key_weighted=True),
    "many writes": DecodeCase(H=1, W=256, R=9, S=300),
    "many reads": DecodeCase(H=1, W=3, R=256, S=300, repeats=True),
}
HEAD_DIMS = (1, 4, 64, 96, 100, 128, 320, 1024)


def decode_inputs(case: DecodeCase) -> Tensors:
    """The operands, readings poisoned."""
    gen = torch.Generator().manual_seed(case.seed + 7919 * case.hd + 31 * case.W + case.T)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=gen)

    def slots(count: int) -> Tensor:
        shape = (case.P, case.T)
        if case.repeats:
            picked = torch.randint(0, case.S, (*shape, count), generator=gen)
        else:
            picked = torch.rand(*shape, case.S, generator=gen).argsort(2)[..., :count]
        first = torch.arange(case.P).view(-1, 1, 1) * case.S
        return (picked.sort(2).values + first).to(torch.int32)

    rows = (case.B, case.T, case.H, case.hd)
    v = normal(*rows).to(case.v or case.bank)
    readings = torch.full(rows, torch.nan, dtype=case.bank)
    return {
        "bank": normal(case.P * case.S, case.hd).to(case.bank),
        "k_idx": slots(case.W),
        "k_val": normal(case.P, case.T, case.W) * 0.5,
        "v": in_wider_rows(v) if case.strided else v,
        "beta": torch.rand(case.P, case.T, generator=gen),
        "g": -torch.rand(case.P, case.T, case.gates, generator=gen),
        "q_idx": slots(case.R),
        "q_val": normal(case.P, case.T, case.R) * 0.5,
        "readings": in_wider_rows(readings) if case.strided else readings,
    }


def in_wider_rows(x: Tensor) -> Tensor:
    """x [B, T, H, hd] as a part of rows that hold more: [B, T, 3 + H * (hd + 5)]."""
    b, t, h, hd = x.shape
    wide = x.new_full((b, t, 3 + h * (hd + 5)), torch.nan)
    view = wide[..., 3:].unflatten(2, (h, hd + 5))[..., :hd]
    return view.copy_(x)


def copied(tensors: Tensors) -> Tensors:
    """Copies with the same strides, the gaps included."""

    def copy(x: Tensor) -> Tensor:
        if x.is_contiguous():
            return x.clone()
        whole = x.new_empty(x.untyped_storage().nbytes() // x.element_size())
        whole.untyped_storage().copy_(x.untyped_storage())
        return whole.as_strided(x.shape, x.stride(), x.storage_offset())

    return {name: copy(x) for name, x in tensors.items()}


def decoded(case: DecodeCase, inputs: Tensors) -> Tensors:
    """The bank and the readings after the step, on copies."""
    after = copied(inputs)
    decode_step(**after, **case.options)
    return {"bank": after["bank"], "readings": after["readings"]}


def to_sequences(x: Tensor) -> Tensor:
    """[B, T, H, hd] to [B*H, T, hd]."""
    return x.transpose(1, 2).flatten(0, 1)


def gates_of(case: DecodeCase, inputs: Tensors) -> Tensor:
    """The log decay of every write, float32 [P, T, W]."""
    g = inputs["g"].expand(-1, -1, case.W)
    return g * inputs["k_val"] if case.key_weighted else g


def recurrence64(case: DecodeCase, inputs: Tensors) -> Tensors:
    """The recurrence in float64, the bank rounded to its dtype after every token."""
    bank = inputs["bank"].double()
    readings = torch.empty(case.P, case.T, case.hd, dtype=torch.float64)
    k, q = (inputs[name].to(case.bank).double() for name in ("k_val", "q_val"))
    v = to_sequences(inputs["v"]).to(case.bank).double()
    g = gates_of(case, inputs).double()
    for p in range(case.P):
        for t in range(case.T):
            written = inputs["k_idx"][p, t].tolist()
            for n, slot in enumerate(written):
                bank[slot] *= g[p, t, n].exp()
            answer = sum(k[p, t, n] * bank[slot] for n, slot in enumerate(written))
            delta = inputs["beta"][p, t].double() * (v[p, t] - answer)
            for n, slot in enumerate(written):
                bank[slot] += k[p, t, n] * delta
            read = inputs["q_idx"][p, t].tolist()
            readings[p, t] = sum(q[p, t, m] * bank[slot] for m, slot in enumerate(read))
            bank[written] = bank[written].to(case.bank).double()
    per_head = readings.unflatten(0, (case.B, case.H)).transpose(1, 2)
    return {"bank": bank, "readings": per_head}


def every_case(*, tokens: int = 1) -> list:
    """(name, case) over all cases, widths and dtypes."""
    return [
        (f"{name}, hd {hd}, {str(bank)[6:]}", replace(case, hd=hd, bank=bank, T=tokens))
        for name, case in CASES.items()
        for hd in HEAD_DIMS
        for bank in (F32, BF16)
    ]
