"""What torch and the environment say about matrix products: switches, workspaces, variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from sdm_runtime.qualify.native_state import ABSENT

# Read by cuBLAS, cuBLASLt or torch when they initialize, by the beginning of their names.
ENVIRONMENT_PREFIXES = (
    "CUBLAS",
    "DISABLE_ADDMM_CUDA_LT",
    "NVIDIA_TF32",
    "TORCH_ALLOW_TF32",
    "TORCH_BLAS",
    "TORCH_CUBLAS",
)

_PREFERRED = "_get_blas_preferred_backend"
_CUBLAS = ("Cublas", "Default")  # on CUDA the default is cuBLAS

# Functions of torch._C, with their arguments.
_SWITCHES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("_get_cublas_allow_tf32", ()),
    ("_get_float32_matmul_precision", ()),
    ("_get_fp32_precision_getter", ("generic", "all")),
    ("_get_fp32_precision_getter", ("cuda", "all")),
    ("_get_fp32_precision_getter", ("cuda", "matmul")),
    (_PREFERRED, ()),
    ("_get_cublas_allow_fp16_reduced_precision_reduction", ()),
    ("_get_cublas_allow_bf16_reduced_precision_reduction", ()),
    ("_get_cublas_allow_fp16_accumulation", ()),
    ("_get_deterministic_algorithms", ()),
    ("_get_deterministic_algorithms_warn_only", ()),
    ("_get_sm_carveout_experimental", ()),
    # Not in torch 2.11, which takes its workspace sizes from CUBLAS_WORKSPACE_CONFIG,
    # CUBLASLT_WORKSPACE_SIZE and the device alone: all of them are in the key.
    ("_cuda_getCublasWorkspaceSize", ()),
    ("_cuda_getCublasLtWorkspaceSize", ()),
)

Values = tuple[Any, ...]


class TorchSettings:
    """Reads every switch that torch exposes; functions that a release lacks read as "absent".

    Args:
        core: torch's ``_C``, which has the getters.
    """

    def __init__(self, core: Any):
        """Look the getters up, once."""
        self._preferred = getattr(core, _PREFERRED, None)
        self._getters: list[tuple[Callable[..., Any] | None, tuple[str, ...]]] = [
            (getattr(core, name, None), arguments) for name, arguments in _SWITCHES
        ]

    def read(self) -> Values:
        """The settings now, hashable, in a fixed order."""
        values = []
        for getter, arguments in self._getters:
            if getter is None:
                values.append(ABSENT)
                continue
            try:
                values.append(getter(*arguments))
            except RuntimeError:
                # torch refuses to name one switch while another contradicts it: a state as well
                values.append("contradictory")
        return tuple(values)

    def other_library(self) -> str | None:
        """The library that torch prefers to cuBLAS for its products, or None."""
        if self._preferred is None:
            return None
        name: str = self._preferred().name
        return None if name in _CUBLAS else name


class Environment:
    """The variables that the libraries read, as this process's dictionary has them now."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._raw: dict[object, object] | None = None
        self._values: tuple[tuple[str, str], ...] = ()

    def read(self) -> tuple[tuple[str, str], ...]:
        """As relevant_environment; a backward waits, so the names are gone through on a change."""
        raw = os.environ._data  # type: ignore[attr-defined]
        if raw != self._raw:
            self._raw, self._values = dict(raw), relevant_environment(os.environ)
        return self._values


def relevant_environment(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that the libraries read, sorted."""
    return tuple(sorted(v for v in variables.items() if v[0].startswith(ENVIRONMENT_PREFIXES)))


def torch_settings() -> TorchSettings:
    """The settings of this process's torch."""
    return TorchSettings(torch._C)
