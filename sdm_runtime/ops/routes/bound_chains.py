"""Chains of calls of a kind: recorded for the first of them, bound for those that follow."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

from torch import Tensor

from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.template import ChainLength, ChainTemplate
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.refs import operand_refs

PLAN_ALIGNMENT = 16  # bytes: what a plan may ask of an address at most
# Calls shorter than a chunk are of a kind for each length: three chains each, for 64 of them.
_MOST_TEMPLATES = 256


class _Kept:
    """A template, and when it was used last."""

    __slots__ = ("template", "used")

    def __init__(self, template: ChainTemplate):
        self.template, self.used = template, next(_uses)


_uses = itertools.count()
_templates: dict[tuple[object, ...], _Kept] = {}
_lock = threading.Lock()  # of whoever adds or removes one: calls run on many threads


def bound_chain(
    kind: tuple[object, ...],
    operands: dict[str, Tensor],
    record: Callable[[], StepChain],
    arenas: Sequence[Arena] = (),
    length: ChainLength | None = None,
) -> StepChain:
    """The chain that ``record()`` gives for these operands, from an earlier one where there is one.

    Args:
        kind: All that its plans hold but addresses and what ``length`` says, hashable.
        operands: Those of every plan, by name; the chain keeps the dict, which must stay as it is.
        record: Records the plans on these operands.
        arenas: With more operands; the chain keeps them.
        length: The chain's, where chains of a kind have several. Each plan covers its steps, and
            its operands hold no others.
    """
    refs = operand_refs(operands, "[chain] bind ", arenas)
    # A plan for aligned addresses takes others that are aligned; any other is of its own kind.
    if not refs.aligned(PLAN_ALIGNMENT):
        return record()
    kept = _templates.get(kind)
    if kept is not None:
        kept.used = next(_uses)
        return kept.template.bind_read(operands, refs, arenas, length)
    chain = record()
    _keep(kind, ChainTemplate(chain, length))
    return chain


def release_memory() -> None:
    """Give back what the operation keeps for later calls.

    That is the recorded chains of up to 256 kinds of calls (sizes, dtypes, devices) and the small
    CUDA graphs of the long ones, a few hundred KiB of device memory each. Later calls record theirs
    anew; calls that run meanwhile are not affected. A call that finds no memory does this itself
    before it raises.
    """
    with _lock:
        _templates.clear()


def _keep(kind: tuple[object, ...], template: ChainTemplate) -> None:
    """Add it; the one that was not used for the longest time makes room."""
    with _lock:
        while len(_templates) >= _MOST_TEMPLATES:
            del _templates[min(_templates, key=lambda known: _templates[known].used)]
        _templates[kind] = _Kept(template)
