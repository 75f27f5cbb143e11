"""Exact top-k over the slots of a product key, with a fixed order of ties.

The order is that of `candidates.py`. It is total, so the selection depends on nothing but the
scores: not on the device, the number of threads or the library's way with equal keys. Shapes depend
on shapes alone and nothing is read back, so a graph capture may hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sdm_runtime.layer.candidates import CandidateTable, CandidateTables, candidate_tables

# Rows are handled in blocks of this many candidates, to bound the working memory (about 40 bytes
# per candidate); a CPU does best while a block stays in its caches.
_CANDIDATES_PER_BLOCK = {"cpu": 1 << 19, "cuda": 1 << 23}


def product_key_topk(scores: Tensor, factor_dims: Sequence[int], k: int) -> tuple[Tensor, Tensor]:
    """The k best slots of every row.

    Slot (c_0, .., c_{F-1}), number (..(c_0*n_1 + c_1)*..)*n_{F-1} + c_{F-1}, scores
    ((s_0[c_0] + s_1[c_1]) + ..) + s_{F-1}[c_{F-1}] in float32. NaN counts as -inf in the selection
    and stays NaN in the returned score; -0 is below +0. Of equal sums the larger rank sum wins,
    then the larger rank in the first factor, then in the second, and so on; a factor's rank grows
    with the value, and with the column where values are equal.

    Args:
        scores: float32 [..., n_0 + .. + n_{F-1}], the factors' scores in order.
        factor_dims: the widths n_0, .., n_{F-1}.
        k: slots to select, at most their number.

    Returns:
        slots int32 [..., k], ascending; their scores float32 [..., k], through which the gradient
        reaches `scores` (summed in a fixed order).
    """
    dims = tuple(factor_dims)
    return topk_by_table(scores, dims, candidate_tables(dims, k))


def topk_by_table(
    scores: Tensor, dims: tuple[int, ...], tables: CandidateTables
) -> tuple[Tensor, Tensor]:
    """As product_key_topk, for the widths and the k of the tables."""
    table = tables.on(scores.device)
    flat = scores.reshape(-1, sum(dims))
    slots, selected = _ProductKeyTopK.apply(flat, dims, table)  # type: ignore[no-untyped-call]
    shape = (*scores.shape[:-1], table.k)
    return slots.view(shape), selected.view(shape)


class _ProductKeyTopK(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, dims: tuple[int, ...], table: CandidateTable
    ) -> tuple[Tensor, Tensor]:
        blocks = [_select(block, dims, table) for block in _row_blocks(scores, table)]
        slots, selected, chosen, columns = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        ctx.mark_non_differentiable(slots)
        ctx.save_for_backward(chosen, columns)
        ctx.dims, ctx.table = dims, table
        return slots, selected

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, grad: Tensor) -> tuple[Tensor, None, None]:
        chosen, columns = ctx.saved_tensors
        parts = (_row_blocks(t, ctx.table) for t in (grad, chosen, columns))
        blocks = [
            _scatter_grad(block, chosen, columns, ctx.dims, ctx.table)
            for block, chosen, columns in zip(*parts, strict=True)
        ]
        return torch.cat(blocks), None, None


def _row_blocks(rows: Tensor, table: CandidateTable) -> Sequence[Tensor]:
    limit = _CANDIDATES_PER_BLOCK.get(rows.device.type, 1 << 20)
    return torch.split(rows, max(1, limit // table.count))


def _select(
    scores: Tensor, dims: tuple[int, ...], table: CandidateTable
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One block of rows.

    Returns slots int32 [rows, k] ascending, scores float32 [rows, k], the candidate numbers chosen
    int32 [rows, k], and the kept columns of all factors, best first, int32 [rows, sum of kept].
    """
    # Rank each factor's columns.
    factors = torch.split(scores, list(dims), dim=-1)
    best = [_best_columns(f, n) for f, n in zip(factors, table.kept, strict=True)]
    ranked = [f.gather(-1, c) for f, c in zip(factors, best, strict=True)]

    # Sum the candidates, one rounding per addition.
    sums = ranked[0].index_select(-1, table.positions[0])
    for factor, position in zip(ranked[1:], table.positions[1:], strict=True):
        sums = sums + factor.index_select(-1, position)

    # Take the best k: among equal sums the one that stands first in the table.
    first_wins = torch.arange(table.count - 1, -1, -1, device=scores.device)
    chosen = _sort_keys(sums, first_wins).topk(table.k, dim=-1, sorted=False).indices

    # Order them by slot.
    slots = _slot_numbers(chosen, best, dims, table)
    slots, order = slots.sort(dim=-1)
    chosen = chosen.gather(-1, order)
    columns = torch.cat(best, dim=-1)
    return slots.int(), sums.gather(-1, chosen), chosen.int(), columns.int()


def _best_columns(factor: Tensor, kept: int) -> Tensor:
    """Columns int64 [rows, kept] of a factor [rows, n], best first, ties to the larger column."""
    columns = torch.arange(factor.shape[-1], device=factor.device)
    return _sort_keys(factor, columns).topk(kept, dim=-1).indices


def _sort_keys(values: Tensor, ties: Tensor) -> Tensor:
    """Int64 keys [rows, n]: the order of the float32 `values` (NaN as -inf, -0 < +0), then `ties`.

    `ties` are distinct int64 [n] below 2^32. With distinct keys no library's choice among equals
    can show.
    """
    bits = values.nan_to_num(-torch.inf, torch.inf, -torch.inf).view(torch.int32)
    # Negative floats order backwards by their magnitude bits: flip those, keep the sign.
    ordered = (bits >> 31).bitwise_and_(0x7FFFFFFF).bitwise_xor_(bits)
    return torch.add(ties, ordered, alpha=1 << 32)


def _slot_numbers(
    chosen: Tensor, best: Sequence[Tensor], dims: tuple[int, ...], table: CandidateTable
) -> Tensor:
    slots = torch.zeros_like(chosen)
    for columns, width, position in zip(best, dims, table.positions, strict=True):
        slots = slots * width + columns.gather(-1, position.take(chosen))
    return slots


def _scatter_grad(
    grad: Tensor,
    chosen: Tensor,
    columns: Tensor,
    dims: tuple[int, ...],
    table: CandidateTable,
) -> Tensor:
    """Gradient [rows, sum of dims] of the factor scores from that of the chosen slots [rows, k].

    A scatter-add would add in any order on a GPU. Here every index of a scatter is distinct, and
    the sums between the two scatters are fixed gathers.
    """
    # One column per candidate, and a last one that stays zero for the padding of the sums.
    per_candidate = grad.new_zeros(grad.shape[0], table.count + 1)
    per_candidate.scatter_(-1, chosen.long(), grad)
    result = grad.new_zeros(grad.shape[0], sum(dims))
    factors = torch.split(result, list(dims), dim=-1)
    best = torch.split(columns.long(), list(table.kept), dim=-1)
    for out, column, sums in zip(factors, best, table.sums, strict=True):
        parts = [_gather_sum(per_candidate, terms) for terms in sums.groups]
        out.scatter_(-1, column, torch.cat(parts, dim=-1))
    return result


def _gather_sum(values: Tensor, terms: Tensor) -> Tensor:
    """Sum over the last axis of values[:, terms], [rows, len(terms)]."""
    gathered = values.index_select(-1, terms.flatten())
    return gathered.view(-1, *terms.shape).sum(-1)
