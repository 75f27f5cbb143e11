"""The process's qualifier and the public functions."""

from __future__ import annotations

import threading
from functools import lru_cache

import torch
from torch import Tensor

from sdm_runtime import kernels
from sdm_runtime.machine.backends import supports_pdl
from sdm_runtime.plan.blas_step import BlasGemmStep, blas_handle
from sdm_runtime.qualify.device_side import CudaSide
from sdm_runtime.qualify.key import ProcessSource, Residues
from sdm_runtime.qualify.operand_shapes import Sizes, step_shape
from sdm_runtime.qualify.probe import placed
from sdm_runtime.qualify.verdicts import Decision, Qualifier


@lru_cache(maxsize=1)
def process_qualifier() -> Qualifier:
    """The one that the operation asks; made on first use."""
    return Qualifier(ProcessSource(), CudaSide())


def matches_blas(d_u: Tensor, x: Tensor, d_dv: Tensor, num_parallel: int) -> bool:
    """Whether gx_gemm is faster than the BLAS here, and proven to give the bits of torch.baddbmm.

    A first call for its kind of operands probes, which takes milliseconds and waits for the
    operands' stream; inside a capture it declines instead. Later calls look the verdict up. Where
    torch prefers another library (``torch.backends.cuda.preferred_blas_library``), it declines.

    Args:
        d_u: float32 ``[N, C, hd]`` on a CUDA device.
        x: float32 ``[N, C, C]``.
        d_dv: float32 ``[N*C, hd]`` or ``[N, C, hd]``.
        num_parallel: P; a step is P chunks.

    Raises:
        ValueError: An operand of another dtype, shape, layout or device.
    """
    return decide(d_u, x, d_dv, num_parallel).matches


def decide(d_u: Tensor, x: Tensor, d_dv: Tensor, num_parallel: int) -> Decision:
    """As :func:`matches_blas`, with the reason and the microseconds of a probe."""
    _expect_cuda("matches_blas", d_u.device)
    return process_qualifier().decide(d_u, x, d_dv, num_parallel)


def decide_backward(d_u: Tensor, x: Tensor, d_dv: Tensor, num_parallel: int) -> Decision:
    """As :func:`decide`, for the operands that an operation has made: they are not checked again.

    Args:
        d_u: float32 ``[N, C, hd]``, contiguous, on a CUDA device.
        x: float32 ``[N, C, C]``, contiguous, on that device.
        d_dv: float32 ``[N*C, hd]`` or ``[N, C, hd]``, contiguous, on that device.
        num_parallel: P, a divisor of N.

    Any other operands give a verdict that is not theirs; :func:`decide` refuses them.
    """
    _, chunk, head_dim = d_u.shape
    shape = step_shape(Sizes(num_parallel, chunk, head_dim))
    return process_qualifier().decide_checked((d_u, x, d_dv), shape)


def prepare(
    *,
    num_parallel: int,
    chunk_size: int,
    head_dim: int,
    steps: int = 1,
    device: torch.device | str | int | None = None,
) -> bool:
    """Qualify what a capture will need, and load and warm whichever product it will take.

    Call it before ``torch.cuda.graph``, on the thread and in the stream that will capture;
    :func:`sdm_runtime.graphs.capture_step` does so itself.

    Args:
        num_parallel: P.
        chunk_size: C.
        head_dim: hd.
        steps: Steps of a backward, ceil(T / C).
        device: A CUDA device; None takes the current one.

    Returns:
        Whether the capture will take gx_gemm.

    Raises:
        ValueError: A size below 1, or no CUDA device.
        RuntimeError: A capture is in progress.
    """
    given = torch.device("cuda") if device is None else torch.device(device)
    _expect_cuda("prepare", given)
    index = torch.cuda.current_device() if given.index is None else given.index
    sizes = Sizes(num_parallel, chunk_size, head_dim)
    for name, size in {**sizes._asdict(), "steps": steps}.items():
        if size < 1:
            raise ValueError(f"[prepare] {name}: expected at least 1, got {size}")
    return _prepare(torch.device("cuda", index), sizes, steps, (0, 0, 0))


def prepare_skipped(device: torch.device) -> None:
    """Prepare what earlier captures on the device had to decline.

    Raises:
        RuntimeError: A capture is in progress.
    """
    for skipped in process_qualifier().take_skipped(device):
        _prepare(skipped.device, skipped.sizes, skipped.steps, skipped.residues)


def _prepare(device: torch.device, sizes: Sizes, steps: int, residues: Residues) -> bool:
    if CudaSide().capturing(device):
        raise RuntimeError("[prepare] expected to be called before the capture, got one begun")
    with torch.cuda.device(device):
        operands = placed(sizes, residues, device, min(steps, 64))  # residues repeat after 64
        matches = decide(*operands, sizes.sequences).matches
        blas_handle(device)  # with its workspace for this stream
        _leave_spare_handle(device)
        if matches:
            pdl = supports_pdl(device)
            kernels.plan_gx_gemm(*operands, steps=1, num_parallel=sizes.sequences, pdl=pdl)
        else:
            BlasGemmStep(*operands, steps=1, num_parallel=sizes.sequences)
    return matches


@lru_cache(maxsize=64)
def _leave_spare_handle(device: torch.device) -> None:
    """Make a handle on a thread that ends: torch gives it to the next thread that needs one.

    So a thread that first needs its handle inside a capture does not have to make it there.
    """
    thread = threading.Thread(target=blas_handle, args=(device,))
    thread.start()
    thread.join()


def stats() -> dict[str, int | float]:
    """What qualification has done in this process: counts, and microseconds spent.

    Returns:
        lookups, hits, probes, equal, differ, changed, errors, capture_skips, declined_keys,
        declined_library, declined_shapes, lookup_us, probe_us: see ``counters.Counters``.
    """
    return process_qualifier().stats()


def reset() -> None:
    """Forget all verdicts and counts: the next backward probes again."""
    process_qualifier().reset()


def _expect_cuda(where: str, device: torch.device) -> None:
    if device.type != "cuda":
        raise ValueError(f"[{where}] expected tensors on a CUDA device, got {device}")
