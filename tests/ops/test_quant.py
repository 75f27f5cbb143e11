"""Quantized snapshot rows against scalar arithmetic, and what a restore puts into the bank."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from op_cases import Case, call, expected, make_grad, make_inputs, relative_error, run

from sdm_runtime.ops.call.quant import decode, encode, snapshot_format


def _f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def _bf16(x):
    return torch.tensor(x, dtype=torch.float32).bfloat16().float().item()


def _e4m3_values():
    """All finite e4m3 codes and values: 1 sign, 4 exponent (bias 7), 3 mantissa bits, no inf."""
    out = {}
    for code in range(256):
        sign, exponent, mantissa = code >> 7, (code >> 3) & 15, code & 7
        if exponent == 15 and mantissa == 7:
            continue
        size = (
            mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        )
        out[code] = -size if sign else size
    return out


_E4M3 = _e4m3_values()


def _nearest_e4m3(x):
    """Round to nearest, ties to the even code, saturating."""
    sign = 128 if math.copysign(1, x) < 0 else 0
    size = min(abs(x), 448.0)
    codes = [c for c in _E4M3 if c < 128]
    best = min(codes, key=lambda c: (abs(_E4M3[c] - size), c & 1))
    return best | sign


def _scale(row, top):
    largest = max(abs(x) for x in row)
    return _bf16(max(_f32(largest * _f32(1 / top)), _f32(1e-12)))


def _rows(dtype, columns=10):
    gen = torch.Generator().manual_seed(0)
    rows = torch.randn(40, columns, generator=gen) * torch.logspace(-6, 6, 40).unsqueeze(1)
    rows[3] = 0
    rows[4, 1:] = 0
    rows[5] = 1e-20
    return rows.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_codes_are_the_nearest_ones(dtype):
    rows = _rows(dtype)
    stored, scales = encode(rows, snapshot_format("fp8", dtype, 10))
    for row, codes, scale in zip(rows.tolist(), stored.tolist(), scales.tolist(), strict=True):
        assert scale == _scale(row, 448.0)
        assert codes == [_nearest_e4m3(_bf16(_f32(x / scale))) for x in row]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int4_codes_are_the_nearest_ones(dtype):
    rows = _rows(dtype)
    stored, scales = encode(rows, snapshot_format("int4", dtype, 10))
    assert stored.shape == (40, 5)
    for row, codes, scale in zip(rows.tolist(), stored.tolist(), scales.tolist(), strict=True):
        assert scale == _scale(row, 7.0)
        wanted = [max(-8, min(7, round(_bf16(_f32(x / scale))))) & 15 for x in row]
        assert codes == [
            high << 4 | low for high, low in zip(wanted[::2], wanted[1::2], strict=True)
        ]


@pytest.mark.parametrize("name", ["fp8", "int4"])
def test_decode_of_every_code(name):
    scale = 0.37
    stored = torch.arange(256, dtype=torch.uint8).unsqueeze(1)
    for bank in (torch.float32, torch.bfloat16):
        form = snapshot_format(name, bank, 1 if name == "fp8" else 2)
        kept = torch.full((256,), _bf16(scale))
        rows = decode(stored, kept, form, bank)
        for code, row in enumerate(rows.tolist()):
            if name == "fp8":
                values = [_E4M3.get(code, math.nan)]
            else:
                values = [((n ^ 8) - 8) for n in (code >> 4, code & 15)]
            wanted = [_f32(v * _bf16(scale)) for v in values]
            wanted = wanted if bank == torch.float32 else [_bf16(v) for v in wanted]
            assert row == pytest.approx(wanted, rel=0, abs=0, nan_ok=True)


def test_fp8_keeps_nan_and_saturates():
    form = snapshot_format("fp8", torch.float32, 2)
    stored, scales = encode(torch.tensor([[math.nan, 1.0], [1.0, 2.0]]), form)
    assert torch.isnan(decode(stored, scales, form, torch.float32)[0]).all()
    # bf16(x / scale) can exceed the top of the format by one rounding.
    big = torch.tensor([[1.0 + 2**-9 + 2**-12, 0.5]])
    stored, _ = encode(big, form)
    assert stored[0, 0] == 0x7E


def test_only_formats_that_lose_nothing_are_exact():
    assert snapshot_format("none", torch.float32, 3).exact
    assert snapshot_format("bf16", torch.bfloat16, 3).exact
    assert not snapshot_format("bf16", torch.float32, 3).exact


_ROW_TYPES = [
    # bank, snapshot_quant, grad_bank_fp32, limits: gradients, and g and q_val (of the snapshot)
    (torch.bfloat16, "none", True, 4e-3, 4e-3),
    (torch.float32, "bf16", False, 5e-3, 5e-3),
    (torch.bfloat16, "fp8", False, 4e-2, 4e-2),
    (torch.bfloat16, "fp8", True, 4e-2, 4e-2),
    (torch.float32, "fp8", False, 4e-2, 4e-2),
    (torch.bfloat16, "int4", False, 2e-1, 2e-1),
    (torch.bfloat16, "int4", True, 2e-1, 2e-1),
    (torch.float32, "int4", False, 2e-1, 2e-1),
]


@pytest.mark.parametrize("hd", [16, 36, 130])
@pytest.mark.parametrize(("bank", "quant", "wide", "limit", "limit_g"), _ROW_TYPES)
def test_gradients_of_every_row_type(bank, quant, wide, limit, limit_g, hd):
    case = Case(dtype=bank, hd=hd, T=40, options={"snapshot_quant": quant, "grad_bank_fp32": wide})
    given, exact = run(case), expected(case)
    assert relative_error(given.readings, exact.readings) < 4e-3
    for name, wanted in exact.grads.items():
        bound = limit_g if name in ("g", "q_val") else limit
        assert relative_error(given.grads[name], wanted) < bound, name
    # What does not pass through the snapshot is as exact as without.
    if bank == torch.float32:
        for name in ("readings", "memory", "v"):
            pair = (
                (given.readings, exact.readings)
                if name == "readings"
                else (given.grads[name], exact.grads[name])
            )
            assert relative_error(*pair) < 6e-7, name


@pytest.mark.parametrize("bank", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quant", ["bf16", "fp8", "int4"])
def test_the_bank_gets_the_decoded_snapshot(bank, quant):
    case = Case(P=1, T=20, S=50, hd=10, dtype=bank)
    inputs = make_inputs(case)
    before = inputs["memory"].clone()
    inputs["v"].requires_grad_()
    call(case, inputs, snapshot_quant=quant).backward(make_grad(case))
    form = snapshot_format(quant, bank, case.hd)
    wanted = before.clone()
    written = inputs["k_idx"].unique().long()
    # One chunk: every written row is stored once.
    wanted[written] = decode(*encode(before[written], form), form, bank)
    assert torch.equal(inputs["memory"], wanted)
    assert form.exact == torch.equal(wanted, before)


def test_an_inexact_restore_raises_the_version():
    case = Case(options={"snapshot_quant": "fp8"})
    inputs = make_inputs(case)
    inputs["v"].requires_grad_()
    version = inputs["memory"]._version
    readings = call(case, inputs)
    advanced = inputs["memory"]._version
    readings.backward(make_grad(case))
    assert version < advanced < inputs["memory"]._version
