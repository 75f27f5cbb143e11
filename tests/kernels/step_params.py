"""Parameter blocks of the step kernels from the operands of tests/kernels/kernel_cases.py."""

from __future__ import annotations

import torch

Values = dict[str, torch.Tensor | int]
ROW_CODES = {torch.float32: 1, torch.bfloat16: 2, torch.float8_e4m3fn: 3}
INT4 = 4


def row_code(rows: torch.Tensor, hd: int) -> int:
    """The RowType of stored rows; bytes are e4m3, or int4 where there is one for two columns."""
    if rows.dtype == torch.uint8:
        return ROW_CODES[torch.float8_e4m3fn] if rows.shape[-1] == hd else INT4
    return ROW_CODES[rows.dtype]


def block_values(kernel: str, tensors: dict, sizes: dict, ti: int) -> Values:
    """Every field of a kernel's parameter block for step ``ti``."""
    fill = {"gx_pa2": _pa2, "gx_gds": _gds, "gx_gwr": _gwr, "gx_gemm": _gemm}
    fill |= {"fx_read": _read, "fx_write": _write}
    values = fill[kernel](dict(tensors), sizes)
    return values | {"step": ti, "num_parallel": sizes["num_parallel"]}


def _pa2(tensors: dict, sizes: dict) -> Values:
    hd = tensors["bank"].shape[1]
    del tensors["kpay"]
    types = {f"{name}_type": row_code(tensors[name], hd) for name in ("bank", "snap", "grad")}
    values = tensors | types | {"records": tensors.pop("rec"), "hd": hd}
    values.pop("rec", None)
    values["plane_stride"] = tensors["out_g"][0].numel()
    values["snap_step_rows"] = sizes.get("snap_step_rows", 0)
    values["snap_chunk_rows"] = _chunk_rows(tensors, sizes)
    return values | {k: sizes[k] for k in ("chunk_size", "num_writes")}


def _gds(tensors: dict, sizes: dict) -> Values:
    hd = tensors["bank"].shape[1]
    types = {f"{name}_type": row_code(tensors[name], hd) for name in ("bank", "grad")}
    values = {"records": tensors.pop("qrec"), "hd": hd} | tensors | types
    values["plane_stride"] = tensors["dq"][0].numel()
    return values | {k: sizes[k] for k in ("chunk_size", "num_reads")}


def _gwr(tensors: dict, sizes: dict) -> Values:
    hd = tensors["grad"].shape[1]
    values = tensors | {"grad_type": row_code(tensors["grad"], hd), "hd": hd}
    values |= {"plane_stride": tensors["dpd"][0].numel(), "num_writes": tensors["pd"].shape[1]}
    return values | {k: sizes[k] for k in ("chunk_size", "num_tokens")}


def _read(tensors: dict, sizes: dict) -> Values:
    hd = tensors["bank"].shape[1]
    values = tensors | {"bank_type": row_code(tensors["bank"], hd), "hd": hd}
    values["num_reads"] = tensors["row_weights"].shape[1] - sizes["num_writes"]
    return values | {k: sizes[k] for k in ("chunk_size", "num_writes", "num_tokens")}


def _write(tensors: dict, sizes: dict) -> Values:
    hd = tensors["bank"].shape[1]
    values = tensors | {"bank_type": row_code(tensors["bank"], hd), "hd": hd}
    values["snap_chunk_rows"] = _chunk_rows(tensors, sizes)
    return values | {k: sizes[k] for k in ("chunk_size", "num_writes")}


def _chunk_rows(tensors: dict, sizes: dict) -> int:
    """Rows of a chunk's dense snapshot; 0 where there is none."""
    entries = sizes["chunk_size"] * sizes["num_writes"]
    return sizes.get("snap_chunk_rows", entries) if "bpre" in tensors else 0


def _gemm(tensors: dict, sizes: dict) -> Values:
    return tensors | {"chunk_size": tensors["x"].shape[1], "hd": tensors["d_u"].shape[2]}
