"""Snapshot rows in fewer bits: bf16, fp8 e4m3 or int4 with one scale per row.

To the bit: docs/step_chain.md, section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.tensor.refs import tensor_ref

_E4M3_MAX = 448.0
_INT4_MAX = 7.0
_SCALE_MIN = 1e-12


class SnapshotFormat(NamedTuple):
    """How a snapshot row of hd elements is stored."""

    name: str
    dtype: torch.dtype
    columns: int  # stored elements per row
    scaled: bool
    exact: bool  # the restored bank has the bits of the bank before the call


def snapshot_format(name: str, bank_dtype: torch.dtype, head_dim: int) -> SnapshotFormat:
    """The format of snapshot_quant for a bank; int4 packs two columns in a byte, so hd is even."""
    if name == "fp8":
        return SnapshotFormat("fp8", torch.uint8, head_dim, scaled=True, exact=False)
    if name == "int4":
        return SnapshotFormat("int4", torch.uint8, head_dim // 2, scaled=True, exact=False)
    if name == "bf16" and bank_dtype != torch.bfloat16:
        return SnapshotFormat("bf16", torch.bfloat16, head_dim, scaled=False, exact=False)
    return SnapshotFormat("none", bank_dtype, head_dim, scaled=False, exact=True)


def encode(rows: Tensor, form: SnapshotFormat) -> tuple[Tensor, Tensor | None]:
    """Store rows [m, hd] bf16 or f32: (stored [m, columns], scales [m] f32 or None)."""
    if not form.scaled:
        return rows.to(form.dtype), None
    if rows.device.type == "cpu":
        return _encode_on_host(rows.contiguous(), form)
    return encode_anywhere(rows, form)


def encode_anywhere(rows: Tensor, form: SnapshotFormat) -> tuple[Tensor, Tensor]:
    """Quantize by torch operations, on any device."""
    x = rows.to(torch.float32)
    top = _E4M3_MAX if form.name == "fp8" else _INT4_MAX
    # The reciprocal is rounded to f32 first: the format multiplies, it does not divide.
    inverse = torch.tensor(1.0 / top, dtype=torch.float32, device="cpu").item()
    scale = (x.abs().amax(1) * inverse).clamp_min(_SCALE_MIN).to(torch.bfloat16).to(torch.float32)
    q = (x / scale.unsqueeze(1)).to(torch.bfloat16).to(torch.float32)
    return (_to_e4m3(q) if form.name == "fp8" else _to_int4(q)), scale


def _encode_on_host(rows: Tensor, form: SnapshotFormat) -> tuple[Tensor, Tensor]:
    """The same codes and scales in one pass over the rows."""
    codes = rows.new_empty((len(rows), form.columns), dtype=torch.uint8)
    scales = rows.new_empty(len(rows), dtype=torch.float32)
    operands = {"rows": rows, "codes": codes, "scales": scales}
    _core.quantize_rows(*(tensor_ref(name, tensor) for name, tensor in operands.items()))
    return codes, scales


def decode(
    stored: Tensor, scales: Tensor | None, form: SnapshotFormat, bank: torch.dtype
) -> Tensor:
    """The rows that a restore writes: [m, hd] in the bank's dtype."""
    if scales is None:
        return stored.to(bank)
    q = _from_e4m3(stored) if form.name == "fp8" else _from_int4(stored)
    return (q * scales.unsqueeze(1)).to(bank)


def _to_e4m3(q: Tensor) -> Tensor:
    # The cast rounds to nearest even; the clamp makes it saturate (NaN passes through).
    return q.clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn).view(torch.uint8)


def _from_e4m3(stored: Tensor) -> Tensor:
    return stored.view(torch.float8_e4m3fn).to(torch.float32)


def _to_int4(q: Tensor) -> Tensor:
    nibbles = q.nan_to_num(0.0).round().clamp(-8, 7).to(torch.int32) & 15
    return ((nibbles[:, 0::2] << 4) | nibbles[:, 1::2]).to(torch.uint8)


def _from_int4(stored: Tensor) -> Tensor:
    byte = stored.to(torch.int32)
    nibbles = torch.stack((byte >> 4, byte & 15), 2).flatten(1)
    return ((nibbles ^ 8) - 8).to(torch.float32)
