"""A chain most of whose operands stay as they are from run to run: the weights of a layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import ref

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.machine.forked import check_threads
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.refs import current_stream, operand_refs


class LastingTensor:
    """A tensor that was bound: not kept alive, and told from any other, or itself elsewhere."""

    __slots__ = ("_address", "_dtype", "_shape", "_stride", "_tensor")

    def __init__(self, x: Tensor):
        """Note where it is, and how it lies there."""
        self._tensor, self._address = ref(x), x.data_ptr()
        self._dtype, self._shape, self._stride = x.dtype, x.shape, x.stride()

    def is_still(self, x: Tensor) -> bool:
        """Whether x is the tensor, where and as it was: an assignment to ``.data`` changes that."""
        return (
            self._tensor() is x
            and x.data_ptr() == self._address
            and x.dtype is self._dtype
            and x.shape == self._shape
            and x.stride() == self._stride
        )


class HeldChain:
    """The plans of a bound chain, and the addresses of its lasting operands.

    A run binds the other operands by their addresses alone, which takes a fraction of the time of
    reading and binding all. No tensor is kept alive.
    """

    __slots__ = ("_core", "_on_host", "launches")

    def __init__(
        self,
        chain: StepChain,
        lasting: dict[str, Tensor],
        given: dict[str, Tensor],
        arenas: Sequence[Arena] = (),
    ):
        """Keep the plans of a bound chain.

        Args:
            chain: Bound to the operands that follow.
            lasting: Those that are where they are in every run: whoever runs the chain sees to it.
            given: Those that each run has its own of.
            arenas: With more of the latter.
        """
        kept, others = operand_refs(lasting), operand_refs(given, "", arenas)
        self._core = _core.HeldChain(chain._require_bound(), kept, others)
        self._on_host = chain.backend == "host"
        self.launches = chain.launches

    def run(self, given: Iterable[Tensor], device: torch.device) -> None:
        """Run every step on torch's current stream of a device.

        Args:
            given: Tensors of the forms that the chain was made with, in the same order, then the
                memories of the arenas. The caller raises the versions of what is written.
            device: Theirs.

        Raises:
            PlanError: A tensor that is not aligned as recorded, or overlaps another.
            CudaError: As StepChain.run.
        """
        if self._on_host:
            check_threads("chain")
        self._core.run([x.data_ptr() for x in given], current_stream(device))
