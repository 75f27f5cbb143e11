"""A whole training step as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sdm_runtime import qualify
from sdm_runtime.tensor_words import describe

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

    Args:
        fn: The step. It may use tensors from outside, such as parameters, as long as they stay
            where they are; it must not read values back to the CPU. Results of earlier calls
            whose autograd graph reaches the same leaves must be gone: autograd hands gradients to
            a leaf on the stream of the graph that used it first. What Python computes in it is
            computed once: pass what changes from call to call as a tensor.
        example_inputs: Tensors of one CUDA device, which stand for every later input of their
            shape, dtype and layout, and other values, which stay as they are.
        warmup: Runs before the capture, at least 1.
        keep_graph: Keep what was captured beside what is replayed, for
            ``sdm_runtime.inspect.graph(step.graph, chain)``; it takes host memory.

    Returns:
        The captured step; call it with new inputs.

    Raises:
        TypeError, ValueError: An input is no tensor of the device, or ``warmup`` is less than 1.
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
        self._device = _device_of(example_inputs)
        self._fn = fn
        self._inputs = [_private(value) for value in example_inputs]
        self._graph = torch.cuda.CUDAGraph(keep_graph=keep_graph)
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._warm_up(stream, warmup)
            self._outputs = self._capture(stream)
            if keep_graph:  # torch instantiates at once only what it does not keep
                self._graph.instantiate()

    def _warm_up(self, stream: torch.cuda.Stream, runs: int) -> None:
        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(runs):
                self._fn(*self._inputs)
            qualify.prepare_skipped(self._device)  # what captures before this one had to decline
        current.wait_stream(stream)

    def _capture(self, stream: torch.cuda.Stream) -> Any:
        first: Exception | None = None  # a capture that fn broke says no more than that on its end
        try:
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode=_ERROR_MODE):
                try:
                    return self._fn(*self._inputs)
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
            inputs: As many as captured: each tensor of the shape, dtype and device captured, each
                other value equal to the one captured.

        Returns:
            What ``fn`` returned, every tensor a copy that later calls leave alone.

        Raises:
            TypeError, ValueError: An input is not like the one it was captured with; nothing ran.
        """
        if len(inputs) != len(self._inputs):
            raise TypeError(
                f"{_WHERE} expected the {len(self._inputs)} inputs it was captured with, "
                f"got {len(inputs)}"
            )
        for index, (mine, given) in enumerate(zip(self._inputs, inputs, strict=True)):
            _expect_like(index, mine, given)
        with torch.no_grad(), torch.cuda.device(self._device):
            for mine, given in zip(self._inputs, inputs, strict=True):
                if isinstance(mine, torch.Tensor) and mine is not given:
                    mine.copy_(given)
            self._graph.replay()
            return _map_tensors(torch.Tensor.clone, self._outputs)


def _device_of(inputs: tuple[Any, ...]) -> torch.device:
    """The one CUDA device of the tensors among the inputs; the current one without any."""
    if not torch.cuda.is_available():
        raise ValueError(f"{_WHERE} expected a CUDA device, got none here: call the step itself")
    devices = []
    for index, value in enumerate(inputs):
        if _holds_tensors(value) and not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{_WHERE} input {index}: expected a tensor or a plain value, "
                f"got a {type(value).__name__} that holds tensors: pass them one by one"
            )
        if isinstance(value, torch.Tensor):
            if value.device.type != "cuda":
                raise ValueError(
                    f"{_WHERE} input {index}: expected a tensor on a CUDA device, "
                    f"got {value.device}"
                )
            devices.append(value.device)
    if len(set(devices)) > 1:
        names = ", ".join(sorted({str(device) for device in devices}))
        raise ValueError(f"{_WHERE} expected inputs of one device, got {names}")
    return devices[0] if devices else torch.device("cuda", torch.cuda.current_device())


def _private(value: Any) -> Any:
    """The step's own copy of an input; what is no tensor is kept."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _expect_like(index: int, mine: Any, given: Any) -> None:
    where = f"{_WHERE} input {index}:"
    if not isinstance(mine, torch.Tensor):
        same = type(given) is type(mine) and bool(given == mine)
        if not same:
            raise ValueError(
                f"{where} expected the captured value {mine!r}, got {given!r}: "
                "pass what changes as a tensor"
            )
        return
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{where} expected a tensor, got {type(given).__name__}")
    if (given.device, given.dtype, given.shape) != (mine.device, mine.dtype, mine.shape):
        raise ValueError(f"{where} expected {_describe(mine)}, got {_describe(given)}")


def _describe(tensor: torch.Tensor) -> str:
    return f"{describe(tensor)} on {tensor.device}"


def _map_tensors(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """``value`` with every tensor in its tuples, lists and dicts replaced by ``function`` of it."""
    if isinstance(value, torch.Tensor):
        return function(value.detach())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_tensors(function, part) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_map_tensors(function, part) for part in value)
    if isinstance(value, dict):
        return {key: _map_tensors(function, part) for key, part in value.items()}
    return value


def _holds_tensors(value: Any) -> bool:
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    _map_tensors(note, value)
    return bool(found)
