"""Huge pages for large tensors on the CPU.

The step kernels visit rows in random order. On 4 KiB pages nearly every row of a large bank costs a
TLB miss that no prefetch hides; on 2 MiB pages few do.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import torch

_HUGE_PAGE_BYTES = 2 << 20
# linux/mman.h
_MADV_HUGEPAGE = 14
_MADV_COLLAPSE = 25  # Linux 6.1


def advise_huge_pages(tensor: torch.Tensor, *, collapse: bool = False) -> bool:
    """Ask the system to keep a CPU tensor's memory in huge pages.

    A hint: it changes no value and may be ignored. Memory that has not been written yet gets huge
    pages as it is written; memory in use is moved by the system in its own time.

    Args:
        tensor: A CPU tensor, any dtype and shape. One smaller than a huge page is left alone.
        collapse: Move memory in use now, before the call returns (copies it once).

    Returns:
        Whether the system took the hint; False where it knows no such hint.

    Raises:
        TypeError: ``tensor`` is not a tensor.
        ValueError: ``tensor`` is not on the CPU.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"[advise_huge_pages] tensor: expected a torch.Tensor, got {type(tensor).__name__}"
        )
    if tensor.device.type != "cpu":
        raise ValueError(
            f"[advise_huge_pages] tensor: expected a tensor on cpu, got {tensor.device}"
        )
    if tensor.nbytes < _HUGE_PAGE_BYTES or not sys.platform.startswith("linux"):
        return False
    storage = tensor.untyped_storage()
    start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
    taken = _madvise(start, end - start, _MADV_HUGEPAGE)
    if taken and collapse:
        taken = _madvise(start, end - start, _MADV_COLLAPSE)
    return taken


def empty_rows_like(bank: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Room of the bank's shape, on its device; on the CPU huge pages where the system has them."""
    rows = torch.empty_like(bank, dtype=dtype)
    if rows.device.type == "cpu":
        advise_huge_pages(rows)
    return rows


def _madvise(start: int, length: int, advice: int) -> bool:
    libc = ctypes.CDLL(None)
    result = libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), ctypes.c_int(advice))
    return int(result) == 0
