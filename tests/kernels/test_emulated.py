"""The device code of the step kernels, run on the CPU, against the host twins bit for bit.

Every instance that can run a case is run, in the geometry that the launcher would choose and in
tilings that it would not, first block first and last block first.
"""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace

import pytest
import torch
from emulated import Launch, emulation
from guarded import GuardedTensor
from kernel_cases import BF16, E4M3, F32, INT4, ROW_TYPES, Shape
from kernel_checks import case, copies, differing
from step_params import block_values

from sdm_runtime.kernels.steps import step_tables

pytestmark = [
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64") or not shutil.which("g++"),
        reason="the emulation needs g++ on x86-64 Linux",
    ),
    pytest.mark.slow,
]

GEMM_TILES = {  # rows, columns, threads, shared bytes
    "8x16": (8, 16, 64, 6144),
    "16x32": (16, 32, 128, 12288),
    "32x64": (32, 64, 128, 36864),
    "64x64": (64, 64, 128, 49152),
    "128x128": (128, 128, 256, 98304),
}
NAMES = {E4M3: "fp8"}


def fitting_columns(hd: int, wide: bool) -> list[int]:
    """Columns per thread that rows of this width allow."""
    slices = 1 + (hd - 1) // 128
    quads = (hd + 3) // 4
    width = 4 * ((quads + slices - 1) // slices)
    return [c for c in (8, 4) if hd % c == 0 and width % c == 0 and (wide or c == 4)]


def slice_groups(hd: int, columns: int) -> int:
    slices = 1 + (hd - 1) // 128
    return slices // 2 if columns == 8 and slices % 2 == 0 else slices


def sequences_grid(sequences: int, tile: int) -> tuple[int, int]:
    """A grid's y and z for so many sequences or, with a tile of 8, for more than there are."""
    return (2, sequences // 2 + 1) if tile == 8 else (sequences, 1)


def record_launches(kernel: str, types: tuple[str, ...], shape: Shape, per_token: int):
    """A record kernel's instances with tiles of 1, 8 and 32 positions."""
    names = [NAMES.get(t, t) for t in types]
    columns = fitting_columns(shape.hd, BF16 in (types[0], types[-1]))
    entries = [("_".join([kernel, *names, f"c{c}"]), c) for c in columns]
    for entry, held in [*entries, (f"{kernel}_any", 4)]:
        for tile in (1, 8, 32):
            tiles = -(-shape.chunk * per_token // (8 * tile))
            grid = (slice_groups(shape.hd, held) * tiles, *sequences_grid(shape.sequences, tile))
            shared = 4 * 256 * (4 * held + 4 * held) + 2128 + 8 * 16 * tile
            yield Launch(entry, grid, (256, 1, 1), shared)


def gather_launches(kernel: str, rows: str, shape: Shape):
    columns = fitting_columns(shape.hd, rows == BF16)
    slices = 1 + (shape.hd - 1) // 128
    entries = shape.writes + 7 + (shape.reads + 7 if kernel == "fx_read" else 0)
    for entry in [*(f"{kernel}_{rows}_c{c}" for c in columns), f"{kernel}_any"]:
        for y, z in ((1, 1), (1, 4), (4, 1), (2, 2)):
            grid = (-(-shape.sequences * shape.chunk // z), -(-slices // y), 1)
            shared = y * z * (8192 + entries * 8)
            yield Launch(entry, grid, (32, y, z), shared)


def gemm_launches(shape: Shape):
    vector = shape.hd % 4 == 0 and shape.chunk % 4 == 0
    for name in [*(GEMM_TILES.keys() - {"8x16"} if vector else []), "8x16_any", "32x64_any"]:
        rows, columns, threads, shared = GEMM_TILES[name.removesuffix("_any")]
        grid = (shape.sequences, -(-shape.chunk // rows), -(-shape.hd // columns))
        yield Launch(f"gx_gemm_{name}", grid, (threads, 1, 1), shared)


def launches(kernel: str, shape: Shape):
    bank, snap, grad = shape.types
    if kernel == "gx_pa2":
        return record_launches(kernel, (bank, snap, grad), shape, shape.writes)
    if kernel == "gx_gds":
        return record_launches(kernel, (bank, grad), shape, shape.reads)
    if kernel == "fx_write":
        return record_launches(kernel, (bank,), shape, shape.writes)
    if kernel == "gx_gemm":
        return gemm_launches(shape)
    assert kernel in ("gx_gwr", "fx_read")
    return gather_launches(kernel, grad if kernel == "gx_gwr" else bank, shape)


def assert_same_bits(kernel: str, shape: Shape, ti: int = 0) -> None:
    library = emulation()
    tensors, sizes = case(kernel, shape)
    expected = copies(tensors)
    library.twin(kernel, block_values(kernel, expected, sizes, ti))
    assert differing(tensors, expected) != []  # the step did something
    chosen = library.chosen(kernel, block_values(kernel, tensors, sizes, ti), sm_count=3)
    for number, launch in enumerate([chosen, *launches(kernel, shape)]):
        after = copies(tensors)
        values = block_values(kernel, after, sizes, ti)
        library.launch(kernel, launch, values, backwards=number % 2 == 1)
        assert differing(after, expected) == [], launch


WIDTHS = [1, 30, 36, 77, 128, 130, 256, 1024, 1100]


@pytest.mark.parametrize("hd", WIDTHS)
@pytest.mark.parametrize("kernel", ["gx_gwr", "gx_gds"])
@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (BF16, BF16, F32), (F32, F32, F32)])
def test_every_width_gives_the_twins_bits(
    kernel: str, types: tuple[str, str, str], hd: int
) -> None:
    assert_same_bits(kernel, Shape(hd=hd, types=types, chunk=6, hot=hd % 4 == 0, seed=hd))


@pytest.mark.parametrize("hd", WIDTHS)
def test_every_width_of_gemm_gives_the_twins_bits(hd: int) -> None:
    assert_same_bits("gx_gemm", Shape(hd=hd, chunk=20, seed=hd))
    assert_same_bits("gx_gemm", Shape(hd=hd, chunk=33, sequences=1, seed=hd))


@pytest.mark.parametrize("hd", [30, 36, 128, 200, 256])
@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
@pytest.mark.parametrize("per_entry", [False, True])
def test_every_width_of_pa2_gives_the_twins_bits(
    types: tuple[str, str, str], hd: int, per_entry: bool
) -> None:
    shape = Shape(hd=hd, types=types, chunk=6, per_entry=per_entry, hot=hd % 4 == 0, seed=hd)
    assert_same_bits("gx_pa2", shape, ti=1)


@pytest.mark.parametrize("hd", WIDTHS)
@pytest.mark.parametrize("kernel", ["fx_read", "fx_write"])
@pytest.mark.parametrize("bank", [BF16, F32])
def test_every_width_of_the_forward_gives_the_twins_bits(kernel: str, bank: str, hd: int) -> None:
    types = (bank, bank, bank)
    for no_snapshot in (False, True):
        shape = Shape(hd=hd, types=types, chunk=6, hot=hd % 4 == 0, no_snapshot=no_snapshot)
        assert_same_bits(kernel, shape, ti=1)


@pytest.mark.parametrize("hd", [30, 36, 128, 256])
@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
@pytest.mark.parametrize("kernel", ["gx_pa2", "fx_write"])
def test_snapshots_of_few_rows_give_the_twins_bits(
    kernel: str, types: tuple[str, str, str], hd: int
) -> None:
    for slots, hot in ((7, False), (40, True)):
        shape = Shape(hd=hd, types=types, chunk=15, slots=slots, few_rows=True, hot=hot, padding=4)
        assert_same_bits(kernel, shape, ti=1)


@pytest.mark.parametrize("kernel", ["gx_pa2", "fx_write"])
@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (F32, E4M3, F32)], ids="-".join)
def test_padding_reaches_no_row_behind_the_snapshots(
    kernel: str, types: tuple[str, str, str]
) -> None:
    """All slots are named, the last chunk is nearly empty, and a page that faults follows."""
    library = emulation()
    shape = Shape(hd=64, types=types, chunk=60, slots=4, writes=2, few_rows=True, padding=58)
    tensors, sizes = case(kernel, shape)
    expected = copies(tensors)
    library.twin(kernel, block_values(kernel, expected, sizes, 1))
    for launch in launches(kernel, shape):
        guarded = {n: GuardedTensor(tensors[n]) for n in ("snap", "scales") if n in tensors}
        after = copies(tensors) | {name: guard.tensor for name, guard in guarded.items()}
        library.launch(kernel, launch, block_values(kernel, after, sizes, 1), backwards=False)
        assert differing(after, expected) == [], launch


@pytest.mark.parametrize("kernel", sorted(step_tables()))
@pytest.mark.parametrize("hd", [36, 128, 256])
def test_special_values_give_the_twins_bits(kernel: str, hd: int) -> None:
    for seed, types in enumerate([(BF16, BF16, BF16), (F32, BF16, F32), (BF16, INT4, F32)]):
        if kernel != "gx_gds" or types[:2] != (F32, BF16):
            shape = Shape(hd=hd, types=types, special=True, hot=True, chunk=8, seed=seed)
            assert_same_bits(kernel, shape)


@pytest.mark.parametrize("kernel", ["gx_pa2", "gx_gds", "fx_write"])
def test_groups_longer_than_a_block_of_records(kernel: str) -> None:
    shape = Shape(hd=64, chunk=80, writes=2, reads=2, slots=3, repeat=True, hot=True)
    assert_same_bits(kernel, shape)


@pytest.mark.parametrize("picks", ["skewed", "one-hot"])
@pytest.mark.parametrize("hd", [36, 128, 130, 256])
@pytest.mark.parametrize("kernel", ["gx_pa2", "gx_gds", "fx_write"])
def test_long_groups_give_the_twins_bits(kernel: str, hd: int, picks: str) -> None:
    """Groups over several tiles and blocks of entries, with whole and ragged last chunks."""
    for seed, types in enumerate([(BF16, BF16, BF16), (F32, F32, F32), (BF16, BF16, F32)]):
        shape = Shape(hd=hd, types=types, picks=picks, slots=48, sequences=1, seed=seed)
        shape = replace(shape, chunk=(70, 33, 97)[seed], writes=4, reads=3, steps=1, padding=seed)
        if kernel != "fx_write" or types[0] == types[2]:
            assert_same_bits(kernel, shape)


@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
@pytest.mark.parametrize("per_entry", [False, True])
def test_long_groups_of_every_row_type(types: tuple[str, str, str], per_entry: bool) -> None:
    shape = Shape(hd=256, types=types, picks="one-hot", slots=40, sequences=1, chunk=68)
    assert_same_bits("gx_pa2", replace(shape, writes=2, steps=1, per_entry=per_entry))


@pytest.mark.parametrize("writes", [1, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("grad", [BF16, F32])
def test_any_number_of_writes_gives_the_twins_bits(grad: str, writes: int) -> None:
    shape = Shape(hd=128, writes=writes, slots=64, types=(BF16, BF16, grad), padding=3)
    assert_same_bits("gx_gwr", shape, ti=1)


@pytest.mark.parametrize(("writes", "reads"), [(1, 1), (7, 9), (8, 8), (33, 2), (2, 33)])
@pytest.mark.parametrize("bank", [BF16, F32])
def test_numbers_of_writes_and_reads(bank: str, writes: int, reads: int) -> None:
    types = (bank, bank, bank)
    shape = Shape(hd=128, writes=writes, reads=reads, slots=64, types=types, padding=3)
    assert_same_bits("fx_read", shape, ti=1)


def test_the_comparison_can_fail() -> None:
    """A launch that leaves out a sequence differs from the twin."""
    library = emulation()
    shape = Shape(hd=64, chunk=16, writes=3)
    tensors, sizes = case("gx_pa2", shape)
    expected, after = copies(tensors), copies(tensors)
    library.twin("gx_pa2", block_values("gx_pa2", expected, sizes, 0))
    values = block_values("gx_pa2", after, sizes, 0)
    whole = library.chosen("gx_pa2", values)
    part = replace(whole, grid=(whole.grid[0], whole.grid[1] - 1, 1))
    library.launch("gx_pa2", part, values)
    assert {"grad", "bank", "out_eff", "out_g"} <= set(differing(after, expected))


@pytest.mark.parametrize(
    ("sequences", "rows"), [(3, (3, 1)), (65535, (65535, 1)), (70000, (65535, 2))]
)
def test_any_number_of_sequences_has_a_grid(sequences: int, rows: tuple[int, int]) -> None:
    tensors, sizes = case("gx_gds", Shape(hd=64))
    values = block_values("gx_gds", tensors, sizes, 0) | {"num_parallel": sequences}
    assert emulation().chosen("gx_gds", values).grid[1:] == rows


def test_a_wait_that_is_too_weak_is_seen() -> None:
    """Copies happen no earlier than the waits ask: without room for the ring a launch stops."""
    library = emulation()
    tensors, sizes = case("gx_pa2", Shape(hd=64))
    values = block_values("gx_pa2", tensors, sizes, 0)
    chosen = library.chosen("gx_pa2", values)
    short = replace(chosen, shared_bytes=chosen.shared_bytes // 4)
    with pytest.raises(RuntimeError, match="past the block's shared memory"):
        library.launch("gx_pa2", short, values)


def test_misaligned_rows_take_the_element_path() -> None:
    library = emulation()
    tensors, sizes = case("gx_gds", Shape(hd=64))
    flat = torch.empty(tensors["grad"].numel() + 1, dtype=tensors["grad"].dtype)
    shifted = flat[1:].view_as(tensors["grad"])
    shifted.copy_(tensors["grad"])
    values = block_values("gx_gds", tensors | {"grad": shifted}, sizes, 0)
    assert library.chosen("gx_gds", values).entry == "gx_gds_any"
    library.launch("gx_gds", library.chosen("gx_gds", values), values)
    library.twin("gx_gds", block_values("gx_gds", tensors, sizes, 0))
    assert differing({"grad": shifted}, {"grad": tensors["grad"]}) == []


@pytest.mark.parametrize("kernel", ["gx_gwr", "fx_read"])
@pytest.mark.parametrize("hd", [36, 77, 128, 256])
def test_entries_without_a_slot_give_the_twins_bits(kernel: str, hd: int) -> None:
    for seed, row in enumerate((BF16, F32)):
        shape = Shape(hd=hd, writes=9, reads=8, types=(row, row, row), without_slot=True, seed=seed)
        assert_same_bits(kernel, shape, ti=1)
        assert_same_bits(kernel, replace(shape, special=True), ti=0)
