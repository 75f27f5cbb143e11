"""Inductor's max-autotune as a second baseline; the rule does not depend on it.

It tries some twenty kernels a shape, and compiling them takes nearly all of its time. So processes
beside each other compile those of every shape ahead, into Inductor's folder of binaries. Nothing
else is kept: which kernel is the fastest is found again when a shape is timed, on a GPU that has no
other work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from torch import Tensor
from torch.nn import functional as F

from .timing import Shape

# With more, each at up to half a GiB of device memory, the host's threads run short first.
MOST_PROCESSES = 16


def compiled_linear() -> Callable[..., Tensor]:
    """F.linear for the shape of the first call; it compiles and tunes at that call.

    Raises:
        RuntimeError, ImportError: At that call, if it cannot compile here (no Triton, no C
            compiler).
    """
    torch._dynamo.reset()  # a function is compiled for a limited number of shapes

    def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    options = {
        **torch._inductor.list_mode_options("max-autotune-no-cudagraphs"),
        "fx_graph_cache": False,
        "autotune_local_cache": False,
    }
    return torch.compile(linear, options=options, fullgraph=True, dynamic=False)


def _compile(shape: Shape) -> None:
    m, n, k = shape
    x, weight, bias = (
        torch.zeros(*sizes, device="cuda", dtype=torch.bfloat16) for sizes in ((m, k), (n, k), (n,))
    )
    compiled_linear()(x, weight, bias)


def compile_ahead(shapes: Iterable[Shape]) -> None:
    """Fill Inductor's folder with the kernels of all shapes.

    Raises:
        RuntimeError, ImportError: It cannot compile here.
    """
    # Inductor's own helpers would be that many for each process, and one for this one.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    processes = min(MOST_PROCESSES, os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for _ in pool.map(_compile, shapes):
            pass
