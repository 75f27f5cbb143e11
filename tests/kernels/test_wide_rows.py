"""Rows of 2^20 columns, the widest there are: 8192 slices."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from kernel_cases import BF16, Shape
from kernel_checks import as_bits, case, run
from kernel_reference import row_dot, slices

from sdm_runtime import kernels
from sdm_runtime.kernels.steps import step_tables

SHAPE = Shape(hd=2**20, sequences=1, chunk=1, writes=1, reads=1, steps=1, slots=2, padding=0)
SOME_SLICES = [0, 1, 7, 8, 4095, -1]


def spot_dots(a: torch.Tensor, b: torch.Tensor) -> dict[int, torch.Tensor]:
    """The reference's dots of two rows on some of their slices."""
    spans = slices(len(a))
    x, y = a.float().numpy(), b.float().numpy()
    dots = {}
    for s in SOME_SLICES:
        columns = spans[s]
        left, right = ({c: row[c] for c in columns} for row in (x, y))
        dots[s] = torch.tensor(row_dot(left, right, columns))
    return dots


def assert_dots(planes: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    for s, dot in spot_dots(a, b).items():
        assert torch.equal(as_bits(planes[s, 0]), as_bits(dot)), s


@pytest.mark.parametrize("hd", [2**20, 2**20 - 1])
def test_gx_gwr_reads_wide_rows_whole(hd):
    tensors, sizes = case("gx_gwr", replace(SHAPE, hd=hd))
    after = run("gx_gwr", tensors, sizes)
    row = tensors["grad"][int(tensors["slots"][0, 0])]
    assert torch.equal(after["d_dv"][0], tensors["pd"][0, 0] * row.float())  # fma(pd, g, +0)
    assert_dots(after["dpd"], tensors["delta"][0], row)


@pytest.mark.parametrize("hd", [2**20, 2**20 - 1])
def test_gx_pa2_takes_wide_rows_whole(hd):
    tensors, sizes = case("gx_pa2", replace(SHAPE, hd=hd))
    after = run("gx_pa2", tensors, sizes)
    row = int(tensors["rec"][0, 0, 1])
    assert torch.equal(after["bank"][row], tensors["snap"][0])
    assert_dots(after["out_eff"], tensors["d_u"][0], tensors["snap"][0])
    assert_dots(after["out_g"], tensors["grad"][row], tensors["snap"][0])


def test_gx_gds_takes_wide_rows_whole():
    tensors, sizes = case("gx_gds", SHAPE)
    after = run("gx_gds", tensors, sizes)
    row = int(tensors["qrec"][0, 0, 1])
    scale = tensors["qrec"][0, 0, 2:3].view(torch.float32)
    added = (tensors["grad"][row].float() + scale * tensors["gy"][0]).bfloat16()
    assert torch.equal(after["grad"][row], added)
    assert_dots(after["dq"], tensors["gy"][0], tensors["bank"][row])


@pytest.mark.parametrize("hd", [2**20, 2**20 - 1])
def test_fx_read_and_fx_write_take_wide_rows_whole(hd):
    tensors, sizes = case("fx_read", replace(SHAPE, hd=hd))
    after = run("fx_read", tensors, sizes)
    slots, bits = tensors["row_weights"][0, :, 0].long(), tensors["row_weights"][0, :, 1]
    weights, rows = bits.contiguous().view(torch.float32), tensors["bank"][slots].float()
    residual = (tensors["v"][0, 0].double() + weights[0].double() * rows[0].double()).float()
    assert torch.equal(after["residual"][0, 0], residual)  # a product of floats is exact in double
    assert torch.equal(after["reading"][0, 0], weights[1] * rows[1])

    tensors, sizes = case("fx_write", replace(SHAPE, hd=hd))
    after = run("fx_write", tensors, sizes)
    _, row, *bits = tensors["updates"][0, 0].tolist()
    pd, cpe = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    old, added = tensors["bank"][row].double(), (pd * tensors["delta"][0]).double()
    assert torch.equal(after["bank"][row], (old * cpe.double() + added).float().bfloat16())
    assert torch.equal(after["snap"][0], tensors["bank"][row])


@pytest.mark.parametrize("name", sorted(step_tables()))
def test_wider_rows_are_refused(name):
    tensors, sizes = case(name, replace(SHAPE, hd=2**20 + 1, types=(BF16, BF16, BF16)))
    with pytest.raises(ValueError, match=re.escape("hd: expected 1..2^20 columns, got 1048577")):
        getattr(kernels, name)(**tensors, ti=0, **sizes)
