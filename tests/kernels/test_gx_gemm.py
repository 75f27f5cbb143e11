"""gx_gemm's host twin against recorded cuBLAS results and the scalar reference, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kernel_cases import Shape
from kernel_checks import as_bits, assert_matches_reference, case, differing, run

from sdm_runtime import kernels

RECORDED = torch.load(Path(__file__).parents[1] / "data/gemm_steps.pt", weights_only=True)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_steps_give_the_same_bits(name):
    step = RECORDED[name]
    d_u = step["d_u"].clone()
    kernels.gx_gemm(d_u, step["x"], step["d_dv"], ti=0, num_parallel=len(d_u))
    assert torch.equal(as_bits(d_u), as_bits(step["out"]))


@pytest.mark.parametrize("hd", [1, 2, 3, 4, 5, 30, 36, 77, 128, 130, 256, 300])
@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 16])
def test_every_small_shape_matches_the_reference(hd, chunk):
    assert_matches_reference("gx_gemm", Shape(hd=hd, chunk=chunk, sequences=1, padding=0))


@pytest.mark.parametrize("shape", [(17, 1024, 1), (256, 3, 1), (20, 33, 3)], ids=str)
def test_larger_shapes_match_the_reference(shape):
    chunk, hd, sequences = shape
    small = Shape(hd=hd, chunk=chunk, sequences=sequences, steps=1, padding=0)
    assert_matches_reference("gx_gemm", small)


@pytest.mark.parametrize("seed", range(4))
def test_special_values_match_the_reference(seed):
    assert_matches_reference("gx_gemm", Shape(hd=21, chunk=9, special=True, seed=seed), ti=0)


def test_flat_d_dv_is_the_same():
    tensors, sizes = case("gx_gemm", Shape())
    flat = tensors | {"d_dv": tensors["d_dv"].flatten(0, 1)}
    assert torch.equal(run("gx_gemm", tensors, sizes)["d_u"], run("gx_gemm", flat, sizes)["d_u"])


def test_order_of_j_matters():
    """The control: the same sum with j reversed has other bits."""
    tensors, sizes = case("gx_gemm", Shape(hd=64, chunk=32, sequences=1, padding=0))
    reversed_j = tensors | {k: tensors[k].flip(1).contiguous() for k in ("x", "d_dv")}
    after, other = run("gx_gemm", tensors, sizes), run("gx_gemm", reversed_j, sizes)
    assert "d_u" in differing(after, other)
    torch.testing.assert_close(after["d_u"], other["d_u"], rtol=1e-3, atol=1e-4)
