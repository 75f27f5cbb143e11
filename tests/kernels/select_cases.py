"""Problems for slot_select and slot_select_grad, and the parameters of their device functions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from sdm_runtime.layer.candidates import candidate_tables

F32, BF16 = torch.float32, torch.bfloat16
CODES = {"none": 0, "softmax": 1, "l2": 2}
ROW_CODES = {F32: 1, BF16: 2}
POISON = -77


@dataclasses.dataclass(frozen=True)
class SelectCase:
    """Keys select k slots, queries q; 0: that side is not there."""

    dims: tuple[int, ...] = (128, 128)
    k: int = 32
    q: int = 32
    dtype: torch.dtype = BF16
    heads: int = 2
    batch: int = 1
    tokens: int = 5
    values: str = "normal"
    key_activation: str = "softmax"
    query_activation: str = "softmax"
    key_scale: float = 1.0
    query_scale: float = 1.0
    extra: int = 0  # columns of the projection beside the scores, half of them before

    @property
    def columns(self) -> int:
        return sum(self.dims)

    @property
    def slots(self) -> int:
        return math.prod(self.dims)

    def side(self, name: str) -> tuple[int, str, float]:
        """Slots a row, the activation and its scale."""
        if name == "key":
            return self.k, self.key_activation, self.key_scale
        return self.q, self.query_activation, self.query_scale

    @property
    def sides(self) -> list[str]:
        return [name for name in ("key", "query") if self.side(name)[0]]


CASES = {
    "m": SelectCase(),
    "m ties": SelectCase(values="ties", tokens=40),
    "m awkward": SelectCase(values="awkward", tokens=40),
    "m zeros": SelectCase(values="zeros"),
    "m f32": SelectCase(dtype=F32, batch=2, tokens=7, heads=3),
    "m f32 ties": SelectCase(dtype=F32, values="ties", tokens=20),
    "m f32 awkward": SelectCase(dtype=F32, values="awkward", tokens=40),
    "m few": SelectCase(k=20, q=1, key_scale=2.5),
    "m one side": SelectCase(k=0, q=27, query_activation="l2", query_scale=0.5),
    "m only keys": SelectCase(k=32, q=0, key_activation="none"),
    "m view": SelectCase(extra=16, batch=2),
    "m view off": SelectCase(extra=6, batch=2, values="ties"),
    "m narrow": SelectCase(dims=(100, 7), k=32, q=17, values="ties"),
    "l": SelectCase(dims=(256, 256), k=64, q=64, key_activation="l2"),
    "l ties": SelectCase(dims=(256, 256), k=64, q=64, values="ties", tokens=20),
    "l f32": SelectCase(dims=(256, 256), k=64, q=40, dtype=F32, values="awkward", tokens=20),
    "default": SelectCase(dims=(100, 100), k=64, q=64, tokens=9),
    "s": SelectCase(dims=(64, 64), k=16, q=16, batch=2, heads=3),
    "s ties": SelectCase(dims=(64, 64), k=16, q=16, values="ties", tokens=40),
    "s f32": SelectCase(dims=(64, 64), k=16, q=3, dtype=F32, values="awkward", tokens=40),
    "tiny": SelectCase(dims=(5, 5), k=3, q=3, dtype=F32, values="ties"),
    "all": SelectCase(dims=(4, 4), k=16, q=16, dtype=F32, values="ties", tokens=20),
    "all of two": SelectCase(dims=(8, 8), k=64, q=64, values="awkward", tokens=20),
    "one": SelectCase(dims=(1, 1), k=1, q=1),
    "one factor": SelectCase(dims=(200,), k=30, q=200, values="ties"),
    "one wide factor": SelectCase(dims=(1000,), k=256, q=7, values="ties"),
    "three": SelectCase(dims=(4, 3, 5), k=11, q=60, dtype=F32, values="awkward", tokens=20),
    "three with ones": SelectCase(dims=(1, 9, 1), k=9, q=4, values="ties"),
    "six": SelectCase(dims=(2,) * 6, k=33, q=64, values="ties", key_activation="l2"),
    "many": SelectCase(dims=(256, 256), k=256, q=100, values="normal"),
    "many wide": SelectCase(dims=(1000, 300), k=129, q=256, dtype=F32, values="ties", tokens=3),
    "l2 zeros": SelectCase(values="zeros", key_activation="l2", query_activation="none"),
}  # fmt: skip

AWKWARD = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-7, 3e38, -3e38, math.inf, -math.inf, math.nan, 1e-45]


def draw(case: SelectCase, generator: torch.Generator) -> torch.Tensor:
    """A projection [B, T, columns of all heads and the extra ones]."""
    shape = (case.batch, case.tokens, case.heads * case.columns + case.extra)
    if case.values == "zeros":
        made = torch.zeros(shape)
    elif case.values == "ties":
        made = torch.randn(shape, generator=generator).mul(2).round().div(2)
    elif case.values == "awkward":
        # Some rows of anything, others with few such values among ordinary ones.
        odd = torch.tensor(AWKWARD)[torch.randint(len(AWKWARD), shape, generator=generator)]
        rare = torch.rand(shape, generator=generator) < torch.rand(
            (case.batch, case.tokens, 1), generator=generator
        )
        made = torch.where(rare, odd, torch.randn(shape, generator=generator))
    else:
        made = torch.randn(shape, generator=generator)
    return made.to(case.dtype)


def projections(case: SelectCase) -> dict[str, torch.Tensor]:
    """By side; the scores are those behind the first half of the extra columns."""
    generator = torch.Generator().manual_seed(case.slots + case.tokens)
    return {name: draw(case, generator) for name in case.sides}


def scores_of(case: SelectCase, projection: torch.Tensor) -> torch.Tensor:
    """A side's scores [B, T, H*K]: a view."""
    return projection.narrow(-1, case.extra // 2, case.heads * case.columns)


def positions(dims: tuple[int, ...], k: int) -> torch.Tensor:
    """The table of candidates, uint8 [M, F]."""
    table = candidate_tables(dims, k).on(torch.device("cpu"))
    return torch.stack(table.positions, -1).to(torch.uint8)


def select_outputs(case: SelectCase, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Poisoned, by field."""
    made = {}
    for name in case.sides:
        k, activation, _ = case.side(name)
        rows = (case.batch * case.heads, case.tokens)
        made[f"{name}_slots"] = torch.full((*rows, k), POISON, dtype=torch.int32, device=device)
        made[f"{name}_weights"] = torch.full((*rows, k), torch.nan, device=device)
        if activation == "l2":
            made[f"{name}_norms"] = torch.full(rows, torch.nan, device=device)
    return made


def divider(d: int) -> tuple[int, int]:
    """As divider.h makes it; the multiplier as an int32."""
    if d == 1:
        return 0, 0
    shift = (d - 1).bit_length() - 1
    multiplier = -(-(1 << (32 + shift)) // d)
    return multiplier - (1 << 32 if multiplier >> 31 else 0), shift


def select_values(case: SelectCase, given: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The parameter block without outputs, by field; the scores are contiguous or views."""
    values: dict[str, Any] = {
        "num_batches": case.batch,
        "num_tokens": case.tokens,
        "num_heads": case.heads,
        "num_factors": len(case.dims),
        "widths": [*case.dims, *[0] * (8 - len(case.dims))],
        "row_type": ROW_CODES[case.dtype],
        "by_heads": divider(case.heads),
        "by_tokens": divider(case.tokens),
    }
    piece = 16 // case.dtype.itemsize
    for name in case.sides:
        k, activation, scale = case.side(name)
        scores = scores_of(case, given[name])
        table = positions(case.dims, k)
        spans = (*case.dims, scores.stride(0), scores.stride(1))
        whole = all(n % piece == 0 for n in spans) and scores.data_ptr() % 16 == 0
        side = {
            "scores": scores,
            "positions": table,
            "batch_stride": scores.stride(0),
            "token_stride": scores.stride(1),
            "count": k,
            "candidates": len(table),
            "activation": CODES[activation],
            "scale": scale,
            "wide_loads": int(whole),
        }
        values |= {f"{name}_{field}": value for field, value in side.items()}
    return values


def grad_inputs(case: SelectCase) -> dict[str, torch.Tensor]:
    """Gradients of the weights and what a selection leaves (any numbers), by field."""
    generator = torch.Generator().manual_seed(case.slots + 1)
    made = {}
    for name in case.sides:
        k, activation, _ = case.side(name)
        sequences = case.batch * case.heads
        rows = (sequences, case.tokens)
        # Slots of few columns, so that columns have many entries.
        order = torch.rand(*rows, min(case.slots, 4 * k + 3), generator=generator).argsort(-1)
        slots = order[..., :k].sort(-1).values
        if case.values != "normal":
            slots = case.slots - 1 - slots.flip(-1)
        first = torch.arange(sequences).view(-1, 1, 1) * case.slots
        made[f"{name}_slots"] = (slots + first).int()
        made[f"{name}_d_weights"] = torch.randn(*rows, k, generator=generator)
        if activation != "none":
            made[f"{name}_weights"] = torch.rand(*rows, k, generator=generator)
        if activation == "l2":
            norms = torch.rand(rows, generator=generator)
            made[f"{name}_norms"] = torch.where(norms < 0.2, torch.tensor(1e-13), norms)
        if case.values == "awkward":
            odd = torch.tensor(AWKWARD)[torch.randint(13, (*rows, k), generator=generator)]
            rare = torch.rand((*rows, k), generator=generator) < 0.1
            made[f"{name}_d_weights"] = torch.where(rare, odd, made[f"{name}_d_weights"])
    return made


def grad_outputs(case: SelectCase, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Poisoned, by field."""
    shape = (case.batch, case.tokens, case.heads * case.columns)
    return {
        f"{name}_d_scores": torch.full(shape, torch.nan, dtype=case.dtype, device=device)
        for name in case.sides
    }


def grad_values(case: SelectCase, given: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The parameter block without outputs, by field."""
    parts = [math.prod(case.dims[f + 1 :]) for f in range(len(case.dims))]
    values: dict[str, Any] = {
        **given,
        "num_batches": case.batch,
        "num_tokens": case.tokens,
        "num_heads": case.heads,
        "num_factors": len(case.dims),
        "widths": [*case.dims, *[0] * (8 - len(case.dims))],
        "by_parts": [x for part in parts for x in divider(part)] + [0] * 2 * (8 - len(parts)),
        "row_type": ROW_CODES[case.dtype],
        "by_heads": divider(case.heads),
        "by_tokens": divider(case.tokens),
        "num_columns": case.columns,
    }
    for name in case.sides:
        k, activation, scale = case.side(name)
        whole = case.columns * case.dtype.itemsize % 16 == 0
        side = {"count": k, "activation": CODES[activation], "scale": scale}
        values |= {f"{name}_{field}": value for field, value in side.items()}
        values[f"{name}_wide_stores"] = int(whole)
    return values
