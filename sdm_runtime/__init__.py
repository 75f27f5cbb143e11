"""Sparse delta memory layers whose forward and backward are recorded as plans and replayed.

Names resolve on first use, so that importing the package loads neither torch nor the extension:
the plan inspection tool works on a machine that has neither.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "BlasGemmStep": "blas_step",
    "CudaError": "errors",
    "GraphedChain": "graphed_chain",
    "MemoryCache": "layer",
    "Plan": "plans",
    "PlanError": "errors",
    "SparseDeltaMemory": "layer",
    "SparseDeltaMemoryArgs": "layer",
    "StepChain": "chain",
    "backends": "runtime",
    "bf16_linear": "linear",
    "last_dispatch": "dispatch",
    "sdm_write_read": "ops",
    "split_weight_decay": "layer",
}
_SUBMODULES = (
    "dispatch",
    "graphs",
    "inspect",
    "instruments",
    "kernels",
    "layer",
    "linear",
    "qualify",
    "train",
)

__all__ = [*_EXPORTS, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__version__":
        return _installed_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _installed_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("sdm-runtime")
    except metadata.PackageNotFoundError:
        raise AttributeError(
            "sdm_runtime.__version__: the package is only on the path, not installed"
        ) from None


def __dir__() -> list[str]:
    return sorted(__all__)
