"""Streams to capture on that nobody else uses, with the BLAS's memory for them.

A graph of library calls holds the address of the workspace that torch gave its BLAS handle. Torch
keeps one for each thread's handle and stream, and frees all of them whenever somebody calls
``torch._C._cuda_clearCublasWorkspaces()``, as ``torch.compile(mode="reduce-overhead")`` does. So
the workspaces for these streams are allocated from a memory pool of the stream's own: what torch
frees goes back to that pool, which gives it to nobody else and stays as long as the process.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import torch

from sdm_runtime import _core
from sdm_runtime.plan.blas_step import blas_handle
from sdm_runtime.tensor.refs import external_stream

_lock = threading.Lock()
# By device and stream. Streams are used again, and torch's workspaces with them.
_kept: dict[tuple[int, int], _Kept] = {}


class _Kept:
    """What belongs to a stream for as long as the process lives."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        native = torch.cuda.get_allocator_backend() == "native"  # no other one has pools
        self.pool: Any = torch.cuda.MemPool() if native else None
        if native:
            # Never destroyed: a pool that goes while the process ends gives its memory back, and
            # ends the process by an assertion where a capture was broken before.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.pool))
        # Done with the work that uses the workspaces, also of the graph that had the stream before.
        self.done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.done.record(stream)  # torch makes the driver's event now


class CaptureStream:
    """One such stream, for the life of the object, and of a graph that it was captured for."""

    def __init__(self, device: torch.device):
        """Raises CudaError, RuntimeError: The device cannot be used."""
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._stream = _core.PrivateStream(index)
        self.address = int(self._stream.handle())
        with _lock, torch.cuda.device(self._device):  # the pool is of the current device
            key = (index, self.address)
            kept = _kept[key] = _kept.get(key) or _Kept(self.as_torch())
        self._pool, self.done = kept.pool, kept.done

    def as_torch(self) -> torch.cuda.Stream:
        """torch's view of it."""
        return external_stream(self._device, self.address)

    def blas_handle(self) -> int:
        """torch's handle of this thread for calls to capture, its workspace held.

        Raises:
            CudaOutOfMemoryError: There is no memory for it.
            RuntimeError: torch's allocator has no memory pools, so that nothing can hold it.
        """
        if self._pool is not None:
            with self._allocating():
                handle = blas_handle(self._device, self.address)
            if self._pool.snapshot():  # empty where the allocator keeps nothing, for debugging
                return handle
        raise RuntimeError(
            "[chain] graph: expected torch's native allocator, caching, for a chain with a library "
            "step, got another: it cannot keep the BLAS's workspace while the graph lives"
        )

    def hold_workspaces(self) -> None:
        """Have torch make the workspaces of this thread and of its backwards, as far as it can.

        Call it before the stream's first library call. The calls of other threads take their
        workspaces as ever, and so do all where torch's allocator has no memory pools.
        """
        if self._pool is None:
            return
        stream = self.as_torch()
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.cuda.device(self._device),
            torch.cuda.stream(stream),
        ):
            leaf = torch.zeros(16, 16, device=self._device, requires_grad=True)
            called = _InBothThreads.apply(leaf, self._use_libraries)  # type: ignore[no-untyped-call]
            called.sum().backward()

    def _use_libraries(self) -> None:
        with self._allocating(), torch.no_grad():
            # First of all: a thread that has not used the device yet has no context for a handle.
            square = torch.zeros(16, 16, device=self._device, dtype=torch.bfloat16)
            blas_handle(self._device, self.address)
            # cuBLASLt may have a workspace of its own: torch takes it for this kind of product.
            torch.addmm(square[0], square, square)

    def _allocating(self) -> Any:
        """What this thread allocates meanwhile on the device comes from the stream's pool."""
        return torch.cuda.use_mem_pool(self._pool, self._device)


class _InBothThreads(torch.autograd.Function):
    """Calls a function in this thread, and in the one that runs this device's backwards."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, call: Any) -> torch.Tensor:
        ctx.call = call
        call()
        return leaf.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.call()
        return gradients[0], None
