"""Snapshot rows in fewer bits: bf16, fp8 e4m3 or int4 with one scale per row.

To the bit: docs/step_chain.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.tensor.refs import tensor_ref

_SCALE_MIN = 1e-12
_PLAIN_ROWS = {torch.float32: "f32", torch.bfloat16: "bf16"}


class SnapshotFormat(NamedTuple):
    """How a snapshot row of hd elements is stored."""

    name: str  # as snapshot_quant
    rows: str  # as the core calls such rows
    dtype: torch.dtype
    columns: int  # stored elements per row
    scaled: bool
    exact: bool  # the restored bank has the bits of the bank before the call


def columns_together(name: str) -> int:
    """Columns of a row that share a byte with snapshot_quant ``name``: hd is a multiple of them."""
    return _row_format(name).codes_per_byte if name in _CODECS else 1


def snapshot_format(name: str, bank_dtype: torch.dtype, head_dim: int) -> SnapshotFormat:
    """The format of snapshot_quant for a bank; hd is a multiple of :func:`columns_together`."""
    if name in _CODECS:
        columns = head_dim // columns_together(name)
        return SnapshotFormat(name, name, torch.uint8, columns, scaled=True, exact=False)
    if name == "bf16" and bank_dtype != torch.bfloat16:
        return SnapshotFormat("bf16", "bf16", torch.bfloat16, head_dim, scaled=False, exact=False)
    if name in ("none", "bf16"):
        rows = _PLAIN_ROWS[bank_dtype]
        return SnapshotFormat("none", rows, bank_dtype, head_dim, scaled=False, exact=True)
    raise ValueError(
        f"snapshot_quant: expected one of {', '.join(SNAPSHOT_QUANTS)}, given {name!r}"
    )


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
    top = _row_format(form.rows).largest_code
    assert top is not None
    # The reciprocal is rounded to f32 first: the format multiplies, it does not divide.
    inverse = torch.tensor(1.0 / top, dtype=torch.float32, device="cpu").item()
    scale = (x.abs().amax(1) * inverse).clamp_min(_SCALE_MIN).to(torch.bfloat16).to(torch.float32)
    q = (x / scale.unsqueeze(1)).to(torch.bfloat16).to(torch.float32)
    return _CODECS[form.rows].encode(q, top), scale


def _encode_on_host(rows: Tensor, form: SnapshotFormat) -> tuple[Tensor, Tensor]:
    """The same codes and scales in one pass over the rows."""
    codes = rows.new_empty((len(rows), form.columns), dtype=torch.uint8)
    scales = rows.new_empty(len(rows), dtype=torch.float32)
    _core.quantize_rows(
        tensor_ref("rows", rows),
        tensor_ref("codes", codes),
        tensor_ref("scales", scales),
        form.rows,
    )
    return codes, scales


def decode(
    stored: Tensor, scales: Tensor | None, form: SnapshotFormat, bank: torch.dtype
) -> Tensor:
    """The rows that a restore writes: [m, hd] in the bank's dtype."""
    if scales is None:
        return stored.to(bank)
    q = _CODECS[form.rows].decode(stored)
    return (q * scales.unsqueeze(1)).to(bank)


def _to_e4m3(q: Tensor, top: float) -> Tensor:
    # The cast rounds to nearest even; the clamp makes it saturate (NaN passes through).
    return q.clamp(-top, top).to(torch.float8_e4m3fn).view(torch.uint8)


def _from_e4m3(stored: Tensor) -> Tensor:
    return stored.view(torch.float8_e4m3fn).to(torch.float32)


def _to_int4(q: Tensor, top: float) -> Tensor:
    nibbles = q.nan_to_num(0.0).round().clamp(-top - 1, top).to(torch.int32) & 15
    return ((nibbles[:, 0::2] << 4) | nibbles[:, 1::2]).to(torch.uint8)


def _from_int4(stored: Tensor) -> Tensor:
    byte = stored.to(torch.int32)
    nibbles = torch.stack((byte >> 4, byte & 15), 2).flatten(1)
    return ((nibbles ^ 8) - 8).to(torch.float32)


class _Codec(NamedTuple):
    """Codes by torch operations: to bytes of them from ratios [m, hd], saturating, and back."""

    encode: Callable[[Tensor, float], Tensor]
    decode: Callable[[Tensor], Tensor]


# The scaled formats, by the names that snapshot_quant and the core have for them alike.
_CODECS = {"fp8": _Codec(_to_e4m3, _from_e4m3), "int4": _Codec(_to_int4, _from_int4)}

SNAPSHOT_QUANTS = ("none", "bf16", *_CODECS)


class _RowFormat(NamedTuple):
    """What the core's trait says of a row format."""

    codes_per_byte: int
    largest_code: float | None  # none: rows without scales


@lru_cache(maxsize=1)
def _row_formats() -> dict[str, _RowFormat]:
    return {name: _RowFormat(*trait) for name, trait in _core.row_formats().items()}


def _row_format(name: str) -> _RowFormat:
    return _row_formats()[name]
