"""The step kernels on a GPU against the host twins, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from gpu import on_cpu, on_gpu
from kernel_cases import BF16, F32, INT4, ROW_TYPES, Shape
from kernel_checks import case, copies, differing, run

from sdm_runtime import kernels

WIDTHS = [1, 30, 36, 77, 128, 130, 256, 1024, 1100]
GRAD_TYPES = [(BF16, BF16, BF16), (BF16, BF16, F32), (F32, F32, F32)]


def assert_same_bits(kernel: str, shape: Shape, ti: int | None = None) -> None:
    tensors, sizes = case(kernel, shape)
    ti = shape.steps - 1 if ti is None else ti
    expected = run(kernel, tensors, sizes, ti)
    after = run(kernel, on_gpu(tensors), sizes, ti)
    assert differing(on_cpu(after), expected) == []
    assert differing(tensors, expected) != []  # the step did something


@pytest.mark.parametrize("hd", WIDTHS)
@pytest.mark.parametrize("types", GRAD_TYPES, ids="-".join)
@pytest.mark.parametrize("kernel", ["gx_gwr", "gx_gds"])
def test_every_width_gives_the_hosts_bits(
    kernel: str, types: tuple[str, str, str], hd: int
) -> None:
    for seed, hot in enumerate([False, True]):
        assert_same_bits(kernel, Shape(hd=hd, types=types, chunk=17, hot=hot, seed=seed))
        assert_same_bits(kernel, Shape(hd=hd, types=types, special=True, seed=seed), ti=0)


@pytest.mark.parametrize(("sequences", "chunk"), [(2, 16), (3, 48), (2, 33), (1, 128), (1, 256)])
@pytest.mark.parametrize("hd", WIDTHS)
def test_every_shape_of_gemm_gives_the_hosts_bits(sequences: int, chunk: int, hd: int) -> None:
    assert_same_bits("gx_gemm", Shape(hd=hd, sequences=sequences, chunk=chunk, seed=hd))
    special = Shape(hd=hd, sequences=sequences, chunk=chunk, special=True, seed=hd)
    assert_same_bits("gx_gemm", special, ti=0)


@pytest.mark.parametrize(("sequences", "hd"), [(4, 1024), (8, 1024), (16, 128)])
def test_every_tile_of_gemm_gives_the_hosts_bits(sequences: int, hd: int) -> None:
    """Problems that take the larger tiles on a large GPU."""
    for chunk in (64, 256):
        assert_same_bits("gx_gemm", Shape(hd=hd, sequences=sequences, chunk=chunk))


PA2_CASES = [(hd, t) for t in ROW_TYPES for hd in WIDTHS if t[1] != INT4 or hd % 2 == 0]


@pytest.mark.parametrize(("hd", "types"), PA2_CASES)
def test_every_width_of_pa2_gives_the_hosts_bits(types: tuple[str, str, str], hd: int) -> None:
    for seed, hot in enumerate([False, True]):
        for per_entry in (False, True):
            sizes: dict[str, Any] = {"hd": hd, "types": types, "per_entry": per_entry, "seed": seed}
            assert_same_bits("gx_pa2", Shape(chunk=17, hot=hot, **sizes))
            assert_same_bits("gx_pa2", Shape(special=True, **sizes), ti=0)


@pytest.mark.parametrize("hd", WIDTHS)
@pytest.mark.parametrize("bank", [BF16, F32])
@pytest.mark.parametrize("kernel", ["fx_read", "fx_write"])
def test_every_width_of_the_forward_gives_the_hosts_bits(kernel: str, bank: str, hd: int) -> None:
    for seed in range(2):
        rows: dict[str, Any] = {
            "hd": hd,
            "types": (bank, bank, bank),
            "no_snapshot": seed == 1,
            "seed": seed,
        }
        assert_same_bits(kernel, Shape(chunk=17, hot=seed == 1, **rows))
        assert_same_bits(kernel, Shape(special=True, **rows), ti=0)


@pytest.mark.parametrize("hd", WIDTHS)
@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
@pytest.mark.parametrize("kernel", ["gx_pa2", "fx_write"])
def test_snapshots_of_few_rows_give_the_hosts_bits(
    kernel: str, types: tuple[str, str, str], hd: int
) -> None:
    hd += hd % 2 if types[1] == INT4 else 0
    for slots, padding in ((7, 1), (7, 15), (40, 0)):
        shape = Shape(hd=hd, types=types, chunk=17, slots=slots, few_rows=True, padding=padding)
        assert_same_bits(kernel, shape)


@pytest.mark.parametrize("kernel", ["gx_gwr", "gx_pa2", "gx_gds", "fx_read", "fx_write"])
@pytest.mark.parametrize("hot", [False, True])
def test_many_entries_give_the_hosts_bits(kernel: str, hot: bool) -> None:
    """More groups than the blocks of one wave hold, long groups, several slices."""
    shape = Shape(hd=1024, chunk=64, writes=33, reads=33, slots=512, steps=1, padding=5, hot=hot)
    assert_same_bits(kernel, shape)


@pytest.mark.parametrize("kernel", ["gx_pa2", "gx_gds", "fx_write"])
def test_groups_across_tiles_give_the_hosts_bits(kernel: str) -> None:
    shape = Shape(hd=64, chunk=150, writes=2, reads=2, slots=3, repeat=True, hot=True)
    assert_same_bits(kernel, shape)


@pytest.mark.parametrize("picks", ["uniform", "skewed", "one-hot"])
@pytest.mark.parametrize("hd", [36, 128, 320, 1024])
@pytest.mark.parametrize("kernel", ["gx_gwr", "gx_pa2", "gx_gds", "fx_read", "fx_write"])
def test_slots_as_trained_models_pick_them(kernel: str, hd: int, picks: str) -> None:
    """Whole chunks with groups over several tiles, blocks of entries and blocks of threads."""
    for seed, types in enumerate(GRAD_TYPES):
        if kernel[0] == "f" and types[0] != types[2]:
            continue  # the forward has no rows of gradients
        shape = Shape(hd=hd, types=types, picks=picks, chunk=64, writes=16, reads=24, seed=seed)
        assert_same_bits(kernel, replace(shape, sequences=3, slots=512, padding=5))


@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
@pytest.mark.parametrize("picks", ["skewed", "one-hot"])
def test_long_groups_of_every_row_type(types: tuple[str, str, str], picks: str) -> None:
    for hd in (128, 256):
        for per_entry in (False, True):
            shape = Shape(hd=hd, types=types, picks=picks, chunk=64, writes=16, slots=512)
            assert_same_bits("gx_pa2", replace(shape, per_entry=per_entry))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["gx_gwr", "fx_read"])
def test_more_tokens_in_a_step_than_31_bits_count(kernel: str) -> None:
    """2^31 + 256 tokens of one column and one entry, up to 60 GiB of operands; all are real."""
    chunk, sequences = 256, (1 << 23) + 1
    tokens = chunk * sequences
    sizes = {"num_parallel": sequences, "chunk_size": chunk, "num_tokens": chunk, "ti": 0}
    rows = torch.tensor([[2.0], [3.0], [5.0]], device="cuda")
    out = torch.full((tokens, 1), -7.0, device="cuda")
    if kernel == "gx_gwr":
        weight = torch.full((tokens, 1), 0.5, device="cuda")
        slots = torch.ones(tokens, 1, device="cuda", dtype=torch.int32)
        kernels.gx_gwr(rows, weight, weight, slots, out, torch.empty_like(out), **sizes)
        expected = 1.5  # 0.5 * 3
    else:
        entries = torch.ones(tokens, 2, 2, device="cuda", dtype=torch.int32)
        entries[..., 1] = int(torch.tensor(0.5).view(torch.int32))
        v = torch.ones(tokens, 1, device="cuda")
        kernels.fx_read(rows, v, entries, out, torch.empty_like(out), num_writes=1, **sizes)
        expected = 2.5  # 1 + 0.5 * 3
    assert bool((out == expected).all())


@pytest.mark.parametrize("kernel", ["gx_gwr", "gx_gemm", "gx_pa2", "gx_gds", "fx_read", "fx_write"])
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_addresses_that_allow_no_wide_access(kernel: str, shift: int) -> None:
    """Every operand of rows starts `shift` elements into its allocation."""
    tensors, sizes = case(kernel, Shape(hd=64, chunk=8, sequences=1))
    expected = run(kernel, tensors, sizes)
    shifted = on_gpu(tensors)
    rows = {"grad", "bank", "snap", "d_u", "x", "d_dv", "delta", "gy", "v", "residual", "reading"}
    for name in set(tensors) & rows:
        flat = torch.empty(tensors[name].numel() + shift, dtype=tensors[name].dtype, device="cuda")
        shifted[name] = flat[shift:].view_as(tensors[name]).copy_(tensors[name])
    getattr(kernels, kernel)(**shifted, ti=0, **sizes)
    assert differing(on_cpu(shifted), expected) == []


@pytest.mark.parametrize("planes", [1, 2, 9])
@pytest.mark.parametrize("width", [1, 3, 4])
def test_plane_reduce_gives_the_hosts_bits(planes: int, width: int) -> None:
    generator = torch.Generator().manual_seed(planes)
    tokens: dict[str, Any] = {"num_tokens": 37, "num_parallel": 2, "chunk_size": 16}
    count = 2 * 48 * width
    data = torch.randn(planes, count, generator=generator) * 1e-38
    factor = torch.randn(count // width, generator=generator) * 1e38
    with_factor: dict[str, Any] = {"factor": factor, "group": width, "negate": planes == 2}
    for options in ({}, with_factor):
        expected, got = torch.full((count,), -7.0), torch.full((count,), -7.0, device="cuda")
        kernels.plane_reduce(data, expected, **options, **tokens)
        moved: dict[str, Any] = {
            k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()
        }
        kernels.plane_reduce(data.cuda(), got, **moved, **tokens)
        assert differing({"out": got.cpu()}, {"out": expected}) == []


def test_the_comparison_can_fail() -> None:
    tensors, sizes = case("gx_pa2", Shape(hd=64))
    changed = copies(tensors)
    changed["d_u"][0, 0] += 1.0
    after = run("gx_pa2", on_gpu(changed), sizes)
    assert "out_eff" in differing(on_cpu(after), run("gx_pa2", tensors, sizes))


@pytest.mark.parametrize("kernel", ["gx_gwr", "fx_read"])
@pytest.mark.parametrize("hd", [36, 77, 128, 256])
def test_entries_without_a_slot_give_the_hosts_bits(kernel: str, hd: int) -> None:
    for seed, row in enumerate((BF16, F32)):
        shape = Shape(hd=hd, writes=9, reads=8, types=(row, row, row), without_slot=True, seed=seed)
        assert_same_bits(kernel, shape, ti=1)
        assert_same_bits(kernel, replace(shape, special=True), ti=0)
