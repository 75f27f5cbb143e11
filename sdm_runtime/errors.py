"""Exceptions of the runtime."""

from __future__ import annotations


class PlanError(ValueError):
    """A plan or chain is damaged, does not fit this build or device, or is bound wrongly."""


class CudaError(RuntimeError):
    """A CUDA driver call failed; the message names the call, the error, the kernel and the step."""
