"""A chain's plans, to be bound to new operands again and again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sdm_runtime import _core
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.unread import check_unread, without_unread
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.refs import operand_refs


class ChainTemplate:
    """The plans of a bound chain, without its operands.

    Binding makes the checks of :meth:`StepChain.bind`. On the first chain's device it looks up and
    loads nothing, which takes a fraction of the time of recording the plans.
    """

    def __init__(self, chain: StepChain):
        """Keep the plans of a bound chain, and none of its tensors."""
        self._core = chain._require_bound()

    def bind(self, operands: dict[str, torch.Tensor]) -> StepChain:
        """The chain on ``operands``: by name, those of every plan.

        Raises:
            TypeError, ValueError: An operand that no kernel takes.
            PlanError: As :meth:`StepChain.bind`; nothing is bound.
        """
        kernels = [plan.plan().header()["kernel"] for plan in self._core.bound_plans()]
        kept = dict(operands)  # the chain's own
        for kernel in kernels:
            kept = without_unread(kernel, kept)
        chain = self.bind_read(kept, operand_refs(kept, "[chain] bind "))
        for kernel in kernels:
            check_unread(kernel, operands)
        return chain

    def bind_read(
        self, operands: dict[str, torch.Tensor], refs: _core.Operands, arenas: Sequence[Arena] = ()
    ) -> StepChain:
        """The same for operands that :func:`~sdm_runtime.tensor.refs.operand_refs` has read.

        The chain keeps the dict and the arenas, which must stay as they are.
        """
        return StepChain._of_core(self._core.rebind(refs), operands, refs, arenas)
