"""The forward's step kernels: one step at once, or recorded as a plan; used from ``kernels``.

A forward step is fx_read, gx_gemm (from the residuals to delta) and fx_write, the steps ascending.
Arguments, errors and sizes are those of :mod:`sdm_runtime.kernels`.
"""

from __future__ import annotations

import torch

from sdm_runtime.kernels.steps import plan_step, run_step
from sdm_runtime.plan.plan import Plan


def fx_read(
    bank: torch.Tensor,
    v: torch.Tensor,
    row_weights: torch.Tensor,
    residual: torch.Tensor,
    reading: torch.Tensor,
    *,
    ti: int,
    num_parallel: int,
    chunk_size: int,
    num_writes: int,
    num_tokens: int,
) -> None:
    """What the bank answers to the tokens of step ``ti`` before their writes.

    ``residual[t] = v[t] + sum_e weight_e * bank[row_e]`` over the token's first W entries, its
    writes, and ``reading[t] = sum_e weight_e * bank[row_e]`` over the others, its reads: chains of
    fused multiply-adds in the entries' order, from v and from +0. Padding tokens give 0.

    Args:
        bank: bfloat16 or float32 ``[rows, hd]``.
        v: ``[N*C, hd]`` or ``[N, C, hd]`` of the bank's dtype.
        row_weights: int32 ``[N*C, W+R, 2]``: bank row and bits of a float32 weight (-keff of a
            write, qeff of a read), on an 8-byte boundary; any valid row (0) where padding.
        residual: float32 ``[N*C, hd]`` or ``[N, C, hd]``, out.
        reading: The same, out.
        ti: The step.
        num_parallel: P.
        chunk_size: C.
        num_writes: W.
        num_tokens: T; token t of step ti is padding when ``ti*C + t >= T``.
    """
    run_step("fx_read", locals())


def plan_fx_read(
    bank: torch.Tensor,
    v: torch.Tensor,
    row_weights: torch.Tensor,
    residual: torch.Tensor,
    reading: torch.Tensor,
    *,
    steps: int,
    num_parallel: int,
    chunk_size: int,
    num_writes: int,
    num_tokens: int,
    pdl: bool = False,
) -> Plan:
    """Record :func:`fx_read` for the steps ``0..steps-1``; ``pdl`` asks for programmatic launch."""
    return plan_step("fx_read", locals())


def fx_write(
    bank: torch.Tensor,
    delta: torch.Tensor,
    updates: torch.Tensor,
    *,
    ti: int,
    num_parallel: int,
    chunk_size: int,
    num_writes: int,
    snap: torch.Tensor | None = None,
    bpre: torch.Tensor | None = None,
    snap_chunk_rows: int | None = None,
) -> None:
    """Make the writes of step ``ti``; with ``snap``, keep the rows as they were.

    For each group of entries of one slot s: ``bank[s] = round(cpe * bank[s] + sum_e pd_e *
    delta[t(e)])``, the sum a chain of fused multiply-adds in the entries' order from +0, the
    decay (of the LAST entry) fused onto it.

    Args:
        bank: bfloat16 or float32 ``[rows, hd]``, in place.
        delta: float32 ``[N*C, hd]`` or ``[N, C, hd]``.
        updates: int32 ``[N, C*W, 4]``, write entries sorted by slot with the bits of pd and cpe, on
            a 16-byte boundary.
        ti: The step.
        num_parallel: P.
        chunk_size: C.
        num_writes: W.
        snap: ``[N*snap_chunk_rows, hd]`` of the bank's dtype, out: the dense layout of
            :func:`~sdm_runtime.kernels.gx_pa2`; rows of no group are left as they are.
        bpre: int32 ``[N, ceil(C*W/32)+1]``; with ``snap``, and only then.
        snap_chunk_rows: As for :func:`~sdm_runtime.kernels.gx_pa2`; with ``snap`` only.
    """
    run_step("fx_write", locals())


def plan_fx_write(
    bank: torch.Tensor,
    delta: torch.Tensor,
    updates: torch.Tensor,
    *,
    steps: int,
    num_parallel: int,
    chunk_size: int,
    num_writes: int,
    snap: torch.Tensor | None = None,
    bpre: torch.Tensor | None = None,
    snap_chunk_rows: int | None = None,
    pdl: bool = False,
) -> Plan:
    """Record :func:`fx_write` for the steps ``0..steps-1``; ``pdl`` as in :func:`plan_fx_read`."""
    return plan_step("fx_write", locals())
