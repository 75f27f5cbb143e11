"""Times calls of one shape in captured CUDA graphs over cold weights, several graphs in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from sdm_runtime import _core
from sdm_runtime.linear.launch import operand_refs
from sdm_runtime.linear.modes import Tactic
from sdm_runtime.tensor.refs import current_stream

POOL_ELEMENTS = 192 << 20  # bf16: 384 MiB of weights
COLD_BYTES = 192 << 20  # read between two uses of a weight: three times the largest L2
MIN_LAUNCHES = 32
CLOCK_CYCLES = 100_000

Shape = tuple[int, int, int]  # M, N, K
Call = Callable[[int], object]


def make_pool() -> torch.Tensor:
    """Random weights for every shape."""
    return torch.empty(POOL_ELEMENTS, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)


class Graph:
    """A captured series of calls.

    The events are nodes of it: around a replay they would also time the graph's own launch and what
    torch does before it.
    """

    def __init__(self, work: Callable[[], None], launches: int) -> None:
        """Run ``work`` once, then capture it."""
        self._launches = launches
        self._graph = torch.cuda.CUDAGraph()
        self._start, self._stop = (
            torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)
        )
        # Not torch.cuda.graph: it collects garbage before each of thousands of captures.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
            torch.cuda.synchronize()
            self._graph.capture_begin(capture_error_mode="thread_local")
            self._start.record()
            work()
            self._stop.record()
            self._graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)

    def replay(self) -> None:
        """Launch it."""
        self._graph.replay()

    def us(self) -> float:
        """Microseconds a call of the last replay, which must be over."""
        return self._start.elapsed_time(self._stop) * 1000 / self._launches


class Calls:
    """The operands of one shape and the graphs of calls on them."""

    def __init__(self, pool: torch.Tensor, shape: Shape) -> None:
        """Cut the pool into weights."""
        m, n, k = shape
        size = n * k
        self._weights = [
            pool[i : i + size].view(n, k) for i in range(0, len(pool) - size + 1, size)
        ]
        cold = -(-COLD_BYTES // (2 * size))
        self._launches = max(MIN_LAUNCHES, min(len(self._weights), cold))

        def random(*sizes: int) -> torch.Tensor:
            return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16)

        self._x, self._source, self._bias = random(m, k), random(m, k), random(n)
        self._y = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(2)]

    def weight(self, index: int) -> torch.Tensor:
        """That of the index-th call."""
        return self._weights[index % len(self._weights)]

    def function(self, linear: Callable[..., object]) -> Call:
        """Calls of a function of x, weight and bias."""
        return lambda i: linear(self._x, self.weight(i), self._bias)

    def kernel(self, tactic: Tactic, pdl: bool) -> Call:
        """Calls of the kernel, through the launcher that the operation uses."""

        def launch(i: int) -> None:
            refs = operand_refs(self._x, self.weight(i), self._bias, self._y[i % 2])
            _core.bf16_linear(*refs, tactic.for_core(), pdl, current_stream(self._x.device))

        return launch

    def clock(self) -> Graph:
        """A kernel that counts cycles of an SM; a "call" is a cycle."""
        return Graph(lambda: torch.cuda._sleep(CLOCK_CYCLES), CLOCK_CYCLES)

    def chain(self, call: Call) -> Graph:
        """Each call follows another one."""
        return Graph(lambda: self._run(call, between=False), self._launches)

    def behind_others(self, call: Call | None) -> Graph:
        """Before each call (None: before nothing) a small kernel writes x."""
        return Graph(lambda: self._run(call, between=True), self._launches)

    def _run(self, call: Call | None, between: bool) -> None:
        for i in range(self._launches):
            if between:
                torch.mul(self._source, 1, out=self._x)
            if call is not None:
                call(i)


def alternate(graphs: Sequence[Graph], rounds: int) -> list[list[float]]:
    """Microseconds a call of each graph by round; every round replays all of them once.

    A round is queued whole: between replays that wait for the host, the clocks would change.
    """
    by_round = []
    for _ in range(1 + rounds):  # the first is not counted
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()
        by_round.append([graph.us() for graph in graphs])
    return [list(times) for times in zip(*by_round[1:], strict=True)]
