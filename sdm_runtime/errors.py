"""Exceptions of the runtime. Needs no torch; CudaOutOfMemoryError does (memory_error.py)."""

from __future__ import annotations


class PlanError(ValueError):
    """A plan or chain is damaged, does not fit this build or device, or is bound wrongly."""


class CudaError(RuntimeError):
    """A CUDA driver call failed; the message names the call, the error, the kernel and the step.

    It says so where the device's context is lost: nothing works on that device any more then, in
    this process.
    """

    issued: int | None = None
    """Of a failed ``StepChain.run``: the launches that it had issued; None elsewhere."""
