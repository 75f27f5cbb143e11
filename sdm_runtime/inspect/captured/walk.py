"""Walks a CUDA graph with cuda-python's driver bindings."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from sdm_runtime.errors import CudaError
from sdm_runtime.inspect.captured.model import CapturedGraph, GraphEdge, GraphNode

_MOST_PARAMS = 1024  # arguments of one kernel


def driver_bindings() -> Any:
    """cuda-python's driver module.

    Raises:
        ImportError: cuda-python is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise ImportError(
            "inspect.graph: expected cuda-python, which reads CUDA graphs: "
            "pip install 'sdm-runtime[graph]'"
        ) from error


def walk(handle: int, driver: Any, *, measure_memory: bool = False) -> CapturedGraph:
    """Read the graph at a ``CUgraph`` address; child graphs stay one node each.

    Args:
        handle: The graph. Its context must be current.
        driver: ``cuda.bindings.driver``, or what has its functions.
        measure_memory: Instantiate the graph once more and see how much device memory that takes.

    Raises:
        CudaError: A driver call failed; the message names it.
    """
    graph = driver.CUgraph(handle)
    _, count = _call(driver, "cuGraphGetNodes", graph)
    handles, _ = _call(driver, "cuGraphGetNodes", graph, count) if count else ((), 0)
    nodes = tuple(_read_node(node, driver) for node in handles)
    index = {int(node): i for i, node in enumerate(handles)}
    edges = tuple(
        GraphEdge(index[int(before)], index[int(after)], programmatic)
        for before, after, programmatic in _read_edges(graph, driver)
    )
    memory = _instantiated_bytes(graph, driver) if measure_memory else None
    return CapturedGraph(nodes, edges, memory)


def _call(driver: Any, function: str, *arguments: Any) -> Any:
    """The results of a driver function: one as it is, several as a tuple."""
    status, *results = getattr(driver, function)(*arguments)
    if int(status) != 0:
        name = getattr(status, "name", str(status))
        raise CudaError(f"{function}: {name} ({int(status)})")
    return results[0] if len(results) == 1 else tuple(results)


def _read_node(node: Any, driver: Any) -> GraphNode:
    kind = _call(driver, "cuGraphNodeGetType", node)
    word = str(getattr(kind, "name", kind)).removeprefix("CU_GRAPH_NODE_TYPE_").lower()
    if word != "kernel":
        return GraphNode(word)
    params = _call(driver, "cuGraphKernelNodeGetParams", node)
    # A node is of a kernel or of a function; the driver fills in one of the two.
    is_kernel = int(params.kern) != 0
    code, prefix = (params.kern, "cuKernel") if is_kernel else (params.func, "cuFunc")
    name = _call(driver, f"{prefix}GetName", code)
    return GraphNode(
        kind="kernel",
        name=name.decode(errors="replace") if isinstance(name, bytes) else str(name),
        grid=(params.gridDimX, params.gridDimY, params.gridDimZ),
        block=(params.blockDimX, params.blockDimY, params.blockDimZ),
        shared_bytes=params.sharedMemBytes,
        params=_read_params(int(params.kernelParams or 0), code, f"{prefix}GetParamInfo", driver),
    )


def _read_params(array: int, code: Any, info_function: str, driver: Any) -> bytes | None:
    """The arguments' bytes in the order and with the gaps of the device's layout."""
    if array == 0:
        return None  # handed over as one buffer, whose size the node does not say
    info = getattr(driver, info_function)
    block = bytearray()
    for i in range(_MOST_PARAMS):
        status, *span = info(code, i)
        if int(status) != 0:
            break  # the driver has no count: the first index that does not exist ends it
        offset, length = span
        argument = ctypes.c_void_p.from_address(array + i * ctypes.sizeof(ctypes.c_void_p)).value
        block += bytes(offset - len(block)) + ctypes.string_at(argument or 0, length)
    return bytes(block)


def _read_edges(graph: Any, driver: Any) -> list[tuple[Any, Any, bool]]:
    # CUDA 12 has the edges' types in a function of its own, CUDA 13 in the only one.
    function = "cuGraphGetEdges_v2" if hasattr(driver, "cuGraphGetEdges_v2") else "cuGraphGetEdges"
    *_, count = _call(driver, function, graph)
    if not count:
        return []
    before, after, data, _ = _call(driver, function, graph, count)
    programmatic = int(driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
    return [
        (a, b, int(edge.type) == programmatic)
        for a, b, edge in zip(before, after, data, strict=True)
    ]


def _instantiated_bytes(graph: Any, driver: Any) -> int:
    """Device memory that one more executable copy of the graph takes."""
    before, _ = _call(driver, "cuMemGetInfo")
    executable = _call(driver, "cuGraphInstantiate", graph, 0)
    try:
        _call(driver, "cuGraphUpload", executable, driver.CUstream(0))
        _call(driver, "cuStreamSynchronize", driver.CUstream(0))
        after, _ = _call(driver, "cuMemGetInfo")
    finally:
        driver.cuGraphExecDestroy(executable)
    return max(int(before) - int(after), 0)
