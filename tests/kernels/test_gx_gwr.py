"""gx_gwr's host twin against the scalar reference, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernel_cases import BF16, F32, Shape
from kernel_checks import assert_matches_reference, case, differing, run

WIDTHS = [1, 2, 3, 4, 5, 30, 32, 36, 48, 64, 77, 96, 128, 130, 192, 256, 300, 1024, 1100]


@pytest.mark.parametrize("hd", WIDTHS)
@pytest.mark.parametrize("grad", [BF16, F32])
def test_every_width_matches_the_reference(hd, grad):
    assert_matches_reference("gx_gwr", Shape(hd=hd, types=(BF16, BF16, grad)))


@pytest.mark.parametrize("grad", [BF16, F32])
@pytest.mark.parametrize("writes", [1, 15, 16, 17, 40])
def test_any_number_of_writes_matches_the_reference(grad, writes):
    """16 dots make a batch: fewer, as many, more, several."""
    shape = Shape(writes=writes, slots=64, types=(BF16, BF16, grad), seed=writes)
    assert_matches_reference("gx_gwr", shape)
    assert_matches_reference("gx_gwr", shape, ti=0)


@pytest.mark.parametrize("hd", [5, 300])
def test_special_values_match_the_reference(hd):
    for seed in range(4):
        assert_matches_reference("gx_gwr", Shape(hd=hd, special=True, seed=seed))


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_padding_tokens_give_zero(padding):
    shape = Shape(padding=padding, types=(F32, F32, F32))
    assert_matches_reference("gx_gwr", shape)
    tensors, sizes = case("gx_gwr", shape)
    after = run("gx_gwr", tensors, sizes, ti=1)
    first = (shape.chunks - shape.sequences) * shape.chunk  # the last step's first token
    rows = after["d_dv"][first:].view(shape.sequences, shape.chunk, -1)
    assert (rows[:, shape.chunk - padding :] == 0).all()
    assert (rows[:, : shape.chunk - padding] != 0).any(-1).all()


def test_other_steps_are_left_alone():
    tensors, sizes = case("gx_gwr", Shape())
    after = run("gx_gwr", tensors, sizes, ti=1)
    half = len(after["d_dv"]) // 2
    assert torch.equal(after["d_dv"][:half], tensors["d_dv"][:half])
    assert torch.equal(after["dpd"][:, : 3 * half], tensors["dpd"][:, : 3 * half])


def test_order_of_writes_matters():
    """The control: the same sum with its writes reversed has other bits."""
    shape = replace(Shape(), hd=77, writes=16, slots=64)
    tensors, sizes = case("gx_gwr", shape)
    reversed_writes = tensors | {k: tensors[k].flip(1).contiguous() for k in ("pd", "slots")}
    after, other = run("gx_gwr", tensors, sizes), run("gx_gwr", reversed_writes, sizes)
    assert "d_dv" in differing(after, other)
    torch.testing.assert_close(after["d_dv"], other["d_dv"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("picks", ["uniform", "skewed", "one-hot"])
def test_slots_as_trained_models_pick_them(picks):
    shape = Shape(hd=6, sequences=1, chunk=64, writes=24, slots=256, steps=1, picks=picks)
    assert_matches_reference("gx_gwr", shape)


@pytest.mark.parametrize("hd", [5, 36, 128, 300])
@pytest.mark.parametrize("grad", [BF16, F32])
def test_entries_without_a_slot_match_the_reference(hd, grad):
    for special in (False, True):
        shape = Shape(hd=hd, writes=5, types=(BF16, BF16, grad), without_slot=True, special=special)
        assert_matches_reference("gx_gwr", shape)
