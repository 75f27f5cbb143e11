"""A chain as one CUDA graph, built node by node from its plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, Self, TypeVar

import torch

from sdm_runtime import _core
from sdm_runtime.plan.capture_stream import CaptureStream
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.refs import stream_address


class GraphableChain(Protocol):
    """What a graph asks of a chain."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans, in the order of one step."""

    @property
    def backend(self) -> str:
        """``"host"`` or ``"cuda"``."""

    @property
    def device(self) -> torch.device:
        """The device of the operands."""

    @property
    def has_library_step(self) -> bool:
        """Whether a plan is a call into the BLAS."""

    def _require_bound(self) -> _core.Chain: ...

    def _bound_to(self, operands: Mapping[str, torch.Tensor], *, keep: bool) -> Self: ...

    def _note_run(self, stream: torch.cuda.Stream | int | None) -> None: ...


_Chain = TypeVar("_Chain", bound=GraphableChain)


class ChainReplays(Generic[_Chain]):
    """What :class:`~sdm_runtime.GraphedChain` does, for any such chain."""

    def __init__(self, chain: _Chain):
        """Build and instantiate the graph; raises what :meth:`StepChain.graph` says."""
        if chain.backend == "host":
            raise ValueError("[chain] graph: expected a cuda chain, got a host chain")
        self._chain = chain
        self._device = chain.device
        # Not one of torch's: those are shared, and another thread's work on it would be captured.
        self._capture_stream: CaptureStream | None = None
        if chain.has_library_step:
            self._capture_stream = CaptureStream(self._device)
        self._graph = _core.ChainGraph(chain._require_bound(), *self._library_capture())

    def _library_capture(self) -> tuple[int, int, int]:
        """What library calls are captured with: private stream, torch's handle set to it, event."""
        if self._capture_stream is None:
            return 0, 0, 0
        handle = self._capture_stream.blas_handle()
        return self._capture_stream.address, handle, int(self._capture_stream.done.cuda_event)

    @property
    def chain(self) -> _Chain:
        """The chain that a replay runs."""
        return self._chain

    @property
    def handle(self) -> int:
        """The address of the ``CUgraph``, for tools that walk it; the object keeps it alive."""
        return int(self._graph.handle())

    @property
    def nodes(self) -> int:
        """Kernel nodes made from the plans; a library step's own nodes are not counted."""
        return int(self._graph.nodes())

    @property
    def programmatic_edges(self) -> int:
        """Edges along which a kernel may start before the one ahead of it has finished."""
        return int(self._graph.programmatic_edges())

    def replay(self, stream: torch.cuda.Stream | int | None = None) -> None:
        """Run every step, in the chain's order, by one launch.

        Args:
            stream: As :meth:`StepChain.run` takes it; the operands' memory is kept likewise.

        Raises:
            PlanError: The memory of an operand was replaced since it was bound.
            CudaError: The launch failed, or an earlier :meth:`rebind` did.
            ValueError: The stream belongs to another device.
        """
        for plan in self._chain.plans:
            plan.require_unmoved()
        self._graph.replay(stream_address(self._device, stream))
        self._chain._note_run(stream)

    def rebind(self, **operands: torch.Tensor) -> None:
        """Let later replays run on ``operands``, given by operand name; the others stay.

        Replays that were launched before are not affected; the caller keeps the operands they use
        alive until they have run.

        Raises:
            PlanError: A name that no plan has, or an operand that does not fit what was recorded;
                the graph is as before.
            CudaError: The driver refused an update; the graph then refuses to replay.
        """
        chain = self._chain._bound_to(operands, keep=True)
        self._graph.rebind(chain._require_bound(), *self._library_capture())
        self._chain = chain
