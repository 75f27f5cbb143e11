"""Top-k over product keys as the rules read: every slot, one tuple to sort by. Slow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np


def naive_topk(row: np.ndarray, dims: Sequence[int], k: int) -> tuple[list[int], np.ndarray]:
    """Slots ascending and their float32 scores, for one row of float32 factor scores."""
    factors = np.split(row, np.cumsum(dims)[:-1])
    ranks = [_ranks(factor) for factor in factors]
    keys: list[tuple[Any, ...]] = []
    for slot, columns in enumerate(itertools.product(*(range(n) for n in dims))):
        total = _sum(factors, columns)
        rank = [r[c] for r, c in zip(ranks, columns, strict=True)]
        keys.append((*_order(total), sum(rank), *rank, slot, total))
    best = sorted(sorted(keys, reverse=True)[:k], key=lambda key: key[-2])
    return [key[-2] for key in best], np.array([key[-1] for key in best], np.float32)


def _order(value: np.floating[Any] | np.ndarray) -> tuple[float, bool]:
    """NaN as -inf, -0 below +0."""
    value = np.float32(-np.inf) if np.isnan(value) else value
    return float(value), not np.signbit(value)


def _ranks(factor: np.ndarray) -> list[int]:
    """The best column has the largest rank; of equal values the larger column is the better."""
    ascending = sorted(range(len(factor)), key=lambda c: (_order(factor[c]), c))
    ranks = [0] * len(factor)
    for rank, column in enumerate(ascending):
        ranks[column] = rank
    return ranks


def _sum(factors: Sequence[np.ndarray], columns: Sequence[int]) -> np.float32:
    total = np.float32(factors[0][columns[0]])
    with np.errstate(invalid="ignore", over="ignore"):
        for factor, column in zip(factors[1:], columns[1:], strict=True):
            total = np.float32(total + factor[column])
    return total
