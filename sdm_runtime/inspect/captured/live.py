"""Looking into what runs in this process: captured graphs, kernel times, bound operands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch

from sdm_runtime.files.writing import write_file
from sdm_runtime.inspect.captured.match import match
from sdm_runtime.inspect.captured.report import GraphReport
from sdm_runtime.inspect.captured.walk import driver_bindings, walk
from sdm_runtime.inspect.reading.files import decode, load
from sdm_runtime.inspect.reading.model import ChainModel
from sdm_runtime.inspect.reading.timeline import KernelTime, Trace, make_trace
from sdm_runtime.plan.chain import GraphedChain, StepChain
from sdm_runtime.tensor.words import dtype_word

Chain = StepChain | ChainModel | str | os.PathLike[str]


def graph(
    captured: torch.cuda.CUDAGraph | GraphedChain,
    chain: Chain | None = None,
    *,
    measure_memory: bool = False,
) -> GraphReport:
    """Walk a captured CUDA graph, and find a chain's launches in it.

    Args:
        captured: A graph of ``torch.cuda.CUDAGraph(keep_graph=True)``, captured; or a graph that
            :meth:`StepChain.graph` built.
        chain: The chain to look for: a live one, one that was read, or a file. Default: none, or
            the chain that the graph was built from.
        measure_memory: Instantiate the graph once more to see how much device memory it takes.

    Returns:
        The report; ``print`` it. ``report.faithful`` says whether the graph holds the chain.

    Raises:
        ImportError: cuda-python is not installed.
        ValueError: The graph was not kept, or not captured.
        CudaError: A driver call failed.
        FileError: ``chain`` is a file, but not of a chain.
    """
    if isinstance(captured, GraphedChain):
        handle, chain = captured.handle, captured.chain if chain is None else chain
    else:
        handle = _raw_graph(captured)
    model = None if chain is None else _model(chain)
    walked = walk(handle, driver_bindings(), measure_memory=measure_memory)
    held_back = _held_back(chain) if isinstance(chain, StepChain) else None
    return GraphReport(walked, None if model is None else match(walked, model, held_back))


def _raw_graph(captured: torch.cuda.CUDAGraph) -> int:
    try:
        return int(captured.raw_cuda_graph())
    except RuntimeError as error:
        raise ValueError(
            "graph: expected a captured torch.cuda.CUDAGraph(keep_graph=True): torch throws the "
            f"graph itself away otherwise ({error})"
        ) from error


def _held_back(chain: StepChain) -> list[int] | None:
    """The plans that a bound chain does not launch early though they ask for it."""
    if not all(plan.bound for plan in chain.plans):
        return None
    starts = zip(chain.plans, chain._require_bound().early_starts(), strict=True)
    asked = [(plan.geometry["programmatic"], early) for plan, early in starts]
    return [index for index, (programmatic, early) in enumerate(asked) if programmatic > early]


def _model(chain: Chain) -> ChainModel:
    if isinstance(chain, ChainModel):
        return chain
    if isinstance(chain, StepChain):
        return decode(chain.to_bytes())
    return load(chain)


def trace(run: StepChain | Callable[[], Any], path: str | os.PathLike[str] | None = None) -> Trace:
    """Run something once and record when its kernels ran.

    Args:
        run: A chain, or a function. A host chain is timed launch by launch by the executor; all
            else by torch's profiler, on the current CUDA device.
        path: Where to save the trace, for ``sdm-plan report --trace``.

    Raises:
        RuntimeError: ``run`` is a function and there is no CUDA device to profile.
    """
    if isinstance(run, StepChain) and run.backend == "host":
        recorded = make_trace("host", _host_times(run))
    else:
        recorded = make_trace("cuda", _device_times(run.run if isinstance(run, StepChain) else run))
    if path is not None:
        recorded.save(path)
    return recorded


def _host_times(chain: StepChain) -> list[KernelTime]:
    names = [plan.kernel for plan in chain.plans]
    return [
        KernelTime(names[plan], start / 1e3, (end - start) / 1e3)
        for plan, start, end in chain.run_timed()
    ]


def _device_times(function: Callable[[], Any]) -> list[KernelTime]:
    if not torch.cuda.is_available():
        raise RuntimeError(
            "trace: expected a CUDA device for the profiler, found none; a host chain is traced by "
            "passing the chain itself"
        )
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        function()
        torch.cuda.synchronize()
    return kernels_of(list(profiler.events()))


def kernels_of(events: list[Any]) -> list[KernelTime]:
    """The kernels among a profiler's events; copies and fills are not kernels."""
    return [
        KernelTime(
            event.name,
            float(event.time_range.start),
            float(event.time_range.end - event.time_range.start),
            int(getattr(event, "device_resource_id", 0) or 0),
        )
        for event in events
        if event.device_type.name == "CUDA" and not event.name.startswith(("Memcpy", "Memset"))
    ]


def bindings(
    chain: StepChain, path: str | os.PathLike[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Where a chain's operands are, for ``sdm-plan verify --bindings``.

    Returns:
        ``{operand: {"address", "bytes", "dtype", "device"}}``, also written to ``path`` as JSON.

    Raises:
        PlanError: The chain is not bound.
    """
    bound: dict[str, dict[str, Any]] = {}
    for plan in chain.plans:
        plan.require_bound()
        for name, tensor in plan.tensors.items():
            bound[name] = {
                "address": tensor.data_ptr(),
                "bytes": tensor.numel() * tensor.element_size(),
                "dtype": dtype_word(tensor.dtype),
                "device": str(tensor.device),
            }
    if path is not None:
        write_file(path, json.dumps(bound, indent=1).encode())
    return bound
