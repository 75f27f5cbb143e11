"""All checks of one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sdm_runtime.inspect.reading.model import ChainModel
from sdm_runtime.inspect.verify.bindings import Binding, check_bindings
from sdm_runtime.inspect.verify.device import (
    DeviceFacts,
    check_device,
    check_image,
    check_pdl,
    check_pdl_gaps,
    check_together,
)
from sdm_runtime.inspect.verify.early import check_early_starts
from sdm_runtime.inspect.verify.executor import check_executor
from sdm_runtime.inspect.verify.extents import check_extents, check_patches, check_step_shares
from sdm_runtime.inspect.verify.findings import ERROR, UNKNOWN, WARNING, Finding, Place
from sdm_runtime.inspect.verify.overlaps import check_overlaps, check_same_operands
from sdm_runtime.inspect.verify.shape import (
    check_alignment,
    check_geometry,
    check_host,
    check_pointers,
)

_PLAN_CHECKS = (
    check_geometry,
    check_host,
    check_pointers,
    check_alignment,
    check_patches,
    check_extents,
    check_step_shares,
    check_overlaps,
)


def verify(
    chain: ChainModel,
    *,
    facts: DeviceFacts | None = None,
    bindings: Mapping[str, Binding] | None = None,
    device_uuid: str | None = None,
) -> list[Finding]:
    """Every finding about a file: errors first, then warnings, then what could not be checked.

    Args:
        chain: A file that could be read.
        facts: What a build knows of its device code (``device.load_facts``).
        bindings: Where the operands are (``bindings.load_bindings``).
        device_uuid: The device that the plans should belong to.
    """
    found = list(_findings(chain, facts, bindings, device_uuid))
    order = {ERROR: 0, WARNING: 1, UNKNOWN: 2}
    return sorted(found, key=lambda finding: order[finding.level])


def _findings(
    chain: ChainModel,
    facts: DeviceFacts | None,
    bindings: Mapping[str, Binding] | None,
    device_uuid: str | None,
) -> Iterator[Finding]:
    places = [Place(index, plan) for index, plan in enumerate(chain.plans)]
    for place in places:
        for check in _PLAN_CHECKS:
            yield from check(place)
        yield from check_image(place, facts)
        yield from check_pdl(place, facts)
    yield from check_pdl_gaps(places)
    yield from check_early_starts(places, chain, bindings)
    yield from check_same_operands(places)
    yield from check_together(places, chain.steps)
    yield from check_device(places, device_uuid)
    if bindings is not None:
        yield from check_bindings(places, bindings)
    yield from check_executor(chain)
