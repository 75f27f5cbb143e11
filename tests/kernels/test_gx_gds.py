"""gx_gds's host twin against the scalar reference, bit for bit."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import BF16, F32, Shape
from kernel_checks import assert_matches_reference, case, differing, run

TYPES = [(BF16, BF16, BF16), (BF16, BF16, F32), (F32, F32, F32)]
WIDTHS = [1, 2, 3, 4, 5, 30, 32, 36, 48, 64, 77, 96, 128, 130, 192, 256, 300, 1024, 1100]


@pytest.mark.parametrize("hd", WIDTHS)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_widths_and_row_types(hd, types):
    assert_matches_reference("gx_gds", Shape(hd=hd, types=types, seed=hd))


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("seed", range(3))
def test_special_values_match_the_reference(types, seed):
    shape = Shape(hd=13, types=types, reads=5, special=True, hot=True, seed=seed)
    assert_matches_reference("gx_gds", shape)
    assert_matches_reference("gx_gds", shape, ti=0)


@pytest.mark.parametrize("padding", [0, 2, 5])
def test_padding_tokens_match_the_reference(padding):
    assert_matches_reference("gx_gds", Shape(chunk=6, padding=padding))


def test_groups_longer_than_a_tile():
    shape = Shape(hd=6, chunk=150, reads=2, slots=3, repeat=True, hot=True)
    assert_matches_reference("gx_gds", shape)


def test_group_longer_than_the_distance_field():
    shape = Shape(hd=2, sequences=1, chunk=256, reads=17, steps=1, padding=0, slots=1, repeat=True)
    assert_matches_reference("gx_gds", shape)


def test_a_row_is_rounded_once_per_group():
    """The control: 256 additions of 2^-9 to a bf16 1.0 must not be lost one by one."""
    shape = Shape(hd=4, sequences=1, chunk=256, reads=1, slots=1, steps=1, padding=0)
    tensors, sizes = case("gx_gds", shape)
    tensors["grad"].fill_(1.0)
    tensors["gy"].fill_(2.0**-9)
    tensors["qrec"][..., 2] = torch.ones(()).view(torch.int32)
    assert (run("gx_gds", tensors, sizes)["grad"] == 1.5).all()
    assert torch.tensor(1.0).bfloat16() + 2.0**-9 == 1.0


def test_other_rows_and_steps_are_left_alone():
    tensors, sizes = case("gx_gds", Shape(slots=64))
    after = run("gx_gds", tensors, sizes, ti=1)
    read = torch.zeros(len(after["bank"]), dtype=torch.bool)
    read[tensors["qrec"][2:, :, 1].flatten().long()] = True
    assert torch.equal(after["grad"][~read], tensors["grad"][~read])
    assert set(differing(tensors, after)) == {"grad", "dq"}
    half = after["dq"].shape[1] // 2
    assert torch.equal(after["dq"][:, :half], tensors["dq"][:, :half])


@pytest.mark.parametrize("picks", ["uniform", "skewed", "one-hot"])
def test_slots_as_trained_models_pick_them(picks):
    shape = Shape(hd=6, sequences=1, chunk=64, reads=24, writes=24, slots=256, steps=1, picks=picks)
    assert_matches_reference("gx_gds", shape)
