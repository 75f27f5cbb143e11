"""gx_pa2's host twin against recorded steps and the scalar reference, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from guarded import GuardedTensor
from kernel_cases import BF16, E4M3, F32, INT4, ROW_TYPES, Shape
from kernel_checks import assert_matches_reference, case, differing, run

from sdm_runtime import kernels

RECORDED = torch.load(Path(__file__).parents[1] / "data/pa2_steps.pt", weights_only=True)
WIDTHS = [1, 2, 3, 4, 5, 30, 32, 36, 48, 64, 77, 96, 128, 130, 192, 256, 300, 1024, 1100]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_steps_give_the_same_bits(name):
    step = RECORDED[name]
    after = run("gx_pa2", step["before"], step["sizes"])
    assert differing(step["before"] | step["after"], after) == []
    assert set(differing(step["before"], after)) == {"grad", "bank", "out_eff", "out_g"}


# int4 rows hold pairs of columns.
WIDTHS_AND_TYPES = [(hd, t) for t in ROW_TYPES for hd in WIDTHS if t[1] != INT4 or hd % 2 == 0]


@pytest.mark.parametrize(("hd", "types"), WIDTHS_AND_TYPES)
def test_widths_and_row_types(hd, types):
    assert_matches_reference("gx_pa2", Shape(hd=hd, types=types, seed=hd))


@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
@pytest.mark.parametrize("ti", [0, 1, 2])
def test_a_snapshot_row_per_entry_matches_the_reference(types, ti):
    shape = Shape(hd=36, types=types, per_entry=True, hot=True, steps=3)
    assert_matches_reference("gx_pa2", shape, ti)


# Chunks of 18 entries on 7 slots, all of which some name; of 6 on 16.
FEW_ROWS = [{"chunk": 6, "slots": 7}, {"chunk": 2, "slots": 16}, {"chunk": 50, "slots": 40}]


@pytest.mark.parametrize("sizes", FEW_ROWS, ids=str)
@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
@pytest.mark.parametrize("ti", [0, 2])
def test_snapshots_of_few_rows_match_the_reference(types, ti, sizes):
    shape = Shape(hd=36, types=types, steps=3, few_rows=True, **sizes)
    assert_matches_reference("gx_pa2", shape, ti)
    assert_matches_reference("gx_pa2", Shape(**vars(shape) | {"hd": 300}), ti)


def test_few_rows_change_no_other_bit():
    """The rows of each chunk, with or without the rest that no group has."""
    shape = Shape(chunk=6, slots=7, types=(F32, E4M3, F32))
    few, sizes = case("gx_pa2", Shape(**vars(shape) | {"few_rows": True}))
    wide = dict(few)
    for name in ("snap", "scales"):
        rows = few[name].unflatten(0, (-1, 7))
        wide[name] = torch.nn.functional.pad(rows, (*(0, 0) * (rows.ndim - 2), 0, 18 - 7), value=3)
        wide[name] = wide[name].flatten(0, 1)
    after = run("gx_pa2", few, sizes, ti=1)
    kept = [name for name in after if name not in ("snap", "scales")]
    other = run("gx_pa2", wide, {k: x for k, x in sizes.items() if k != "snap_chunk_rows"}, ti=1)
    assert differing({k: after[k] for k in kept}, other) == []
    assert differing(few, after) != []


def test_more_groups_than_rows_read_no_other_rows():
    tensors, sizes = case("gx_pa2", Shape(chunk=6, slots=7, few_rows=True, padding=0))
    rows = len(tensors["snap"]) // 7 * 2
    guarded = GuardedTensor(tensors["snap"][:rows])  # a page that faults follows
    kernels.gx_pa2(**tensors | {"snap": guarded.tensor}, ti=1, **sizes | {"snap_chunk_rows": 2})


@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
def test_special_values_match_the_reference(types):
    for seed in range(3):
        shape = Shape(hd=12, types=types, special=True, hot=seed == 1, seed=seed)
        assert_matches_reference("gx_pa2", shape)


@pytest.mark.parametrize("padding", [0, 1, 5])
def test_padding_tokens_match_the_reference(padding):
    shape = Shape(chunk=6, padding=padding, types=(F32, BF16, F32))
    assert_matches_reference("gx_pa2", shape)
    assert_matches_reference("gx_pa2", shape, ti=0)


@pytest.mark.parametrize("per_entry", [False, True])
def test_groups_longer_than_a_tile(per_entry):
    """One slot written by every token: groups of 150 across tiles of 64 positions."""
    shape = Shape(hd=6, chunk=150, writes=2, slots=3, repeat=True, hot=True, per_entry=per_entry)
    assert_matches_reference("gx_pa2", shape)


def test_group_longer_than_the_distance_field():
    """4352 entries on two slots: the distance back to FIRST saturates at 4095."""
    shape = Shape(hd=2, sequences=1, chunk=256, writes=17, steps=1, padding=0, slots=2, repeat=True)
    tensors, _ = case("gx_pa2", shape)
    words = tensors["rec"][..., 0].to(torch.int64)
    assert (words >> 18 & 0xFFF).max() < 4095  # two groups, neither is that long
    one_slot = Shape(**vars(shape) | {"slots": 1})
    tensors, _ = case("gx_pa2", one_slot)
    words = tensors["rec"][..., 0].to(torch.int64)
    assert (words >> 18 & 0xFFF == 4095).sum() > 200
    assert_matches_reference("gx_pa2", one_slot)


def test_many_slices_of_one_row():
    """More slices than one unit of work takes."""
    assert_matches_reference("gx_pa2", Shape(hd=1500, sequences=1, chunk=2, writes=2))


def test_rows_outside_the_step_are_left_alone():
    tensors, sizes = case("gx_pa2", Shape(hd=130, slots=64))
    after = run("gx_pa2", tensors, sizes, ti=1)
    words = tensors["rec"][2:]
    valid = (words[..., 0] >> 17 & 1) == 0
    written = torch.zeros(len(after["bank"]), dtype=torch.bool)
    written[words[..., 1][valid].long()] = True
    for name in ("bank", "grad"):
        assert torch.equal(after[name][~written], tensors[name][~written])
    half = after["out_eff"].shape[1] // 2
    for name in ("out_eff", "out_g"):
        assert torch.equal(after[name][:, :half], tensors[name][:, :half])


def test_bank_gets_the_snapshots_very_bits():
    """Unquantized rows are copied: NaN payloads and signed zeros too."""
    tensors, sizes = case("gx_pa2", Shape(types=(F32, F32, F32), slots=3, padding=0))
    bits = torch.randint(-(2**31), 2**31 - 1, tensors["snap"].shape, dtype=torch.int32)
    tensors["snap"] = bits.view(torch.float32)
    after = run("gx_pa2", tensors, sizes, ti=1)
    # All three slots of both sequences are written: 6 rows, restored from rows of the dense layout.
    restored = after["bank"].view(torch.int32)
    rows = bits.view(4, -1, 8)[2:, :3].reshape(6, 8)
    assert torch.equal(restored, rows)


@pytest.mark.parametrize("snap", [E4M3, BF16])
def test_snapshot_rows_matter(snap):
    """The control: one changed snapshot element changes the bank and the dots."""
    tensors, sizes = case("gx_pa2", Shape(types=(F32, snap, F32), slots=3, padding=0, seed=1))
    other = tensors | {"snap": tensors["snap"].clone()}
    other["snap"].view(torch.uint8)[12 * 2] ^= 0x15  # chunk 2's first row
    changed = differing(run("gx_pa2", tensors, sizes, 1), run("gx_pa2", other, sizes, 1))
    assert changed == ["bank", "snap", "out_eff", "out_g"]


def test_order_of_a_group_matters():
    """The control: the same group in another order has another sum."""
    shape = Shape(hd=77, sequences=1, chunk=32, writes=1, slots=1, steps=1, padding=0)
    tensors, sizes = case("gx_pa2", Shape(**vars(shape) | {"types": (F32, F32, F32)}))
    marks = torch.tensor(3 << 30, dtype=torch.int64).to(torch.int32)
    other = tensors | {"rec": tensors["rec"].clone()}
    middle = other["rec"][0, 1:-1]  # FIRST and LAST keep their places
    assert (middle[:, 0] & marks == 0).all()
    other["rec"][0, 1:-1] = middle.flip(0)
    after, swapped = run("gx_pa2", tensors, sizes), run("gx_pa2", other, sizes)
    assert differing(after, swapped) == ["grad", "rec"]


@pytest.mark.parametrize("picks", ["uniform", "skewed", "one-hot"])
def test_slots_as_trained_models_pick_them(picks):
    shape = Shape(hd=6, sequences=1, chunk=64, writes=24, slots=256, steps=1, picks=picks)
    assert_matches_reference("gx_pa2", shape)
