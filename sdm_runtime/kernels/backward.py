"""The backward's step kernels: one step at once, or recorded as a plan; used from ``kernels``.

A backward step is gx_gwr, gx_gemm (from d_dv to d_u), gx_pa2 and gx_gds, the steps descending.
Arguments, errors and sizes are those of :mod:`sdm_runtime.kernels`.
"""

from __future__ import annotations

import torch

from sdm_runtime.kernels.steps import plan_step, run_step
from sdm_runtime.plan.plan import Plan
from sdm_runtime.plan.unread import check_words


def gx_gwr(
    grad: torch.Tensor,
    delta: torch.Tensor,
    pd: torch.Tensor,
    slots: torch.Tensor,
    d_dv: torch.Tensor,
    dpd: torch.Tensor,
    *,
    ti: int,
    num_parallel: int,
    chunk_size: int,
    num_tokens: int,
) -> None:
    """Gather the written slots' gradient rows of step ``ti``.

    ``d_dv[t] = sum_n pd[t,n] * grad[slots[t,n]]`` in the order of n, and
    ``dpd[t,n] = <delta[t], grad[slots[t,n]]>``; both 0 for padding tokens.

    Args:
        grad: bfloat16 or float32 ``[rows, hd]``.
        delta: float32 ``[N*C, hd]`` or ``[N, C, hd]``.
        pd: float32 ``[N*C, W]``.
        slots: int32 ``[N*C, W]``, absolute bank rows; any valid row (0) where padding.
        d_dv: float32 ``[N*C, hd]`` or ``[N, C, hd]``, out.
        dpd: float32 ``[num_slices, N*C*W]``, out.
        ti: The step.
        num_parallel: P.
        chunk_size: C.
        num_tokens: T; token t of step ti is padding when ``ti*C + t >= T``.
    """
    run_step("gx_gwr", locals())


def plan_gx_gwr(
    grad: torch.Tensor,
    delta: torch.Tensor,
    pd: torch.Tensor,
    slots: torch.Tensor,
    d_dv: torch.Tensor,
    dpd: torch.Tensor,
    *,
    steps: int,
    num_parallel: int,
    chunk_size: int,
    num_tokens: int,
    pdl: bool = False,
) -> Plan:
    """Record :func:`gx_gwr` for the steps ``0..steps-1``; ``pdl`` asks for programmatic launch."""
    return plan_step("gx_gwr", locals())


def gx_gemm(
    d_u: torch.Tensor, x: torch.Tensor, d_dv: torch.Tensor, *, ti: int, num_parallel: int
) -> None:
    """Add ``x[n].T @ d_dv[n]`` to ``d_u[n]`` for the chunks n of step ``ti``, in a fixed order.

    Each element is one chain of fused multiply-adds over j = 0..C-1, from +0, then one addition.

    Args:
        d_u: float32 ``[N, C, hd]``, in place.
        x: float32 ``[N, C, C]``.
        d_dv: float32 ``[N*C, hd]`` or ``[N, C, hd]``.
        ti: The step: chunks ``ti*P .. ti*P + P-1``.
        num_parallel: P, the number of sequences.
    """
    run_step("gx_gemm", locals())


def plan_gx_gemm(
    d_u: torch.Tensor,
    x: torch.Tensor,
    d_dv: torch.Tensor,
    *,
    steps: int,
    num_parallel: int,
    pdl: bool = False,
) -> Plan:
    """Record :func:`gx_gemm` for the steps ``0..steps-1``; ``pdl`` asks for programmatic launch."""
    return plan_step("gx_gemm", locals())


def gx_pa2(
    grad: torch.Tensor,
    bank: torch.Tensor,
    snap: torch.Tensor,
    d_u: torch.Tensor,
    beta: torch.Tensor,
    kpay: torch.Tensor | None,
    rec: torch.Tensor,
    out_eff: torch.Tensor,
    out_g: torch.Tensor,
    *,
    ti: int,
    num_parallel: int,
    chunk_size: int,
    num_writes: int,
    bpre: torch.Tensor | None = None,
    scales: torch.Tensor | None = None,
    snap_step_rows: int | None = None,
    snap_chunk_rows: int | None = None,
    snap_format: str | None = None,
) -> None:
    """Undo the writes of step ``ti``: restore the bank's rows, advance the grad rows, take dots.

    Per entry e at token t with slot s and snapshot row m: ``<d_u[t], m>`` in out_eff and
    ``<grad[s], m>`` in out_g, times ``-beta[t]`` and ``cpe`` when there is one slice; then
    ``grad[s] = cpe * grad[s] + sum_e sck_e * d_u[t(e)]`` and ``bank[s] = m``.

    Args:
        grad: ``[rows, hd]``, in place: float32 or the bank's type.
        bank: bfloat16 or float32 ``[rows, hd]``, written.
        snap: Snapshot rows: the bank's dtype, or bfloat16, ``[..., hd]``; e4m3
            ``[..., hd]`` (float8_e4m3fn or uint8); int4 pairs uint8 ``[..., hd/2]`` (even hd).
        d_u: float32 ``[N*C, hd]`` or ``[N, C, hd]``.
        beta: float32 ``[N*C]``.
        kpay: int32 ``[N, C*W]``, the payload words of ``rec``: only its form is checked. May be
            None.
        rec: int32 ``[N, C*W, 4]``, write entries sorted by slot, on a 16-byte boundary.
        out_eff: float32 ``[num_slices, N*C*W]``, out.
        out_g: The same, out.
        ti: The step.
        num_parallel: P.
        chunk_size: C.
        num_writes: W.
        bpre: int32 ``[N, ceil(C*W/32)+1]``: snapshots are dense, ``N*snap_chunk_rows`` rows.
        scales: float32, one per snapshot row; with e4m3 or int4 rows, and only then.
        snap_step_rows: Snapshots have a row per entry, this many rows from one step to the
            next. Exactly one of ``bpre`` and ``snap_step_rows`` is given.
        snap_chunk_rows: Rows of a chunk's dense snapshot: as many as it names slots, or more. None:
            C*W, which is the most. A chunk that names more slots has no snapshot of the rest.
        snap_format: How ``snap`` is stored: "f32", "bf16", "fp8" (e4m3) or "int4". None: what its
            dtype and shape say.
    """
    check_words("gx_pa2", kpay, rec)
    run_step("gx_pa2", locals())


def plan_gx_pa2(
    grad: torch.Tensor,
    bank: torch.Tensor,
    snap: torch.Tensor,
    d_u: torch.Tensor,
    beta: torch.Tensor,
    kpay: torch.Tensor | None,
    rec: torch.Tensor,
    out_eff: torch.Tensor,
    out_g: torch.Tensor,
    *,
    steps: int,
    num_parallel: int,
    chunk_size: int,
    num_writes: int,
    bpre: torch.Tensor | None = None,
    scales: torch.Tensor | None = None,
    snap_step_rows: int | None = None,
    snap_chunk_rows: int | None = None,
    snap_format: str | None = None,
    pdl: bool = False,
) -> Plan:
    """Record :func:`gx_pa2` for the steps ``0..steps-1``; ``pdl`` asks for programmatic launch."""
    check_words("gx_pa2", kpay, rec)
    return plan_step("gx_pa2", locals())


def gx_gds(
    grad: torch.Tensor,
    bank: torch.Tensor,
    gy: torch.Tensor,
    qrec: torch.Tensor,
    dq: torch.Tensor,
    *,
    ti: int,
    num_parallel: int,
    chunk_size: int,
    num_reads: int,
) -> None:
    """Undo the reads of step ``ti``: their dots with the bank, their gradient into the grad rows.

    Per read entry at token t with slot s: ``dq = <gy[t], bank[s]>``; per group of reads of one
    slot, ``grad[s] += sum scq * gy[t]``, rounded to the grad's type once. The bank has been
    restored by :func:`gx_pa2`.

    Args:
        grad: ``[rows, hd]``, in place: float32 or the bank's type.
        bank: bfloat16 or float32 ``[rows, hd]``.
        gy: float32 ``[N*C, hd]`` or ``[N, C, hd]``.
        qrec: int32 ``[N, C*R, 4]``, read entries sorted by slot, on a 16-byte boundary.
        dq: float32 ``[num_slices, N*C*R]``, out; 0 for padding.
        ti: The step.
        num_parallel: P.
        chunk_size: C.
        num_reads: R.
    """
    run_step("gx_gds", locals())


def plan_gx_gds(
    grad: torch.Tensor,
    bank: torch.Tensor,
    gy: torch.Tensor,
    qrec: torch.Tensor,
    dq: torch.Tensor,
    *,
    steps: int,
    num_parallel: int,
    chunk_size: int,
    num_reads: int,
    pdl: bool = False,
) -> Plan:
    """Record :func:`gx_gds` for the steps ``0..steps-1``; ``pdl`` asks for programmatic launch."""
    return plan_step("gx_gds", locals())
