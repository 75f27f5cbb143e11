"""Ranges and the launch counter: there in a build with CUDA, refused by name without."""

from __future__ import annotations

import pytest

from sdm_runtime import CudaError, _core, instruments

HAS_CUDA = hasattr(_core, "enable_ranges")


@pytest.mark.skipif(HAS_CUDA, reason="a build with CUDA")
@pytest.mark.parametrize("name", ["nvtx_ranges", "count_launches", "launches"])
def test_a_build_without_cuda_says_so(name: str) -> None:
    with pytest.raises(CudaError, match=rf"\[{name}\] expected a build with CUDA: .*host-only"):
        getattr(instruments, name)()


@pytest.mark.skipif(not HAS_CUDA, reason="a build without CUDA")
def test_they_can_be_switched_without_a_device() -> None:
    before = instruments.launches()
    for on in (True, False):
        instruments.nvtx_ranges(on)
        instruments.count_launches(on)
    assert instruments.launches() == before
