"""Inductor's max-autotune as a second baseline; the rule does not depend on it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch
from torch.nn import functional as F

from .timing import Calls, Shape, alternate


def inductor_us(pool: torch.Tensor, shape: Shape, rounds: int) -> float:
    """Median microseconds of one compiled linear in a chain.

    Raises:
        RuntimeError, ImportError: It cannot compile here (no Triton, no C compiler).
    """
    torch._dynamo.reset()  # a function is compiled for a limited number of shapes

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight, bias)

    compiled = torch.compile(
        linear, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False
    )
    calls = Calls(pool, shape)
    graph = calls.chain(calls.function(compiled))
    return statistics.median(alternate([graph], rounds)[0])


def time_inductor(
    pool: torch.Tensor, shapes: Sequence[Shape], rounds: int, seconds: float
) -> tuple[dict[Shape, float], str]:
    """Microseconds by shape, of as many shapes as start within the seconds; and what went wrong."""
    begun, times = time.monotonic(), {}
    for shape in shapes:
        if time.monotonic() - begun > seconds:
            return times, f"{len(shapes) - len(times)} shapes not timed: out of time"
        try:
            times[shape] = inductor_us(pool, shape, rounds)
        except (RuntimeError, ImportError) as error:
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
            return times, f"not available here: {first_line}"
    return times, ""
