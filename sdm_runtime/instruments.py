"""NVTX ranges around the runs of CUDA chains, and a count of launches; off by default.

When off they cost one test of a flag per run. A build without CUDA has neither: there is no
profiler that would show a range, and a host chain's launches are ``StepChain.launches``.
"""

from __future__ import annotations

from typing import Any

from sdm_runtime import _core
from sdm_runtime.errors import CudaError


def nvtx_ranges(on: bool = True) -> None:
    """Put every later run of a CUDA chain into an NVTX range that names its kernels, or stop.

    Raises:
        CudaError: This build has no CUDA.
    """
    _function("nvtx_ranges", "enable_ranges")(on)


def count_launches(on: bool = True) -> None:
    """Count the launches of later runs of CUDA chains, or stop.

    A graph's replay is one; those of a run's windows all count.

    Raises:
        CudaError: This build has no CUDA.
    """
    _function("count_launches", "enable_counter")(on)


def launches() -> int:
    """How many launches were issued while they were counted, by all threads of this process.

    Raises:
        CudaError: This build has no CUDA.
    """
    return int(_function("launches", "counted_launches")())


def _function(where: str, name: str) -> Any:
    function = getattr(_core, name, None)
    if function is None:
        raise CudaError(f"[{where}] expected a build with CUDA: {_core.cuda_unavailable()}")
    return function
