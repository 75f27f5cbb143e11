"""The slots that keys write and queries read, with their weights: both in one launch.

The order is that of `product_keys.py`, which also serves what the kernels do not (`unserved`).
Forward and backward are one launch each on a device, a loop over rows on the CPU, with the same
bits. Nothing is read back, so a graph capture may hold it; a compiled graph holds an op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sdm_runtime import _core
from sdm_runtime.layer.activations import L2Normalize, SlotWeights
from sdm_runtime.layer.candidates import CandidateTables, is_memory
from sdm_runtime.layer.product_keys import topk_by_table
from sdm_runtime.layer.projection import has_backward_hooks, is_plain
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.differentiable import once_differentiable
from sdm_runtime.tensor.dtypes import KERNEL_DTYPES
from sdm_runtime.tensor.refs import operand_refs
from sdm_runtime.tensor.transforms import check_transforms
from sdm_runtime.tensor.words import describe
from sdm_runtime.tensor.written import launch_stream

# What the kernels take at most.
MAX_FACTORS, MAX_WIDTH, MAX_SELECTED, MAX_CANDIDATES = _core.slot_select_limits()

NONE, SOFTMAX, L2 = 0, 1, 2


class Weights(NamedTuple):
    """What becomes of the selected scores."""

    activation: int  # NONE: they are returned as they are, and the scale is 1
    scale: float


RAW = Weights(NONE, 1.0)


def own_weights(module: nn.Module) -> Weights:
    """The activation that the kernel computes, RAW where the module must be called.

    The kernel computes it if calling `module` can do no more than Softmax over the slots or
    l2_normalize: hooks, wrappers, subclasses and other activations are called as they are.
    """
    if type(module) is not SlotWeights or not _plain(module) or not _plain(module.act):
        return RAW
    if type(module.act) is L2Normalize:
        return Weights(L2, module.scale)
    if type(module.act) is nn.Softmax and module.act.dim == -1:
        return Weights(SOFTMAX, module.scale)
    return RAW


def _plain(module: nn.Module) -> bool:
    """As is_plain, and nothing looks at its gradients."""
    return is_plain(module, type(module)) and not has_backward_hooks(module)


def unserved(dims: Sequence[int], *tables: CandidateTables) -> str | None:
    """Why the kernels do not take these factors, or None."""
    if len(dims) > MAX_FACTORS:
        return f"{len(dims)} factors, more than {MAX_FACTORS}"
    if max(dims) > MAX_WIDTH:
        return f"a factor of {max(dims)} columns, more than {MAX_WIDTH}"
    if (selected := max(table.k for table in tables)) > MAX_SELECTED:
        return f"{selected} slots, more than {MAX_SELECTED}"
    most = max(table.count for table in tables)
    if most > MAX_CANDIDATES:
        return f"{most} candidates, more than {MAX_CANDIDATES}"
    return None


class Selection(NamedTuple):
    """Bank rows int32 [B*H, T, k], ascending; weights float32 [B*H, T, k]. Of keys, of queries."""

    k_idx: Tensor
    k_val: Tensor
    q_idx: Tensor
    q_val: Tensor


def select_slots(
    key_scores: Tensor,
    query_scores: Tensor,
    dims: tuple[int, ...],
    heads: int,
    key_tables: CandidateTables,
    query_tables: CandidateTables,
    key_weights: Weights = RAW,
    query_weights: Weights = RAW,
) -> Selection:
    """The best slots of every token and head, and their weights.

    Args:
        key_scores: [B, T, H*K], K the sum of the widths; of any floating dtype, compared in
            float32. A view with the columns side by side is read where it lies.
        query_scores: likewise.
        dims: the factors' widths; S is their product.
        heads: H.
        key_tables: of dims and the slots that a key selects.
        query_tables: of dims and the slots that a query selects.
        key_weights: what becomes of the selected keys' scores.
        query_weights: and of the queries'.

    Returns:
        Rows (b*H + h)*S + slot of the bank, and the weights, through which the gradient reaches
        both scores, summed in a fixed order.

    Raises:
        TypeError: torch.func transforms the scores.
        ValueError: Scores of another shape, or with a tangent.
    """
    if not torch.compiler.is_compiling():
        check_transforms("slot_select", {"key_scores": key_scores, "query_scores": query_scores})
    columns = heads * sum(dims)
    for name, scores in (("key_scores", key_scores), ("query_scores", query_scores)):
        if scores.ndim != 3 or scores.shape[2] != columns:
            expected = f"[B, T, {columns}]"
            raise ValueError(f"[slot_select] {name}: expected {expected}, got {describe(scores)}")
    if unserved(dims, key_tables, query_tables) is not None:
        return Selection(
            *_select_in_torch(key_scores, dims, heads, key_tables, key_weights),
            *_select_in_torch(query_scores, dims, heads, query_tables, query_weights),
        )
    if key_scores.dtype != query_scores.dtype or key_scores.dtype not in KERNEL_DTYPES:
        key_scores, query_scores = key_scores.float(), query_scores.float()
    key_table = key_tables.on(key_scores.device)
    query_table = query_tables.on(query_scores.device)
    numbers = (
        *(list(dims), heads, key_table.k, query_table.k),
        *(key_weights.activation, query_weights.activation),
        *(key_weights.scale, query_weights.scale),
    )
    given = (key_scores, query_scores, key_table.packed, query_table.packed, *numbers)
    if torch.compiler.is_compiling() or not (is_memory(key_scores) and is_memory(query_scores)):
        return Selection(*_select_op(*given)[:4])
    return Selection(*_Select.apply(*given)[:4])  # type: ignore[no-untyped-call]


def plan_slot_select(
    named: Mapping[str, Tensor],
    dims: tuple[int, ...],
    heads: int,
    key_weights: Weights,
    query_weights: Weights,
    *,
    pdl: bool = False,
) -> Plan:
    """Record the selection of keys and queries as a plan of one step.

    Args:
        named: its operands by their names in the plan, contiguous, among others: key_scores float32
            or bfloat16 [B, T, H*K]; key_positions uint8 [M, F], a table's `packed`; key_slots
            int32 [B*H, T, k], out; key_weights float32 [B*H, T, k], out; with L2 key_norms
            float32 [B*H, T], out; the same of queries.
        dims: the factors' widths.
        heads: H.
        key_weights: what becomes of the selected keys' scores.
        query_weights: and of the queries'.
        pdl: launch programmatically in a chain: nothing in it may write the positions.

    Raises:
        TypeError, ValueError: an operand that does not fit, or what `unserved` tells.
    """
    operands: dict[str, Tensor] = {}
    refs = []
    for side, weights in (("key", key_weights), ("query", query_weights)):
        names = ["scores", "positions", "slots", "weights"]
        names += ["norms"] if weights.activation == L2 else []
        own = {name: named[f"{side}_{name}"] for name in names}
        operands |= {f"{side}_{name}": x for name, x in own.items()}
        refs.append(operand_refs(own, f"[slot_select] {side}_"))
    bound = _core.plan_slot_select(
        refs[0], 0, *key_weights, refs[1], 0, *query_weights, list(dims), heads, pdl
    )
    return Plan._recorded(bound, operands)


def _select_in_torch(
    scores: Tensor, dims: tuple[int, ...], heads: int, tables: CandidateTables, weights: Weights
) -> tuple[Tensor, Tensor]:
    per_head = scores.float().reshape(*scores.shape[:-1], heads, sum(dims))
    slots, selected = (
        x.transpose(1, 2).flatten(0, 1) for x in topk_by_table(per_head, dims, tables)
    )
    sequences = torch.arange(slots.shape[0], dtype=torch.int32, device=slots.device)
    rows = slots + (sequences * math.prod(dims)).view(-1, 1, 1)
    scaled = weights.scale * selected if weights.scale != 1.0 else selected
    if weights.activation == SOFTMAX:
        scaled = scaled.softmax(-1)
    elif weights.activation == L2:
        scaled = nn.functional.normalize(scaled, dim=-1)
    return rows, scaled


def _forward(
    key_scores: Tensor,
    query_scores: Tensor,
    key_positions: Tensor,
    query_positions: Tensor,
    dims: list[int],
    heads: int,
    writes: int,
    reads: int,
    key_activation: int,
    query_activation: int,
    key_scale: float,
    query_scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Rows, weights of keys and of queries; their norms, with l2_normalize (else empty)."""
    scores = tuple(
        x if x.stride(-1) == 1 and min(x.stride()) >= 0 else x.contiguous()
        for x in (key_scores, query_scores)
    )
    key = _new_side(scores[0], heads, writes, key_activation)
    query = _new_side(scores[1], heads, reads, query_activation)
    if key["slots"].numel() and query["slots"].numel():
        refs = (
            operand_refs({"scores": x, "positions": p, **_given(side)})
            for x, p, side in zip(
                scores, (key_positions, query_positions), (key, query), strict=True
            )
        )
        stream = launch_stream("slot_select", key_scores.device)
        _core.slot_select(
            next(refs), 0, key_activation, key_scale,
            next(refs), 0, query_activation, query_scale,
            dims, heads, False, stream,
        )  # fmt: skip
    return _results(key, query)


def _new_side(scores: Tensor, heads: int, count: int, activation: int) -> dict[str, Tensor]:
    rows, tokens = scores.shape[0] * heads, scores.shape[1]
    return {
        "slots": scores.new_empty((rows, tokens, count), dtype=torch.int32),
        "weights": scores.new_empty((rows, tokens, count), dtype=torch.float32),
        "norms": scores.new_empty((rows, tokens if activation == L2 else 0), dtype=torch.float32),
    }


def _results(
    key: dict[str, Tensor], query: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (
        *(key["slots"], key["weights"], query["slots"], query["weights"]),
        *(key["norms"], query["norms"]),
    )


def _given(side: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without an empty tensor that stands for none."""
    return {name: x for name, x in side.items() if x.numel()}


def _backward(
    d_key: Tensor,
    d_query: Tensor,
    k_idx: Tensor,
    k_val: Tensor,
    q_idx: Tensor,
    q_val: Tensor,
    k_norm: Tensor,
    q_norm: Tensor,
    dims: list[int],
    heads: int,
    key_activation: int,
    query_activation: int,
    key_scale: float,
    query_scale: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The gradients [B, T, H*K] of both scores."""
    shape = (k_idx.shape[0] // heads, k_idx.shape[1], heads * sum(dims))
    made = tuple(d_key.new_empty(shape, dtype=dtype) for _ in range(2))
    if made[0].numel():
        saved = ((k_idx, k_val, k_norm, key_activation), (q_idx, q_val, q_norm, query_activation))
        refs = []
        for grad, out, (slots, weights, norms, activation) in zip(
            (d_key.contiguous(), d_query.contiguous()), made, saved, strict=True
        ):
            side = {"d_weights": grad, "slots": slots, "d_scores": out}
            if activation != NONE:
                side["weights"] = weights
            if activation == L2:
                side["norms"] = norms
            refs.append((operand_refs(side), side))
        stream = launch_stream("slot_select_grad", d_key.device)
        _core.slot_select_grad(
            refs[0][0], key_activation, key_scale,
            refs[1][0], query_activation, query_scale,
            dims, heads, stream,
        )  # fmt: skip
    return made[0], made[1]


class _Select(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        made = _forward(*given)
        ctx.mark_non_differentiable(made[0], made[2], made[4], made[5])
        ctx.set_materialize_grads(False)
        _save(ctx, given, made)
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        d_key, d_query = _backward(*_backward_inputs(ctx, grads), *ctx.numbers)
        return (d_key, d_query, *_NO_GRADIENTS)


_NO_GRADIENTS = (None,) * 10


def _backward_inputs(ctx: Any, grads: tuple[Tensor | None, ...]) -> list[Any]:
    """The gradients of k_val and q_val, zeros for what nobody used; then what was saved."""
    saved = ctx.saved_tensors  # asked once: a checkpoint unpacks it once
    used = zip((grads[1], grads[3]), (saved[0], saved[2]), strict=True)
    given = [torch.zeros_like(x, dtype=torch.float32) if grad is None else grad for grad, x in used]
    return [*given, *saved]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    dims, heads, _, _, *weights = inputs[4:]
    key_activation, query_activation = weights[:2]
    k_idx, k_val, q_idx, q_val, k_norm, q_norm = output
    # Raw scores are no part of their gradient: what stands for them is there anyway.
    kept = (
        k_norm if key_activation == NONE else k_val,
        q_norm if query_activation == NONE else q_val,
    )
    ctx.save_for_backward(k_idx, kept[0], q_idx, kept[1], k_norm, q_norm)
    ctx.numbers = (dims, heads, *weights, inputs[0].dtype)


_select_op = torch.library.custom_op("sdm_runtime::select_slots", _forward, mutates_args=())


@_select_op.register_fake
def _(key_scores: Tensor, query_scores: Tensor, *given: Any) -> tuple[Tensor, ...]:
    heads, writes, reads, key_activation, query_activation = given[3:8]
    key = _new_side(key_scores, heads, writes, key_activation)
    query = _new_side(query_scores, heads, reads, query_activation)
    return _results(key, query)


_grad_op = torch.library.custom_op("sdm_runtime::select_slots_grad", _backward, mutates_args=())


@_grad_op.register_fake
def _(d_key: Tensor, d_query: Tensor, k_idx: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    dims, heads, dtype = given[5], given[6], given[-1]
    shape = (k_idx.shape[0] // heads, k_idx.shape[1], heads * sum(dims))
    return d_key.new_empty(shape, dtype=dtype), d_query.new_empty(shape, dtype=dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _save(ctx, inputs, output)


def _backward_of_op(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    d_key, d_query = _grad_op(*_backward_inputs(ctx, grads), *ctx.numbers)
    return (d_key, d_query, *_NO_GRADIENTS)


_select_op.register_autograd(_backward_of_op, setup_context=_setup_context)
