"""The calls of the layer that layer.py times; layers and inputs are on one device, bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch import Tensor

from sdm_runtime import SparseDeltaMemory

if TYPE_CHECKING:  # older builds, which are measured too, have it elsewhere
    from sdm_runtime import MemoryCache

Work = Callable[[], object]


def training_step(layer: SparseDeltaMemory, x: Tensor) -> Work:
    """Forward and backward of one call; the gradients of x and of all parameters are new ones."""
    layer.train()
    dy = torch.randn_like(x)
    leaves = [x.requires_grad_(), *layer.parameters()]

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        y, _ = layer(x)
        y.backward(dy)

    return step


def prefill_call(layer: SparseDeltaMemory, x: Tensor) -> Work:
    """One call in eval mode without gradients, from the learned bank."""
    layer.eval()

    def call() -> None:
        with torch.no_grad():
            layer(x)

    return call


class Decoding:
    """Steps of one or several layers with caches of their own, in eval and inference mode.

    A call of a layer uses up the cache that it is given and returns the next one, whose bank is the
    same. So these calls can be captured: every replay goes on where the last one ended.
    """

    def __init__(self, layers: list[SparseDeltaMemory], inputs: list[list[Tensor]]) -> None:
        """``inputs``: for every step one [B, T, dim] a layer. The caches begin with the first."""
        self.layers, self.inputs = [layer.eval() for layer in layers], inputs
        with torch.inference_mode():
            first = zip(layers, inputs[0], strict=True)
            self.caches: list[MemoryCache] = [layer(x)[1] for layer, x in first]

    def __call__(self) -> None:
        """All steps."""
        with torch.inference_mode():
            for step in self.inputs:
                for number, (layer, x) in enumerate(zip(self.layers, step, strict=True)):
                    _, self.caches[number] = layer(x, self.caches[number])


def selection_step(layer: SparseDeltaMemory, x: Tensor) -> Work | None:
    """Selection by the keys and queries of x with the activations, forward and backward.

    It is internal to the layer. None where the layer does it in no way of SELECTIONS: add its own.
    """
    with torch.no_grad():
        projected = layer.Wk_write(x), layer.Wq_read(x)
    keys, queries = (scores.detach().requires_grad_() for scores in projected)
    for name, way in SELECTIONS.items():
        if is_called(layer, name, x):
            return _forward_and_backward(way(layer, keys, queries), [keys, queries])
    return None


def is_called(layer: SparseDeltaMemory, name: str, x: Tensor) -> bool:
    """Whether a call of the layer comes to its method of this name, if it has one."""
    inner = getattr(layer, name, None)
    calls = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return inner(*args, **kwargs)

    if inner is not None:
        with patch.object(layer, name, counted):
            layer(x)
    return bool(calls)


def _forward_and_backward(weights: Callable[[], list[Tensor]], scores: list[Tensor]) -> Work:
    grads = [torch.randn_like(each) for each in weights()]

    def step() -> None:
        torch.autograd.grad(weights(), scores, grads)

    return step


def _select(layer: SparseDeltaMemory, keys: Tensor, queries: Tensor) -> Callable[[], list[Tensor]]:
    """_select for keys and queries together, or, as it was, in turn and then the activations."""
    select: Any = layer._select
    # Until there were tables, _select was given the number of slots.
    writes: Any = getattr(layer, "_write_tables", layer.args.num_writes)
    reads: Any = getattr(layer, "_read_tables", layer.args.num_reads)

    def together() -> list[Tensor]:
        _, written, _, read = select(keys, queries)
        return [written, read]

    def in_turn() -> list[Tensor]:
        _, written = select(keys, layer.key_bn, writes)
        _, read = select(queries, layer.query_bn, reads)
        return [layer.write_act(written), layer.read_act(read)]

    return together if "query_scores" in signature(select).parameters else in_turn


# By the method that the layer calls then: from scores [B, T, H*K] what gives the weights of the
# written and of the read slots.
SELECTIONS = {"_select": _select}
