"""The plans of a decoding chain, and the tensors that one of them leaves for the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.layer.args import SparseDeltaMemoryArgs
from sdm_runtime.layer.decode_step import plan_decode_step
from sdm_runtime.layer.gates import plan_token_gates
from sdm_runtime.layer.readings import ReadingsNorm, plan_merge_readings
from sdm_runtime.layer.selection import L2, Weights, plan_slot_select
from sdm_runtime.linear import plan_bf16_linear
from sdm_runtime.linear.group import plan_bf16_linear_group
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.arena import ArenaLayout, Part

# What the slots' plans leave for the step.
SELECTED = ("k_idx", "k_val", "beta", "g", "q_idx", "q_val")
_ALIGNMENT = 256  # bytes; the copy engine asks for 16


class Forms(NamedTuple):
    """What a call's plans depend on, beside the layer's options and the operands' dtypes."""

    batch: int
    tokens: int
    bank: torch.dtype
    out: torch.dtype
    projected: bool  # the chain begins with the projections
    ended: bool  # it ends with the output projection
    gated: bool  # the layer has an output gate: its modules say so, as they may be replaced
    merged: bool  # and merges the heads before that: a norm, an output gate, another dtype
    eps: float | None  # the norm's; None where no norm is part of the chain
    writes: Weights  # what becomes of the selected scores
    reads: Weights


# Of a layer's options, a call's forms and its tensors by name; whether launches are programmatic.
Plans = Callable[[SparseDeltaMemoryArgs, Forms, Mapping[str, Tensor], bool], list[Plan]]


@lru_cache(maxsize=64)
def layout(args: SparseDeltaMemoryArgs, forms: Forms) -> ArenaLayout:
    """Parts by the names that plans have for them: two plans may call one tensor differently."""
    batch, tokens, heads = forms.batch, forms.tokens, args.num_heads
    sequences, rows, f32 = batch * heads, batch * tokens, torch.float32
    parts: list[Part] = []
    if forms.projected:
        scores = (batch, tokens, heads * sum(args.factor_dims))
        shapes: dict[str, tuple[int, ...]] = {"query_scores": scores, "key_scores": scores}
        shapes |= {"v": (batch, tokens, heads, args.head_dim)}
        shapes |= {"gate_a": (batch, tokens, heads), "gate_b": (batch, tokens, heads)}
        if forms.gated:
            shapes["gate"] = (batch, tokens, args.dim)
        for index, (name, shape) in enumerate(shapes.items()):
            parts.append(Part(f"y_{index}", torch.bfloat16, (rows, prod(shape) // rows)))
            # The step and the end are chains of their own where nothing ends the first one.
            used = forms.ended or name not in ("v", "gate")
            parts.append(Part(name, torch.bfloat16, shape, operand=used, over=f"y_{index}"))
    keys, queries = (args.num_writes, forms.writes), (args.num_reads, forms.reads)
    for short, side, (entries, weights) in (("k", "key", keys), ("q", "query", queries)):
        shape = (sequences, tokens, entries)
        for name, other, dtype in (("idx", "slots", torch.int32), ("val", "weights", f32)):
            under = f"{short}_{name}"
            parts.append(Part(under, dtype, shape, operand=forms.ended))
            parts.append(Part(f"{side}_{other}", dtype, shape, over=under))
        if weights.activation == L2:
            parts.append(Part(f"{side}_norms", f32, shape[:2]))
    parts += [Part(name, f32, (sequences, tokens, 1)) for name in ("beta", "g")]
    if forms.ended:
        last = "readings"
        parts.append(Part(last, forms.bank, (batch, tokens, heads, args.head_dim)))
        if forms.merged:
            last = "merged"
            parts.append(Part(last, forms.out, (batch, tokens, args.dim)))
        parts.append(Part("x", forms.out, (rows, args.dim), over=last))
    return ArenaLayout(parts, alignment=_ALIGNMENT)


def slot_plans(
    args: SparseDeltaMemoryArgs, forms: Forms, named: Mapping[str, Tensor], pdl: bool
) -> list[Plan]:
    """From x, or its projections, to the slots, their weights and the gates."""
    plans = []
    if forms.projected:
        count = sum(name.startswith("weight_") for name in named)
        weights = [named[f"weight_{i}"] for i in range(count)]
        biases = [named.get(f"bias_{i}") for i in range(count)]
        ys = [named[f"y_{i}"] for i in range(count)]
        plans.append(plan_bf16_linear_group(named["group_x"], weights, biases, ys, pdl=pdl))
    sizes = (args.factor_dims, args.num_heads)
    plans.append(plan_slot_select(named, *sizes, forms.writes, forms.reads, pdl=pdl))
    gates = ("gate_a", "gate_b", "A_log", "dt_bias", "beta", "g")
    plans.append(plan_token_gates(*(named[name] for name in gates), pdl=pdl))
    return plans


def step_plans(
    args: SparseDeltaMemoryArgs, forms: Forms, named: Mapping[str, Tensor], pdl: bool
) -> list[Plan]:
    """The step, which advances the bank."""
    names = ("bank", "k_idx", "k_val", "v", "beta", "g", "q_idx", "q_val", "readings")
    operands = (named[name] for name in names)
    slots, weighted = args.slots_per_head, args.key_weighted_decay
    return [plan_decode_step(*operands, slots=slots, key_weighted=weighted, pdl=pdl)]


def whole_plans(
    args: SparseDeltaMemoryArgs, forms: Forms, named: Mapping[str, Tensor], pdl: bool
) -> list[Plan]:
    """From x, or its projections, to the output."""
    plans = slot_plans(args, forms, named, pdl) + step_plans(args, forms, named, pdl)
    if forms.merged:
        norm = None
        if forms.eps is not None:
            norm = ReadingsNorm(named["norm_weight"], named["norm_bias"], forms.eps)
        readings, merged, gate = named["readings"], named["merged"], named.get("gate")
        plans.append(plan_merge_readings(readings, merged, norm=norm, gate=gate, pdl=pdl))
    y = named["y"].view(-1, args.dim)
    plans.append(plan_bf16_linear(named["x"], named["weight"], y, named.get("bias"), pdl=pdl))
    return plans
