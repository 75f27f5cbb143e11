"""How layer.py times a call: over many of them, and in a CUDA graph."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import torch

from sdm_runtime.graphs import capture_step

WARMUP = 3
CALLS = (3, 200)

Work = Callable[[], object]


class Budget(NamedTuple):
    """How long to measure: rounds, each of as many calls as take round_ms, within CALLS."""

    rounds: int
    round_ms: float


def time_calls(work: Work, device: torch.device, budget: Budget) -> list[float]:
    """Microseconds a call, a sample a round; the host may run ahead of the device in a round."""
    for _ in range(WARMUP):
        work()
    once = elapsed_us(work, device, 1)
    least, most = CALLS
    calls = min(most, max(least, math.ceil(budget.round_ms * 1e3 / max(once, 1e-3))))
    return [elapsed_us(work, device, calls) / calls for _ in range(budget.rounds)]


def elapsed_us(work: Work, device: torch.device, calls: int) -> float:
    """Of some calls, from an idle device to the end of the last one."""
    if device.type == "cpu":
        begin = perf_counter()
        for _ in range(calls):
            work()
        return (perf_counter() - begin) * 1e6
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    start.record()
    for _ in range(calls):
        work()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1e3


def captured(work: Work) -> Work:
    """A replay of the call, which is warmed up and captured on a stream of its own."""
    gc.collect()  # what holds an earlier call's autograd graph would tie leaves to its stream

    def once() -> None:
        work()

    step = capture_step(once)

    def replay() -> None:
        step.graph.replay()  # not step.graph's method: the step holds workspaces as well

    return replay
