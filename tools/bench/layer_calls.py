"""The calls of the layer that layer.py times; layers and inputs are on one device, bfloat16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sdm_runtime import MemoryCache, SparseDeltaMemory

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

    It is internal to the layer. None where no way of SELECTIONS fits: add that build's.
    """
    with torch.no_grad():
        projected = layer.Wk_write(x), layer.Wq_read(x)
    keys, queries = (scores.detach().requires_grad_() for scores in projected)
    for way in SELECTIONS:
        weights = way(layer, keys, queries)
        if weights is not None:
            return _forward_and_backward(weights, [keys, queries])
    return None


def _forward_and_backward(weights: Callable[[], list[Tensor]], scores: list[Tensor]) -> Work:
    grads = [torch.randn_like(each) for each in weights()]

    def step() -> None:
        torch.autograd.grad(weights(), scores, grads)

    return step


def _select_each(
    layer: SparseDeltaMemory, keys: Tensor, queries: Tensor
) -> Callable[[], list[Tensor]] | None:
    """Builds whose layer calls _select for keys and queries in turn, and then the activations."""
    select = getattr(layer, "_select", None)
    if select is None:
        return None
    # Until there were tables, _select was given the number of slots.
    writes = getattr(layer, "_write_tables", layer.args.num_writes)
    reads = getattr(layer, "_read_tables", layer.args.num_reads)

    def weights() -> list[Tensor]:
        _, written = select(keys, layer.key_bn, writes)
        _, read = select(queries, layer.query_bn, reads)
        return [layer.write_act(written), layer.read_act(read)]

    return weights


# From scores [B, T, H*K]: what gives the weights of the written and the read slots, or None.
SELECTIONS = (_select_each,)
