"""A whole training step as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sdm_runtime import qualify
from sdm_runtime.graphs.values import CapturedInputs, check_outputs, copied_out
from sdm_runtime.plan.capture_stream import CaptureStream

_WHERE = "[capture_step]"
_ERROR_MODE = "thread_local"  # a capture forbids unsafe calls to its own thread, not to all


def capture_step(
    fn: Callable[..., Any], *example_inputs: Any, warmup: int = 3, keep_graph: bool = False
) -> CapturedStep:
    """Warm up ``fn`` and capture it: forward, backward, optimizer, whatever it does.

    ``fn`` runs ``warmup`` times on a side stream, for real: libraries initialize, device code
    loads, optimizers make their state and the chain's matrix product is qualified, so that the
    capture finds everything in place. It trains while it warms up; put the model and optimizer
    back afterwards if that must not count. Then ``fn`` runs once more, captured.

    Other threads may use the device meanwhile, on streams of their own: a data loader's allocates,
    copies from pinned memory and waits for its copies. What they must not do is wait for the whole
    device (``torch.cuda.synchronize()``) or for the stream of the capture, which breaks it, or draw
    from the generator that the step draws from. (The capture is in CUDA's error mode
    "thread_local": unsafe calls are forbidden to the thread of ``fn`` alone.)

    The workspaces of the BLAS whose addresses the graph holds, of ``fn``'s thread and its
    backwards, stay where they are while the step lives, also where torch frees its own
    (``torch._C._cuda_clearCublasWorkspaces()``, as ``torch.compile(mode="reduce-overhead")`` does).
    Torch has no way to hold those of other threads that ``fn`` starts, nor any under another
    allocator than its native one (``PYTORCH_ALLOC_CONF=backend:cudaMallocAsync``): free none there.

    Args:
        fn: The step. It may use tensors from outside, such as parameters, as long as they stay
            where they are; it must not read values back to the CPU. Results of earlier calls
            whose autograd graph reaches the same leaves must be gone: autograd hands gradients to
            a leaf on the stream of the graph that used it first. What Python computes in it is
            computed once: pass what changes from call to call as a tensor.
        example_inputs: Tensors of one CUDA device, which stand for every later input of their
            shape, dtype and layout, and other values, which stay as they are; also in tuples,
            lists, dicts and other containers that torch.utils._pytree knows.
        warmup: Runs before the capture, at least 1.
        keep_graph: Keep what was captured beside what is replayed, for
            ``sdm_runtime.inspect.graph(step.graph, chain)``; it takes host memory.

    Returns:
        The captured step; call it with new inputs.

    Raises:
        TypeError, ValueError: An input is not a tensor of the device, an input or output is a
            container of tensors that torch.utils._pytree does not know, or ``warmup`` is less
            than 1.
        RuntimeError: ``fn`` does what a capture forbids; the message says what.
    """
    if warmup < 1:
        raise ValueError(f"{_WHERE} warmup: expected at least 1, got {warmup}")
    return CapturedStep(fn, example_inputs, warmup, keep_graph)


def _end_broken_capture(stream: torch.cuda.Stream) -> None:
    """Make torch's CUDA generator usable again after a capture that could not be ended.

    Such a capture leaves the generator believing that it is captured, and every later draw outside
    of a graph is refused; a capture that ends well tells it otherwise.
    """
    filler = torch.zeros(1, device=stream.device)
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream, capture_error_mode=_ERROR_MODE):
        filler.add_(1)


class CapturedStep:
    """A captured step: copies its inputs in, replays, and returns copies of the outputs.

    The step works on private copies of its inputs; one that it writes in place, such as a bank that
    it advances, is written back. Calls wait for each other on the device, whatever their streams.
    It keeps the function, its inputs and outputs, and the memory of the graph alive. The replay is
    issued on torch's current stream. Not for use by several threads at once.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        example_inputs: tuple[Any, ...],
        warmup: int,
        keep_graph: bool = False,
    ):
        """Warm up and capture; :func:`capture_step` says what is raised."""
        self._inputs = CapturedInputs(_WHERE, example_inputs)
        self._device = _device_of(self._inputs)
        self._fn = fn
        self._graph = torch.cuda.CUDAGraph(keep_graph=keep_graph)
        with torch.cuda.device(self._device):
            # Not one of torch's: another graph captured on it would use the same workspaces.
            self._stream = CaptureStream(self._device)
            self._stream.hold_workspaces()
            stream = self._stream.as_torch()
            self._warm_up(stream, warmup)
            self._outputs = self._capture(stream)
            check_outputs(_WHERE, self._outputs)
            # Done with what the latest call does on the device.
            self._done = self._stream.done
            if keep_graph:  # torch instantiates at once only what it does not keep
                self._graph.instantiate()

    def _warm_up(self, stream: torch.cuda.Stream, runs: int) -> None:
        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                for _ in range(runs):
                    self._fn(*self._inputs.arguments())
                qualify.prepare_skipped(self._device)  # what captures before this had to decline
        finally:  # also behind what a step issued that raised
            current.wait_stream(stream)

    def _capture(self, stream: torch.cuda.Stream) -> Any:
        first: Exception | None = None  # a capture that fn broke says no more than that on its end
        try:
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode=_ERROR_MODE):
                try:
                    self._inputs.before_capture()
                    outputs = self._fn(*self._inputs.arguments())
                    self._inputs.after_capture()
                    return outputs
                except Exception as error:
                    first = error
                    raise
        except Exception as error:
            _end_broken_capture(stream)
            raise RuntimeError(
                f"{_WHERE} fn: expected a step that a CUDA graph can hold, got {first or error}. A "
                "step must not wait for the device, read values back to the CPU or move them "
                "there, and its leaves must not be held by an earlier call's autograd graph that "
                "was made on another stream: drop what that call returned (a loss, an output)"
            ) from (first or error)
        finally:
            first = None  # whose traceback holds this frame, and with it what fn held

    @property
    def graph(self) -> torch.cuda.CUDAGraph:
        """The graph that a call replays."""
        return self._graph

    def __call__(self, *inputs: Any) -> Any:
        """Run the step on new inputs.

        Args:
            inputs: As many as captured, in the same containers: each tensor of the shape, dtype and
                device captured, each other value equal to the one captured.

        Returns:
            What ``fn`` returned, every tensor a copy that later calls leave alone.

        Raises:
            TypeError, ValueError: An input is not like the one it was captured with; nothing ran.
        """
        given = self._inputs.leaves_of(inputs)
        with torch.no_grad(), torch.cuda.device(self._device):
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(self._done)  # an earlier call's copies, on a stream of its own
            self._inputs.copy_in(given)
            self._graph.replay()
            self._inputs.write_back(given)
            outputs = copied_out(self._outputs)
            self._done.record(stream)
            return outputs


def _device_of(inputs: CapturedInputs) -> torch.device:
    """The one CUDA device of the tensors among the inputs; the current one without any."""
    if not torch.cuda.is_available():
        raise ValueError(f"{_WHERE} expected a CUDA device, got none here: call the step itself")
    devices = []
    for path, value in zip(inputs.paths, inputs.leaves, strict=True):
        if isinstance(value, torch.Tensor):
            if value.device.type != "cuda":
                raise ValueError(
                    f"{_WHERE} {path}: expected a tensor on a CUDA device, got {value.device}"
                )
            devices.append(value.device)
    if len(set(devices)) > 1:
        names = ", ".join(sorted({str(device) for device in devices}))
        raise ValueError(f"{_WHERE} expected inputs of one device, got {names}")
    return devices[0] if devices else torch.device("cuda", torch.cuda.current_device())
