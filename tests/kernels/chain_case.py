"""A step's kernels on shared operands, as plans of one chain: the backward's, the forward's."""

from __future__ import annotations

from typing import Any

import torch
from kernel_cases import Shape, gds_case, gemm_case, gwr_case, pa2_case, read_case, write_case

from sdm_runtime import kernels
from sdm_runtime.plan.chain import StepChain

KERNELS = ("gx_gwr", "gx_gemm", "gx_pa2", "gx_gds")


def chain_tensors(shape: Shape) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Operands by name, and the sizes that the plans take."""
    gwr, sizes = gwr_case(shape)
    pa2, pa2_sizes = pa2_case(shape)
    gds, gds_sizes = gds_case(shape)
    x = gemm_case(shape)[0]["x"]
    tensors = gwr | gds | pa2 | {"x": x}
    return tensors, sizes | pa2_sizes | gds_sizes


def named(tensors: dict[str, torch.Tensor], *names: str) -> dict[str, Any]:
    """Operands as keyword arguments."""
    return {name: tensors[name] for name in names}


def make_chain(
    tensors: dict[str, torch.Tensor], sizes: dict[str, int], shape: Shape, pdl: bool
) -> StepChain:
    """A chain of every step, bound to ``tensors``."""
    t = tensors
    common: dict[str, Any] = {"steps": shape.steps, "num_parallel": shape.sequences, "pdl": pdl}
    chunk: dict[str, Any] = {"chunk_size": shape.chunk}
    by_chunk = (shape.chunks, shape.chunk, shape.hd)
    rows = named(t, "grad", "bank", "snap", "d_u", "beta", "kpay", "rec", "out_eff", "out_g")
    optional: dict[str, Any] = {k: t[k] for k in ("bpre", "scales") if k in t}
    optional |= {k: sizes[k] for k in ("snap_step_rows", "snap_chunk_rows") if k in sizes}
    plans = [
        kernels.plan_gx_gwr(
            **named(t, "grad", "delta", "pd", "slots", "d_dv", "dpd"),
            num_tokens=shape.tokens,
            **chunk,
            **common,
        ),
        kernels.plan_gx_gemm(t["d_u"].view(by_chunk), t["x"], t["d_dv"].view(by_chunk), **common),
        kernels.plan_gx_pa2(**rows, num_writes=shape.writes, **optional, **chunk, **common),
        kernels.plan_gx_gds(
            **named(t, "grad", "bank", "gy", "qrec", "dq"),
            num_reads=shape.reads,
            **chunk,
            **common,
        ),
    ]
    return StepChain(plans, shape.steps)


def forward_tensors(shape: Shape) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Operands of the forward's chain by name, and the sizes that its plans take."""
    read, sizes = read_case(shape)
    write, kept = write_case(shape)
    x = gemm_case(shape)[0]["x"] / shape.chunk  # delta stays of v's size
    delta = torch.zeros(shape.chunks, shape.chunk, shape.hd)
    return write | read | {"x": x, "delta": delta}, sizes | kept


def make_forward_chain(
    tensors: dict[str, torch.Tensor], sizes: dict[str, int], shape: Shape, pdl: bool
) -> StepChain:
    """fx_read -> gx_gemm -> fx_write over every step, ascending."""
    t = tensors
    common: dict[str, Any] = {"steps": shape.steps, "num_parallel": shape.sequences, "pdl": pdl}
    chunk: dict[str, Any] = {"chunk_size": shape.chunk, "num_writes": shape.writes}
    answers = named(t, "bank", "v", "row_weights", "residual", "reading")
    kept: dict[str, Any] = {name: t[name] for name in ("snap", "bpre") if name in t}
    kept |= {k: sizes[k] for k in ("snap_chunk_rows",) if k in sizes}
    plans = [
        kernels.plan_fx_read(**answers, num_tokens=sizes["num_tokens"], **chunk, **common),
        kernels.plan_gx_gemm(t["delta"], t["x"], t["residual"], **common),
        kernels.plan_fx_write(t["bank"], t["delta"], t["updates"], **kept, **chunk, **common),
    ]
    return StepChain(plans, shape.steps, order="ascending")
