"""What ``sdm_runtime.inspect.graph`` returns: a captured graph, and a chain found in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sdm_runtime.inspect.captured.match import Match, Run, kernel_nodes
from sdm_runtime.inspect.captured.model import CapturedGraph
from sdm_runtime.inspect.reading.words import dims, plural, size

_NAME_WIDTH = 60  # of a kernel in the text; the data have whole names


@dataclass(frozen=True)
class GraphReport:
    """``print`` it, or look at the parts."""

    graph: CapturedGraph
    match: Match | None

    @property
    def faithful(self) -> bool:
        """Whether the graph holds the chain, at least once and as the chain says."""
        if self.match is None:
            raise ValueError("graph: no chain was given to compare with")
        return bool(self.match.runs) and not self.match.differences

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        graph = self.graph
        data: dict[str, Any] = {
            "nodes": len(graph.nodes),
            "kinds": graph.kinds,
            "kernels": dict(Counter(node.name for node in kernel_nodes(graph))),
            "edges": len(graph.edges),
            "programmatic_edges": graph.programmatic_edges,
            "memory_bytes": graph.memory_bytes,
            "memory_per_node": graph.memory_per_node,
        }
        if self.match is not None:
            data["runs"] = [_run_data(run) for run in self.match.runs]
            data["differences"] = list(self.match.differences)
        return data

    def __str__(self) -> str:
        """A few lines for people."""
        return "\n".join([*_graph_lines(self.graph), *_match_lines(self.match)])


def _run_data(run: Run) -> dict[str, Any]:
    return {
        "nodes": len(run.matched),
        "first_step": run.matched[0].launch.step,
        "last_step": run.matched[-1].launch.step,
        "complete": run.complete,
        "programmatic_edges": run.programmatic_edges,
        "full_edges": run.full_edges,
    }


def _graph_lines(graph: CapturedGraph) -> list[str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(graph.kinds.items()))
    full = len(graph.edges) - graph.programmatic_edges
    lines = [
        f"{plural(len(graph.nodes), 'node')} ({kinds}), {plural(len(graph.edges), 'edge')}: "
        f"{full} full, {graph.programmatic_edges} programmatic"
    ]
    if graph.memory_bytes is not None and graph.memory_per_node is not None:
        lines.append(
            f"{size(graph.memory_bytes)} of device memory, {size(round(graph.memory_per_node))} "
            "a node"
        )
    shapes = Counter((n.name, dims(n.grid), dims(n.block)) for n in kernel_nodes(graph))
    for (name, grid, block), count in shapes.most_common(12):
        shown = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 2]}.."
        lines.append(f"  {count:6d}  {shown}  grid {grid}, block {block}")
    if len(shapes) > 12:
        lines.append(f"          and {len(shapes) - 12} more kernels or shapes")
    return lines


def _match_lines(match: Match | None) -> list[str]:
    if match is None:
        return []
    if not match.runs:
        return ["no node is a launch of this chain", *match.differences]
    lines = []
    for run in match.runs:
        first, last = run.matched[0].launch.step, run.matched[-1].launch.step
        steps = f"steps {first}..{last}" if run.complete else f"part of steps {first}..{last}"
        lines.append(
            f"{plural(len(run.matched), 'node')} are {steps} of this chain, "
            f"{plural(run.programmatic_edges, 'programmatic edge')}, {run.full_edges} full"
        )
    return [*lines, *(f"  differs: {difference}" for difference in match.differences)]
