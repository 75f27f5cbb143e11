"""Chains on a GPU and what they must leave behind."""

from __future__ import annotations

from chain_case import chain_tensors, make_chain
from kernel_cases import F32, Shape
from kernel_checks import copies, differing

SMALL = Shape(hd=128, chunk=16, writes=8, reads=8, steps=5, slots=64)
SHAPES = [
    SMALL,
    Shape(hd=256, chunk=16, writes=4, reads=4, steps=4, slots=64, types=(F32, F32, F32), hot=True),
    Shape(hd=77, chunk=16, writes=4, reads=4, steps=4, slots=32),
]


def on_gpu(tensors):
    return {name: tensor.cuda() for name, tensor in tensors.items()}


class Case:
    """Operands of a chain, on the host, and what the host chain makes of them."""

    def __init__(self, shape):
        self.shape = shape
        self.start, self.sizes = chain_tensors(shape)
        self.expected = copies(self.start)
        make_chain(self.expected, self.sizes, shape, pdl=False).run()
        assert differing(self.start, self.expected) != []

    def fresh(self):
        return on_gpu(self.start)

    def chain(self, operands, pdl=True):
        return make_chain(operands, self.sizes, self.shape, pdl)

    def restore(self, operands):
        """Puts the start values back, on the current stream."""
        for name, tensor in self.start.items():
            operands[name].copy_(tensor, non_blocking=False)

    def wrong(self, operands):
        """Names of the operands that do not hold what the host chain leaves."""
        held = {name: tensor.cpu() for name, tensor in operands.items()}
        return differing(held, self.expected)
