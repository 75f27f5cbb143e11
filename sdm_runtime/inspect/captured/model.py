"""A captured CUDA graph as data, whoever walked it. Imports neither torch nor cuda-python."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

Dims = tuple[int, int, int]


@dataclass(frozen=True)
class GraphNode:
    """One node. ``params`` holds the kernel's arguments, one after the other; None: not known."""

    kind: str  # "kernel", "memcpy", "memset", ..
    name: str = ""  # of a kernel
    grid: Dims = (1, 1, 1)
    block: Dims = (1, 1, 1)
    shared_bytes: int = 0
    params: bytes | None = None


@dataclass(frozen=True)
class GraphEdge:
    """Node ``after`` depends on node ``before``, both by index.

    ``programmatic``: ``after`` may start while ``before`` finishes.
    """

    before: int
    after: int
    programmatic: bool = False


@dataclass(frozen=True)
class CapturedGraph:
    """Nodes and edges; ``memory_bytes`` is what instantiating it took on the device."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    memory_bytes: int | None = None

    @cached_property
    def incoming(self) -> dict[int, list[GraphEdge]]:
        """The edges into each node."""
        edges: dict[int, list[GraphEdge]] = {}
        for edge in self.edges:
            edges.setdefault(edge.after, []).append(edge)
        return edges

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Every node after all that it depends on; otherwise in the graph's own order.

        Raises:
            ValueError: The edges form a cycle, or name a node that is not there.
        """
        return _topological(len(self.nodes), self.edges)

    @property
    def kinds(self) -> dict[str, int]:
        """How many nodes of each kind."""
        return dict(Counter(node.kind for node in self.nodes))

    @property
    def programmatic_edges(self) -> int:
        """Edges along which a node may start early."""
        return sum(edge.programmatic for edge in self.edges)

    @property
    def memory_per_node(self) -> float | None:
        """Device bytes for each node, where they were measured."""
        if self.memory_bytes is None or not self.nodes:
            return None
        return self.memory_bytes / len(self.nodes)


def _topological(count: int, edges: Sequence[GraphEdge]) -> tuple[int, ...]:
    waiting = [0] * count
    followers: dict[int, list[int]] = {}
    for edge in edges:
        if not (0 <= edge.before < count and 0 <= edge.after < count):
            raise ValueError(f"edge {edge.before} -> {edge.after}: there are {count} nodes")
        waiting[edge.after] += 1
        followers.setdefault(edge.before, []).append(edge.after)
    ready = [node for node in range(count) if waiting[node] == 0]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for after in followers.get(node, ()):
            waiting[after] -= 1
            if waiting[after] == 0:
                heapq.heappush(ready, after)
    if len(order) < count:
        raise ValueError("the graph's edges form a cycle")
    return tuple(order)
