"""Chains of calls of a kind: recorded for the first of them, bound for those that follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from torch import Tensor

from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.template import ChainTemplate
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.refs import operand_refs

PLAN_ALIGNMENT = 16  # bytes: what a plan may ask of an address at most
_MOST_TEMPLATES = 64
_templates: dict[tuple[object, ...], ChainTemplate] = {}
_lock = threading.Lock()  # of whoever adds or removes one: calls run on many threads


def bound_chain(
    kind: tuple[object, ...],
    operands: dict[str, Tensor],
    record: Callable[[], StepChain],
    arenas: Sequence[Arena] = (),
) -> StepChain:
    """The chain that ``record()`` gives for these operands, from an earlier one where there is one.

    Args:
        kind: All that its plans hold but addresses, hashable.
        operands: Those of every plan, by name; the chain keeps the dict, which must stay as it is.
        record: Records the plans on these operands.
        arenas: With more operands; the chain keeps them.
    """
    refs = operand_refs(operands, "[chain] bind ", arenas)
    # A plan for aligned addresses takes others that are aligned; any other is of its own kind.
    if not refs.aligned(PLAN_ALIGNMENT):
        return record()
    template = _templates.get(kind)
    if template is not None:
        return template.bind_read(operands, refs, arenas)
    chain = record()
    _keep(kind, ChainTemplate(chain))
    return chain


def release_memory() -> None:
    """Give back what the operation keeps for later calls.

    That is the recorded chains of up to 64 kinds of calls (sizes, dtypes, devices) and their small
    CUDA graphs, a few hundred KiB of device memory each. Later calls record theirs anew; calls that
    run meanwhile are not affected. A call that finds no memory does this itself before it raises.
    """
    with _lock:
        _templates.clear()


def _keep(kind: tuple[object, ...], template: ChainTemplate) -> None:
    with _lock:
        while len(_templates) >= _MOST_TEMPLATES:
            del _templates[next(iter(_templates))]
        _templates[kind] = template
