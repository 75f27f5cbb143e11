"""A chain's plans, to be bound to new operands again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from sdm_runtime import _core
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.unread import check_unread, without_unread
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.refs import operand_refs


class ChainLength(NamedTuple):
    """What of a chain's plans follows the number of tokens."""

    steps: int
    num_tokens: int


class ChainTemplate:
    """The plans of a bound chain, without its operands.

    Binding makes the checks of :meth:`StepChain.bind`. On the first chain's device it looks up and
    loads nothing, which takes a fraction of the time of recording the plans.
    """

    def __init__(self, chain: StepChain, length: ChainLength | None = None):
        """Keep the plans of a bound chain, and none of its tensors.

        Args:
            chain: Its plans cover its steps, and its operands hold no others.
            length: The chain's, if its plans may be bound with another.
        """
        # The latest length and the chain of it: one object, as threads bind at once.
        self._latest = length, chain._require_bound()

    def bind(
        self, operands: dict[str, torch.Tensor], length: ChainLength | None = None
    ) -> StepChain:
        """The chain on ``operands``: by name, those of every plan.

        With ``length`` its plans are those that would be recorded for so many steps and tokens.

        Raises:
            TypeError, ValueError: An operand that no kernel takes, or tokens that the steps do not
                have.
            PlanError: As :meth:`StepChain.bind`, or steps that the plans cannot have; nothing is
                bound.
        """
        _, core = self._latest
        kernels = [plan.plan().header()["kernel"] for plan in core.bound_plans()]
        kept = dict(operands)  # the chain's own
        for kernel in kernels:
            kept = without_unread(kernel, kept)
        chain = self.bind_read(kept, operand_refs(kept, "[chain] bind "), length=length)
        for kernel in kernels:
            check_unread(kernel, operands)
        return chain

    def bind_read(
        self,
        operands: dict[str, torch.Tensor],
        refs: _core.Operands,
        arenas: Sequence[Arena] = (),
        length: ChainLength | None = None,
    ) -> StepChain:
        """The same for operands that :func:`~sdm_runtime.tensor.refs.operand_refs` has read.

        The chain keeps the dict and the arenas, which must stay as they are.
        """
        latest, core = self._latest
        if length == latest:
            bound = core.rebind(refs)
        else:
            if latest is None or length is None:
                raise ValueError(f"[chain] bind length: expected {latest}, got {length}")
            bound = core.resized(refs, length.steps, [("num_tokens", length.num_tokens)])
            self._latest = length, bound
        return StepChain._of_core(bound, operands, refs, arenas)
