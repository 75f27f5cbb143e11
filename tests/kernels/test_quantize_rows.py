"""The host's encoding of snapshot rows: the bits of the torch operations, in one pass."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from kernel_cases import Draw
from kernel_checks import as_bits

from sdm_runtime import _core
from sdm_runtime.ops.call.quant import encode, encode_anywhere, snapshot_format
from sdm_runtime.tensor.refs import tensor_ref


def hard_rows(hd: int, dtype: torch.dtype) -> torch.Tensor:
    """Scales from denormal to huge, ties, and rows that hold infinities or NaN."""
    draw = Draw(hd, special=False)
    rows = draw.floats(64, hd) * torch.logspace(-45, 38, 64).unsqueeze(1)
    rows[1] = torch.arange(hd) / 2  # ties of int4 once scaled
    rows[2, 0], rows[3, -1], rows[4] = torch.inf, torch.nan, 0.0
    rows[5:9] = Draw(hd, special=True).floats(4, hd)
    return rows.to(dtype)


@pytest.mark.parametrize("name", ["fp8", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("hd", [2, 6, 30, 64, 130, 1100])
def test_same_bits_as_the_torch_operations(name, dtype, hd):
    rows, form = hard_rows(hd, dtype), snapshot_format(name, dtype, hd)
    codes, scales = encode(rows, form)
    wanted_codes, wanted_scales = encode_anywhere(rows, form)
    assert torch.equal(as_bits(scales), as_bits(wanted_scales))
    if name == "fp8":  # a NaN's sign is outside the contract
        codes, wanted_codes = (t.view(torch.float8_e4m3fn).float() for t in (codes, wanted_codes))
    assert torch.equal(as_bits(codes), as_bits(wanted_codes))


def test_odd_columns_of_fp8():
    rows, form = hard_rows(77, torch.float32), snapshot_format("fp8", torch.float32, 77)
    codes, _ = encode(rows, form)
    wanted, _ = encode_anywhere(rows, form)
    assert torch.equal(codes & 0x7F, wanted & 0x7F)


def test_odd_columns_of_int4_are_refused():
    operands = {"rows": torch.ones(3, 5), "codes": torch.zeros(3, 2, dtype=torch.uint8)}
    with pytest.raises(ValueError, match="rows: expected a multiple of 2 columns for int4"):
        quantize(operands | {"scales": torch.zeros(3), "format": "int4"})


def test_every_row_of_many_is_encoded():
    """Past the size where threads are worth it."""
    rows, form = torch.randn(3000, 64), snapshot_format("int4", torch.float32, 64)
    codes, scales = encode(rows, form)
    wanted_codes, wanted_scales = encode_anywhere(rows, form)
    assert torch.equal(codes, wanted_codes)
    assert torch.equal(scales, wanted_scales)


BAD = [
    ("rows", torch.zeros(3, 4).double(), TypeError, "float32 or bfloat16 [m, hd], got float64"),
    ("rows", torch.zeros(4), ValueError, "float32 [m, hd], got float32 [4]"),
    ("rows", torch.zeros(4, 3).T, ValueError, "contiguous"),
    ("codes", torch.zeros(3, 2, dtype=torch.uint8), ValueError, "uint8 [3, 4], got uint8 [3, 2]"),
    ("codes", torch.zeros(2, 4, dtype=torch.uint8), ValueError, "uint8 [3, 4], got uint8 [2, 4]"),
    ("codes", torch.zeros(3, 4, dtype=torch.int32), TypeError, "uint8"),
    ("scales", torch.zeros(2), ValueError, "float32 [3], got float32 [2]"),
    ("format", "int4", ValueError, "codes: expected uint8 [3, 2], got uint8 [3, 4]"),
    ("format", "bf16", ValueError, "format: expected one whose rows have scales, got bf16"),
    ("format", "fp4", ValueError, "format: expected one of f32, bf16, fp8, int4, got 'fp4'"),
]


def quantize(operands: dict[str, Any]) -> None:
    refs = [tensor_ref(name, operands[name]) for name in ("rows", "codes", "scales")]
    _core.quantize_rows(refs[0], refs[1], refs[2], operands["format"])


@pytest.mark.parametrize(("argument", "wrong", "error", "message"), BAD)
def test_a_wrong_argument_is_named(argument, wrong, error, message):
    operands = {
        "rows": torch.ones(3, 4),
        "codes": torch.zeros(3, 4, dtype=torch.uint8),
        "scales": torch.zeros(3),
        "format": "fp8",
    }
    quantize(operands)
    operands[argument] = wrong
    with pytest.raises(error, match=re.escape(message)):
        quantize(operands)
