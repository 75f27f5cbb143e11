"""Row offsets past 2^32 elements: the last rows of a large bank give what a small bank gives.

The memory is reserved, not used: only the pages of the rows that are touched exist.
"""

from __future__ import annotations

import mmap
import sys
from dataclasses import replace

import pytest
import torch
from kernel_cases import BF16, F32, Shape
from kernel_checks import case, differing, run

from sdm_runtime import kernels

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or sys.maxsize < 2**33, reason="needs sparse memory"
)
MAP_NORESERVE = 0x4000  # Linux; Python's mmap names it from 3.13 on
HD = 1024
ROWS = 2**32 // HD + 100  # the last hundred lie past 2^32 elements
# Operands with bank rows in them: all of it, or a column.
ROW_NUMBERS = {"slots": None, "rec": 1, "qrec": 1, "row_weights": 0, "updates": 1}
SHAPE = Shape(hd=HD, sequences=1, chunk=2, writes=2, reads=2, steps=2, slots=4, padding=0)


def sparse(rows: int, like: torch.Tensor) -> torch.Tensor:
    """Zeros `[rows, columns of like]` that take no memory until they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    size = rows * like.shape[1] * like.element_size()
    try:
        memory = mmap.mmap(-1, size, flags=flags)
    except OSError as error:
        pytest.skip(f"cannot reserve {size} bytes: {error}")
    return torch.frombuffer(memory, dtype=like.dtype).view(rows, like.shape[1])


def enlarged(tensors: dict, names: list[str]) -> tuple[dict, int]:
    """The operands with the named ones' rows at the end of large tensors, and where they start."""
    large, start = dict(tensors), ROWS - SHAPE.slots
    for name in names:
        large[name] = sparse(ROWS, tensors[name])
        large[name][start:] = tensors[name]
    for name, column in ROW_NUMBERS.items():
        if name in tensors:
            large[name] = tensors[name].clone()
            rows = large[name] if column is None else large[name][..., column]
            rows += start
    return large, start


@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (F32, F32, F32)], ids="-".join)
@pytest.mark.parametrize("name", ["gx_gwr", "gx_pa2", "gx_gds", "fx_read", "fx_write"])
def test_the_last_rows_of_a_large_bank_are_reached(name, types):
    tensors, sizes = case(name, Shape(**vars(SHAPE) | {"types": types}))
    banks = [b for b in ("grad", "bank") if b in tensors]
    expected = run(name, tensors, sizes, ti=1)
    large, start = enlarged(tensors, banks)
    outputs = {k: large[k] for k in expected if k not in banks and k not in ROW_NUMBERS}
    getattr(kernels, name)(**large, ti=1, **sizes)
    assert differing({b: large[b][start:] for b in banks}, expected) == []
    assert differing(outputs, expected) == []
    assert not any(large[b][:1000].any() for b in banks)  # where a 32-bit offset would land


def test_the_last_rows_of_a_large_snapshot_are_reached():
    """Per-entry snapshots whose second step starts past 2^32 elements."""
    shape = Shape(**vars(SHAPE) | {"per_entry": True, "types": (BF16, BF16, F32)})
    tensors, sizes = case("gx_pa2", shape)
    expected = run("gx_pa2", tensors, sizes, ti=1)
    step_rows = SHAPE.chunk * SHAPE.writes
    large = sparse(ROWS + step_rows, tensors["snap"])
    large[ROWS:] = tensors["snap"][-step_rows:]
    after = {k: v.clone() for k, v in tensors.items() if k != "snap"} | {"snap": large}
    kernels.gx_pa2(**after, ti=1, **sizes | {"snap_step_rows": ROWS})
    del after["snap"]
    assert differing(after, expected) == []


@pytest.mark.parametrize("name", ["gx_pa2", "fx_write"])
def test_the_last_rows_of_a_large_dense_snapshot_are_reached(name):
    """Few rows a chunk; those of the last chunks lie past 2^32 elements."""
    chunks, rows = 2, 3
    shape = replace(SHAPE, slots=rows, few_rows=True, types=(BF16, BF16, BF16), steps=chunks)
    tensors, sizes = case(name, shape)
    expected = run(name, tensors, sizes, ti=1)
    steps = 2**32 // (HD * rows) + 2
    large = {k: x.clone() for k, x in tensors.items()}
    per_step = {
        "snap",
        "bpre",
        "rec",
        "updates",
        "d_u",
        "delta",
        "beta",
        "kpay",
        "out_eff",
        "out_g",
    }
    for key in per_step & set(tensors):
        flat = tensors[key].reshape(chunks, -1)
        large[key] = sparse(steps, flat)
        large[key][-1] = flat[-1]
    shapes = {"snap": (-1, HD), "rec": (steps, -1, 4), "updates": (steps, -1, 4)}
    shapes |= {"d_u": (-1, HD), "delta": (-1, HD), "beta": (-1,)}
    slices = tensors["out_eff"].shape[0] if "out_eff" in tensors else 0
    for key in ("out_eff", "out_g") if slices else ():
        large[key] = sparse(slices, torch.empty(1, steps * shape.chunk * shape.writes))
    large = {k: x.view(shapes[k]) if k in shapes else x for k, x in large.items()}
    getattr(kernels, name)(**large, ti=steps - 1, **sizes)
    kept = [k for k in ("grad", "bank") if k in tensors]
    assert differing({k: large[k] for k in kept}, expected) == []
    assert torch.equal(large["snap"][-rows:], expected["snap"][-rows:])
    assert not large["snap"][:1000].any()  # where a 32-bit offset would land
    if slices:
        last = shape.chunk * shape.writes
        assert torch.equal(large["out_eff"][:, -last:], expected["out_eff"][:, -last:])
