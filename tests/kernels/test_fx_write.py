"""fx_write's host twin against the scalar reference, bit for bit."""

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
@pytest.mark.parametrize("no_snapshot", [False, True])
def test_every_width_matches_the_reference(hd, bank, no_snapshot):
    assert_matches_reference("fx_write", shape_of(bank, hd=hd, no_snapshot=no_snapshot, seed=hd))


@pytest.mark.parametrize("bank", [BF16, F32])
@pytest.mark.parametrize("seed", range(3))
def test_special_values_match_the_reference(bank, seed):
    shape = shape_of(bank, hd=13, writes=5, special=True, hot=True, seed=seed)
    assert_matches_reference("fx_write", shape)
    assert_matches_reference("fx_write", shape, ti=0)


@pytest.mark.parametrize("padding", [0, 2, 5])
def test_padding_tokens_match_the_reference(padding):
    assert_matches_reference("fx_write", Shape(chunk=6, padding=padding))


@pytest.mark.parametrize("hd", [36, 300])
@pytest.mark.parametrize("bank", [BF16, F32])
@pytest.mark.parametrize(("chunk", "slots"), [(6, 7), (2, 16), (50, 40)])
def test_snapshots_of_few_rows_match_the_reference(chunk, slots, bank, hd):
    shape = shape_of(bank, hd=hd, chunk=chunk, slots=slots, few_rows=True)
    assert_matches_reference("fx_write", shape)
    assert_matches_reference("fx_write", shape, ti=0)


def test_few_rows_are_those_of_a_wide_snapshot():
    shape = Shape(chunk=6, slots=7)
    wide, sizes = case("fx_write", shape)
    few, few_sizes = case("fx_write", Shape(**vars(shape) | {"few_rows": True}))
    after, other = run("fx_write", wide, sizes), run("fx_write", few, few_sizes)
    assert other["snap"].shape[0] == shape.chunks * 7 < after["snap"].shape[0]
    assert torch.equal(other["snap"].view(-1, 7, 8), after["snap"].view(-1, 18, 8)[:, :7])
    assert torch.equal(other["bank"], after["bank"])


def test_more_groups_than_rows_stay_in_their_chunks_rows():
    """Whoever asks for too few rows loses snapshots, and nothing else."""
    tensors, sizes = case("fx_write", Shape(chunk=6, slots=7, few_rows=True, steps=3))
    wanted = run("fx_write", tensors, sizes, ti=1)
    tensors["snap"] = tensors["snap"][: len(tensors["snap"]) // 7 * 2].clone()
    after = run("fx_write", tensors, sizes | {"snap_chunk_rows": 2}, ti=1)
    assert torch.equal(after["bank"], wanted["bank"])
    chunks, before = after["snap"].view(3, 2, 2, 8), tensors["snap"].view(3, 2, 2, 8)
    assert torch.equal(chunks[::2], before[::2])
    assert torch.equal(chunks[1, :, 0], wanted["snap"].view(3, 2, 7, 8)[1, :, 0])


def test_groups_longer_than_a_tile():
    for no_snapshot in (False, True):
        shape = Shape(hd=6, chunk=150, writes=2, slots=3, repeat=True, no_snapshot=no_snapshot)
        assert_matches_reference("fx_write", shape)


def test_snapshots_across_blocks_of_records():
    shape = Shape(hd=4, chunk=40, writes=5, slots=90, padding=3)
    assert_matches_reference("fx_write", shape)
    tensors, sizes = case("fx_write", shape)
    after = run("fx_write", tensors, sizes, ti=1)
    words = tensors["updates"][-1, :, 0]
    first = (words < 0) & (words & 1 << 17 == 0)
    rows = tensors["updates"][-1, first, 1].long()
    kept = after["snap"][-shape.chunk * shape.writes :]
    assert torch.equal(kept[: len(rows)], tensors["bank"][rows])
    assert torch.equal(kept[len(rows) :], tensors["snap"][-len(kept) + len(rows) :])


def test_a_snapshot_changes_nothing_else():
    tensors, sizes = case("fx_write", Shape(hot=True))
    after = run("fx_write", tensors, sizes)
    without = {k: x for k, x in tensors.items() if k not in ("snap", "bpre")}
    assert differing(run("fx_write", without, sizes), after) == []


def test_a_row_is_rounded_once_per_group():
    """The control: 256 additions of 2^-9 to a bf16 1.0 must not be lost one by one."""
    shape = Shape(hd=4, sequences=1, chunk=256, writes=1, slots=1, steps=1, padding=0)
    tensors, sizes = case("fx_write", shape)
    tensors["bank"].fill_(1.0)
    tensors["delta"].fill_(2.0**-9)
    tensors["updates"][..., 2:] = torch.ones(()).view(torch.int32)
    assert (run("fx_write", tensors, sizes)["bank"] == 1.5).all()
    assert torch.tensor(1.0).bfloat16() + 2.0**-9 == 1.0


def test_other_rows_and_steps_are_left_alone():
    tensors, sizes = case("fx_write", Shape(slots=64))
    after = run("fx_write", tensors, sizes, ti=1)
    written = torch.zeros(len(after["bank"]), dtype=torch.bool)
    written[tensors["updates"][2:, :, 1].flatten().long()] = True
    assert torch.equal(after["bank"][~written], tensors["bank"][~written])
    assert set(differing(tensors, after)) == {"bank", "snap"}
    half = len(after["snap"]) // 2
    assert torch.equal(after["snap"][:half], tensors["snap"][:half])


@pytest.mark.parametrize("picks", ["uniform", "skewed", "one-hot"])
def test_slots_as_trained_models_pick_them(picks):
    shape = Shape(hd=6, sequences=1, chunk=64, writes=24, slots=256, steps=1, picks=picks)
    assert_matches_reference("fx_write", shape)
