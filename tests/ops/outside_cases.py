"""Calls some of whose slots are outside their sequence, and what comes of the others."""

from __future__ import annotations

import torch
from op_cases import Case, Outcome, expected, make_inputs
from torch import Tensor

OUTSIDE = {
    "plain": Case(T=37),
    "a gate a write": Case(T=37, gate_per_write=True, repeats=True, S=9),
    "bfloat16": Case(T=50, dtype=torch.bfloat16, C=32),
    "two slices": Case(T=20, hd=140, W=2, R=3),
    "one sequence": Case(P=1, T=70, C=64, S=12, W=6, R=4),
    "int4": Case(T=33, options={"snapshot_quant": "int4"}),
    "hot": Case(T=40, picks="one-hot"),
}


def foreign_rows(case: Case, dtype: torch.dtype) -> Tensor:
    """Rows that no sequence p owns, [P, 1, n]: other sequences' as well."""
    first = torch.arange(case.P).view(-1, 1, 1) * case.S
    values = [-1, 2**31 - 1, -(2**31)]
    if dtype == torch.int64:
        values += [2**40, 2**32, -(2**32), 2**63 - 1, -(2**63)]
    others = [torch.full_like(first, v) for v in values]
    return torch.cat([first - 1, first + case.S, *others], 2)


def spoiled(
    case: Case, dtype: torch.dtype = torch.int32, share: float = 0.2
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The case's inputs with slots outside, and where they are, by argument."""
    inputs = make_inputs(case)
    gen = torch.Generator().manual_seed(case.seed + 7)
    rows, where = foreign_rows(case, dtype), {}
    for name in ("k_idx", "q_idx"):
        x = inputs[name].to(dtype)
        pick = torch.randint(rows.shape[2], x.shape, generator=gen)
        where[name] = torch.rand(x.shape, generator=gen) < share
        values = rows.expand(-1, case.T, -1).gather(2, pick).to(dtype)
        inputs[name] = torch.where(where[name], values, x)
    return inputs, where


def expected_without(case: Case, inputs: dict[str, Tensor], where: dict[str, Tensor]) -> Outcome:
    """In float64, with the entries outside taken away.

    They go to a row of zeros behind the bank, with no weight: nobody else names it.
    """
    zeros = inputs["memory"].new_zeros(1, case.hd)
    given = inputs | {"memory": torch.cat((inputs["memory"], zeros))}
    for index, weight in (("k_idx", "k_val"), ("q_idx", "q_val")):
        given[index] = inputs[index].masked_fill(where[index], case.P * case.S)
        given[weight] = inputs[weight].masked_fill(where[index], 0)
    out = expected(case, given)
    out.grads["k_val"] = out.grads["k_val"].masked_fill(where["k_idx"], 0)
    out.grads["q_val"] = out.grads["q_val"].masked_fill(where["q_idx"], 0)
    out.advanced, out.restored = out.advanced[:-1], out.restored[:-1]
    out.grads["memory"] = out.grads["memory"][:-1]
    return out
