"""Sparse delta memory layers whose forward and backward are recorded as plans and replayed.

Names resolve on first use, so that importing the package loads neither torch nor the extension:
the plan inspection tool works on a machine that has neither. The one thing that the import does is
to ask Python for a word before it forks (``machine/forked.py``): later could be too late.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker sees of the names below
    from sdm_runtime import dispatch as dispatch
    from sdm_runtime import graphs as graphs
    from sdm_runtime import inspect as inspect
    from sdm_runtime import instruments as instruments
    from sdm_runtime import kernels as kernels
    from sdm_runtime import layer as layer
    from sdm_runtime import linear as linear
    from sdm_runtime import qualify as qualify
    from sdm_runtime import train as train
    from sdm_runtime.dispatch import last_dispatch as last_dispatch
    from sdm_runtime.errors import CudaError as CudaError
    from sdm_runtime.errors import PlanError as PlanError
    from sdm_runtime.layer import MemoryCache as MemoryCache
    from sdm_runtime.layer import SparseDeltaMemory as SparseDeltaMemory
    from sdm_runtime.layer import SparseDeltaMemoryArgs as SparseDeltaMemoryArgs
    from sdm_runtime.layer import split_weight_decay as split_weight_decay
    from sdm_runtime.linear import bf16_linear as bf16_linear
    from sdm_runtime.machine.backends import backends as backends
    from sdm_runtime.memory_error import CudaOutOfMemoryError as CudaOutOfMemoryError
    from sdm_runtime.ops import sdm_write_read as sdm_write_read
    from sdm_runtime.ops.routes.bound_chains import release_memory as release_memory
    from sdm_runtime.plan.blas_step import BlasGemmStep as BlasGemmStep
    from sdm_runtime.plan.chain import GraphedChain as GraphedChain
    from sdm_runtime.plan.chain import StepChain as StepChain
    from sdm_runtime.plan.plan import Plan as Plan

    __version__: str

_EXPORTS = {
    "BlasGemmStep": "plan.blas_step",
    "CudaError": "errors",
    "CudaOutOfMemoryError": "memory_error",
    "GraphedChain": "plan.chain",
    "MemoryCache": "layer",
    "Plan": "plan.plan",
    "PlanError": "errors",
    "SparseDeltaMemory": "layer",
    "SparseDeltaMemoryArgs": "layer",
    "StepChain": "plan.chain",
    "backends": "machine.backends",
    "bf16_linear": "linear",
    "last_dispatch": "dispatch",
    "release_memory": "ops.routes.bound_chains",
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


if not TYPE_CHECKING:  # which would believe in any name

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


_FORKED = f"{__name__}.machine.forked"


def _before_fork() -> None:
    if hasattr(sys.modules.get("torch"), "get_num_threads"):  # loaded, to its end
        importlib.import_module(_FORKED).before_fork()


def _after_fork_in_child() -> None:
    if (forked := sys.modules.get(_FORKED)) is not None:
        forked.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
