"""Synthetic captured graphs of a chain, whole and broken; a stand-in for cuda-python's driver."""

from __future__ import annotations

import ctypes
from collections.abc import Set
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from sdm_runtime.inspect.captured.model import CapturedGraph, GraphEdge, GraphNode
from sdm_runtime.inspect.reading.model import ChainModel, PlanModel
from sdm_runtime.inspect.reading.parameters import patched_block


def addresses(chain: ChainModel, base: int = 1 << 32) -> dict[str, int]:
    """An address for each operand."""
    names = dict.fromkeys(o.name for plan in chain.plans for o in plan.operands)
    return {name: base + (i << 20) for i, name in enumerate(names)}


def bound_block(plan: PlanModel, ti: int, at: dict[str, int]) -> bytes:
    """The parameters of a launch as a node holds them: with addresses."""
    block = bytearray(patched_block(plan, ti))
    for operand in plan.operands:
        field = plan.field(operand.field)
        moved = plan.patch_of[operand.field].value(ti) if operand.field in plan.patch_of else 0
        address = at[operand.name] + operand.offset + moved
        block[field.offset : field.offset + 8] = address.to_bytes(8, "little")
    return bytes(block)


def launch_node(plan: PlanModel, ti: int, at: dict[str, int]) -> GraphNode:
    header = plan.header
    return GraphNode(
        "kernel",
        plan.entry,
        header.grid,
        header.block,
        header.shared_bytes,
        bound_block(plan, ti, at),
    )


def captured(
    chain: ChainModel,
    *,
    pdl_off: str | None = None,
    without: tuple[int, int] | None = None,  # a (step, plan) that was not captured
    around: int = 0,  # foreign kernels before, behind and between
    at: dict[str, int] | None = None,
) -> CapturedGraph:
    """The chain captured once: one node after the other."""
    at = at or addresses(chain)
    foreign = GraphNode("kernel", "elementwise", (40, 1, 1), (256, 1, 1), 0, b"\1" * 24)
    nodes: list[GraphNode] = [foreign] * around
    early = [False] * around
    for ti in chain.run_order:
        for index, plan in enumerate(chain.plans):
            if (ti, index) != without:
                nodes.append(launch_node(plan, ti, at))
                early.append(plan.programmatic and plan.kernel != pdl_off)
        if around and ti == chain.steps // 2:
            nodes.append(foreign)
            early.append(False)
    nodes += [GraphNode("memset"), *[foreign] * around]
    early += [False] * (around + 1)
    edges = [GraphEdge(i - 1, i, early[i]) for i in range(1, len(nodes))]
    return CapturedGraph(tuple(nodes), tuple(edges))


def with_node(graph: CapturedGraph, index: int, **members) -> CapturedGraph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **members)
    return replace(graph, nodes=tuple(nodes))


class NodeType(IntEnum):
    CU_GRAPH_NODE_TYPE_KERNEL = 0
    CU_GRAPH_NODE_TYPE_MEMSET = 2


class DependencyType(IntEnum):
    CU_GRAPH_DEPENDENCY_TYPE_DEFAULT = 0
    CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1


@dataclass
class EdgeData:
    type: int


@dataclass
class NodeParams:
    kern: int
    func: int
    gridDimX: int
    gridDimY: int
    gridDimZ: int
    blockDimX: int
    blockDimY: int
    blockDimZ: int
    sharedMemBytes: int
    kernelParams: int


class StandInDriver:
    """The functions of ``cuda.bindings.driver`` that walking needs, over a synthetic graph.

    Nodes of a name in ``as_functions`` are CUfunctions (torch's kernels), the others CUkernels.
    """

    CUgraph = CUstream = int
    CUgraphDependencyType = DependencyType

    def __init__(self, graph: CapturedGraph, as_functions: Set[str] = frozenset(), failing=""):
        self._graph = graph
        self._functions = as_functions
        self._failing = failing
        self._keep: list[object] = []
        self.free = 10 << 20
        self.destroyed = 0

    def _status(self, function: str) -> int:
        return 719 if function == self._failing else 0

    def cuGraphGetNodes(self, graph, count=0):
        n = len(self._graph.nodes)
        return self._status("cuGraphGetNodes"), [100 + i for i in range(min(n, count))], n

    def cuGraphNodeGetType(self, node):
        kernel = self._graph.nodes[node - 100].kind == "kernel"
        return 0, NodeType(0 if kernel else 2)

    def cuGraphKernelNodeGetParams(self, node):
        found = self._graph.nodes[node - 100]
        is_function = found.name in self._functions
        array = 0
        if found.params is not None:
            value = ctypes.create_string_buffer(found.params, len(found.params))
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
            self._keep += [value, pointers]
            array = ctypes.addressof(pointers)
        codes = (0, node) if is_function else (node, 0)
        shape: tuple[Any, ...] = (*codes, *found.grid, *found.block, found.shared_bytes, array)
        return self._status("cuGraphKernelNodeGetParams"), NodeParams(*shape)

    def _name(self, code):
        return 0, self._graph.nodes[code - 100].name.encode()

    def _param_info(self, code, index):
        params = self._graph.nodes[code - 100].params
        return (0, 0, len(params)) if index == 0 and params is not None else (1, 0, 0)

    cuKernelGetName = cuFuncGetName = _name
    cuKernelGetParamInfo = cuFuncGetParamInfo = _param_info

    def cuGraphGetEdges(self, graph, count=0):
        edges = self._graph.edges[:count]
        return (
            0,
            [100 + edge.before for edge in edges],
            [100 + edge.after for edge in edges],
            [EdgeData(int(edge.programmatic)) for edge in edges],
            len(self._graph.edges),
        )

    def cuMemGetInfo(self):
        return 0, self.free, 1 << 40

    def cuGraphInstantiate(self, graph, flags):
        self.free -= 3072 * len(self._graph.nodes)
        return 0, 7

    def cuGraphUpload(self, executable, stream):
        return (self._status("cuGraphUpload"),)

    def cuStreamSynchronize(self, stream):
        return (0,)

    def cuGraphExecDestroy(self, executable):
        self.destroyed += 1
        return (0,)
