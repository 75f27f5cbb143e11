"""A chain as one CUDA graph, built node by node from its plans."""

from __future__ import annotations

import torch

from sdm_runtime import _core
from sdm_runtime.plan.capture_stream import CaptureStream
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.tensor.refs import stream_address


class GraphedChain:
    """Every launch of every step of a chain in one CUDA graph; made by :meth:`StepChain.graph`.

    A replay gives the bits of :meth:`StepChain.run`. Consecutive programmatic launches are joined
    by programmatic edges. The graph keeps its chain, and so the operands, alive; it takes about
    3 KiB of device memory per launch. Threads may use it at once: a replay beside a :meth:`rebind`
    is of the operands before it or of those after it.

    Library steps use a workspace of the BLAS. It stays where it is as long as the graph lives, also
    where torch frees its own; replays of such a graph wait for each other, whatever their streams.
    """

    def __init__(self, chain: StepChain):
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
    def chain(self) -> StepChain:
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
