"""Advice on huge pages: changes no value, refuses what is no CPU tensor."""

from __future__ import annotations

import mmap
import re
import sys

import pytest
import torch

from sdm_runtime.machine.host_memory import advise_huge_pages, empty_rows_like

ADVISED = "hg"  # in /proc/self/smaps


def mapping_flags(address: int) -> str:
    """The VmFlags of the mapping that holds `address`."""
    inside, flags = False, ""
    with open("/proc/self/smaps") as lines:
        for line in lines:
            span = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
            if span:
                inside = int(span[1], 16) <= address < int(span[2], 16)
            elif inside and line.startswith("VmFlags:"):
                flags = line
    return flags


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("collapse", [False, True])
def test_large_tensors_are_advised(collapse):
    # Memory of its own: what malloc has may have been advised by an earlier user of it.
    memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tensor = torch.frombuffer(memory, dtype=torch.float32)
    tensor.copy_(torch.arange(4 << 20))
    middle = tensor.data_ptr() + tensor.nbytes // 2
    assert ADVISED not in mapping_flags(middle)
    if not advise_huge_pages(tensor):
        pytest.skip("this system has no huge pages")
    advise_huge_pages(tensor, collapse=collapse)
    assert ADVISED in mapping_flags(middle)
    assert torch.equal(tensor, torch.arange(4 << 20, dtype=torch.float32))


def test_small_tensors_are_left_alone():
    assert advise_huge_pages(torch.zeros(1000)) is False


def test_empty_rows_like():
    bank = torch.ones(3000, 1024, dtype=torch.bfloat16)
    rows = empty_rows_like(bank, torch.float32)
    assert (rows.shape, rows.dtype) == (bank.shape, torch.float32)
    rows.zero_()
    if advise_huge_pages(rows):
        assert ADVISED in mapping_flags(rows.data_ptr() + rows.nbytes // 2)


def test_what_is_no_host_tensor_is_refused():
    with pytest.raises(TypeError, match=r"expected a torch\.Tensor, got list"):
        advise_huge_pages([1.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a tensor on cpu, got meta"):
        advise_huge_pages(torch.zeros(4, device="meta"))
