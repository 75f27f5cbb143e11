"""fx_read's host twin against the scalar reference, bit for bit."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import BF16, F32, Shape
from kernel_checks import assert_matches_reference, case, differing, run

WIDTHS = [1, 2, 3, 4, 5, 30, 32, 36, 48, 64, 77, 96, 128, 130, 192, 256, 300, 1024, 1100]


def shape_of(bank: str, **sizes) -> Shape:
    return Shape(types=(bank, bank, bank), **sizes)


@pytest.mark.parametrize("hd", WIDTHS)
@pytest.mark.parametrize("bank", [BF16, F32])
def test_every_width_matches_the_reference(hd, bank):
    assert_matches_reference("fx_read", shape_of(bank, hd=hd, seed=hd))


@pytest.mark.parametrize("bank", [BF16, F32])
@pytest.mark.parametrize(("writes", "reads"), [(1, 1), (1, 40), (16, 17), (33, 2)])
def test_any_number_of_entries_matches_the_reference(bank, writes, reads):
    shape = shape_of(bank, writes=writes, reads=reads, slots=64, seed=writes)
    assert_matches_reference("fx_read", shape)
    assert_matches_reference("fx_read", shape, ti=0)


@pytest.mark.parametrize("hd", [5, 300])
@pytest.mark.parametrize("bank", [BF16, F32])
def test_special_values_match_the_reference(hd, bank):
    for seed in range(3):
        assert_matches_reference("fx_read", shape_of(bank, hd=hd, special=True, seed=seed))


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_padding_tokens_give_zero(padding):
    shape = shape_of(F32, padding=padding)
    assert_matches_reference("fx_read", shape)
    tensors, sizes = case("fx_read", shape)
    tensors["bank"][0] = torch.nan  # the row that padding names
    after = run("fx_read", tensors, sizes, ti=1)
    for name in ("residual", "reading"):
        last = after[name][-shape.sequences :]
        assert (last[:, shape.chunk - padding :] == 0).all()
        assert (last[:, : shape.chunk - padding] != 0).any(-1).all()


def test_other_steps_and_the_bank_are_left_alone():
    tensors, sizes = case("fx_read", Shape())
    after = run("fx_read", tensors, sizes, ti=1)
    assert set(differing(tensors, after)) == {"residual", "reading"}
    for name in ("residual", "reading"):
        half = len(after[name]) // 2
        assert torch.equal(after[name][:half], tensors[name][:half])


def test_order_of_entries_matters():
    """The control: the same sums with their entries reversed have other bits."""
    tensors, sizes = case("fx_read", shape_of(F32, hd=77, writes=16, reads=16, slots=64))
    parts = tensors["row_weights"].split(16, 1)
    backwards = torch.cat([part.flip(1) for part in parts], 1).contiguous()
    after = run("fx_read", tensors, sizes)
    other = run("fx_read", tensors | {"row_weights": backwards}, sizes)
    assert {"residual", "reading"} <= set(differing(after, other))
    torch.testing.assert_close(after["reading"], other["reading"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("picks", ["uniform", "skewed", "one-hot"])
def test_slots_as_trained_models_pick_them(picks):
    shape = Shape(hd=6, sequences=1, chunk=64, writes=24, reads=24, slots=256, steps=1, picks=picks)
    assert_matches_reference("fx_read", shape)


@pytest.mark.parametrize("hd", [5, 36, 128, 300])
@pytest.mark.parametrize("bank", [BF16, F32])
def test_entries_without_a_slot_match_the_reference(hd, bank):
    for special in (False, True):
        shape = shape_of(bank, hd=hd, writes=5, without_slot=True, special=special)
        assert_matches_reference("fx_read", shape)
