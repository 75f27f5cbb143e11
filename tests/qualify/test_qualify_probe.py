"""The probe on the CPU: gx_gemm's host twin stands for the library, spoiled ones for gx_gemm."""

import pytest
import torch

from sdm_runtime.qualify.operand_shapes import Sizes
from sdm_runtime.qualify.patterns import PATTERNS, RUNS, Draw
from sdm_runtime.qualify.probe import differing_patterns, fixed_gemm, placed

SIZES = [Sizes(2, 16, 64), Sizes(1, 20, 12)]
CPU = torch.device("cpu")
ALIGNED = ((0, 0, 0),)
EVERY = (*PATTERNS, "order")


def found(fixed, sizes, classes=ALIGNED):
    return differing_patterns(sizes, classes, CPU, library=fixed_gemm, fixed=fixed)


def downward(d_u, x, d_dv):
    """The chain over j from C-1 to 0."""
    fixed_gemm(d_u, x.flip(1), d_dv.flip(1))


def flushing(d_u, x, d_dv):
    """Results below the least normal number become zeros."""
    fixed_gemm(d_u, x, d_dv)
    d_u[d_u.abs() < 2.0**-126] = 0.0


def in_two_halves(d_u, x, d_dv):
    """As a library does that splits j: two chains, added."""
    half = x.shape[1] // 2
    for part in (slice(0, half), slice(half, None)):
        kept = torch.zeros_like(x)
        kept[:, part] = x[:, part]
        fixed_gemm(d_u, kept, d_dv)


def from_the_first_product(d_u, x, d_dv):
    """The chain begins with a product instead of +0, so that -0 can be its sum."""
    products = x.transpose(1, 2).unsqueeze(3) * d_dv.unsqueeze(1)
    stays = ((products == 0) & products.signbit()).all(2) & (d_u == 0) & d_u.signbit()
    fixed_gemm(d_u, x, d_dv)
    d_u[stays] = -0.0


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_equal_products_are_equal(sizes):
    assert found(fixed_gemm, sizes) == ()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_pattern_catches_the_downward_chain(sizes):
    assert found(downward, sizes) == EVERY


def test_other_chains_are_caught():
    assert "order" in found(in_two_halves, SIZES[0])
    assert found(flushing, SIZES[0]) == ("denormal",)
    assert "signed zeros" in found(from_the_first_product, SIZES[0])


def test_one_bit_of_one_output_is_caught():
    def spoiled(d_u, x, d_dv):
        fixed_gemm(d_u, x, d_dv)
        d_u.view(torch.int32)[-1, -1, -1] ^= 1

    assert found(spoiled, SIZES[0]) == EVERY


def test_a_class_that_alone_differs_is_caught():
    def spoiled(d_u, x, d_dv):
        fixed_gemm(d_u, x, d_dv)
        if d_u.data_ptr() % 256 == 4:
            d_u[0, 0, 0] += 1.0

    assert found(spoiled, SIZES[0], ((0, 0, 0), (8, 4, 4))) == ()
    assert "order" in found(spoiled, SIZES[0], ((0, 0, 0), (4, 0, 16)))


def test_operands_lie_where_they_should():
    for residues in ((0, 4, 252), (128, 0, 16)):
        operands = placed(SIZES[1], residues, CPU, steps=3)
        assert tuple(t.data_ptr() % 256 for t in operands) == residues
        assert [t.shape for t in operands] == [(3, 20, 12), (3, 20, 20), (3, 20, 12)]
        assert all(t.is_contiguous() for t in operands)


def test_six_patterns_and_eight_orders():
    assert len(PATTERNS) == 6
    assert sum(name == "order" for name, _, _ in RUNS) >= 8
    assert len({seed for _, _, seed in RUNS}) == len(RUNS)


def test_patterns_hold_what_they_are_named_for():
    made = {name: make(Draw(CPU, 1), SIZES[0]) for name, make in PATTERNS.items()}
    zeros = made["signed zeros"].d_u[made["signed zeros"].d_u == 0]
    assert {bool(sign) for sign in zeros.signbit().unique()} == {False, True}
    assert (made["many zeros"].x == 0).float().mean() > 0.5
    assert made["large"].d_dv.abs().max() > 1e38
    tiny = made["denormal"].d_dv
    assert ((tiny != 0) & (tiny.abs() < 2.0**-126)).any()
    assert (tiny.abs() > 2.0**-126).any()
    drawn = [PATTERNS["non-finite"](Draw(CPU, seed), Sizes(4, 64, 64)) for seed in range(2)]
    assert any(t.isinf().any() for inputs in drawn for t in inputs)
    assert any(t.isnan().any() for inputs in drawn for t in inputs)


def test_torchs_own_generators_are_left_alone():
    before = torch.get_rng_state()
    found(fixed_gemm, SIZES[0])
    assert torch.equal(before, torch.get_rng_state())


def test_torchs_default_dtype_does_not_matter():
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert found(fixed_gemm, SIZES[0]) == ()
    finally:
        torch.set_default_dtype(before)
