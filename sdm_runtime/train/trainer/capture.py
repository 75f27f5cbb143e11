"""The training step as a CUDA graph, entered without changing what the step computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sdm_runtime.train.trainer.step import Step

if TYPE_CHECKING:
    from sdm_runtime.graphs import CapturedStep


def captured(
    step: Step,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    operands: tuple[Tensor, ...],
    *,
    keep_graph: bool = False,
) -> CapturedStep:
    """Return the step captured over ``operands``; call it with others of the same shapes.

    Capturing runs the step a few times to warm up. The model and the optimizer are put back
    afterwards, so that a captured run has the losses of an uncaptured one. ``keep_graph`` is for
    ``sdm_runtime.inspect.graph(captured_step.graph, chain)``.
    """
    from sdm_runtime.graphs import capture_step

    with put_back(model, optimizer):
        return capture_step(step, *operands, keep_graph=keep_graph)


@contextmanager
def put_back(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Undo, in place, what the body does to the model's and the optimizer's tensors.

    Optimizer state that the body creates is set to zero, which is how AdamW's begins.
    """
    values = [*model.parameters(), *model.buffers()]
    saved = [value.detach().clone() for value in values]
    saved_state = {id(t): t.clone() for t in _state_tensors(optimizer)}
    yield
    with torch.no_grad():
        for value, before in zip(values, saved, strict=True):
            value.copy_(before)
        for tensor in _state_tensors(optimizer):
            before_state = saved_state.get(id(tensor))
            tensor.zero_() if before_state is None else tensor.copy_(before_state)


def _state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
