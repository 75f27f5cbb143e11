"""A chain's plans, to be bound to new operands again and again."""

from __future__ import annotations

import torch

from sdm_runtime.chain import StepChain
from sdm_runtime.tensors import READER, tensor_ref


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
        core = self._core.rebind(READER, operands)
        if core is None:
            for name, tensor in operands.items():
                tensor_ref(f"[chain] bind {name}", tensor)
        return StepChain._of_core(core, operands)
