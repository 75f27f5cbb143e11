"""Checks that need to know device code: whose image, and may it be launched early?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sdm_runtime.files.json_files import expect, member, read_json
from sdm_runtime.files.reading import Source, source_name
from sdm_runtime.format.plan_format import Backend, PlanHeader
from sdm_runtime.inspect.reading.words import device_text
from sdm_runtime.inspect.verify.findings import Finding, Place

_INSTALLED = Path(__file__).parents[2] / "device" / "device_images.json"
_FIRST_PDL_CAPABILITY = 9


@dataclass(frozen=True)
class DeviceFacts:
    """What a build wrote down about its device code."""

    source: str
    image_of: dict[str, str]  # entry: SHA-256 of its image
    waits: dict[str, bool]  # entry: whether it waits for the launch ahead of it


def load_facts(path: Source | None = None) -> DeviceFacts | None:
    """A build's ``device_images.json``; by default this installation's, None if it has none.

    Raises:
        ValueError: The file is not one that a build writes; the message says what is wrong.
        OSError: ``path`` was given and cannot be read, as
            ``sdm_runtime.files.reading.read_file`` says.
    """
    if path is None and not _INSTALLED.is_file():
        return None
    source: Source = _INSTALLED if path is None else path
    facts = DeviceFacts(source_name(source), {}, {})
    try:
        data = expect("list", read_json(source), dict)
        for image in member(data, "images", list):
            values = expect("images", image, dict)
            sha = member(values, "sha256", str)
            for entry in member(values, "entries", list):
                name = member(expect("entries", entry, dict), "name", str)
                facts.image_of[name] = sha
                facts.waits[name] = member(entry, "waits", bool)
    except ValueError as error:
        raise ValueError(f"{facts.source}: not a build's device_images.json: {error}") from None
    return facts


def check_image(place: Place, facts: DeviceFacts | None) -> Iterator[Finding]:
    """The plan's device function is the one that this build has."""
    plan = place.plan
    if plan.backend is not Backend.CUDA or plan.library or plan.empty:
        return
    byte = plan.at + PlanHeader.SPANS["image_hash"][0]
    recorded = plan.header.image_hash.hex()
    if facts is None:
        message = f"image {recorded[:16]}..: this installation has no device code to compare with"
        yield place.unknown("image", message, subject=plan.entry, byte=byte)
    elif plan.entry not in facts.image_of:
        message = f"this build has no device function '{plan.entry}'"
        yield place.error("image", message, subject=plan.entry, byte=byte)
    elif facts.image_of[plan.entry] != recorded:
        message = (
            f"recorded with image {recorded[:16]}.., this build's '{plan.entry}' is in "
            f"{facts.image_of[plan.entry][:16]}..: another build's or device's plan"
        )
        yield place.error("image", message, subject=plan.entry, byte=byte)


def check_pdl(place: Place, facts: DeviceFacts | None) -> Iterator[Finding]:
    """A programmatic launch is of a kernel that waits, on a device that has it."""
    plan = place.plan
    if not plan.programmatic:
        return
    byte = plan.at + PlanHeader.SPANS["flags"][0]
    if plan.library:
        yield place.error("pdl", "a library call is never launched programmatically", byte=byte)
    elif plan.header.capability_major < _FIRST_PDL_CAPABILITY:
        message = f"programmatic launch on {device_text(plan)}, which does not have it"
        yield place.error("pdl", message, byte=byte)
    elif facts is None or plan.entry not in facts.waits:
        message = f"launched programmatically; whether '{plan.entry}' waits is not known here"
        yield place.unknown("pdl", message, subject=plan.entry, byte=byte)
    elif not facts.waits[plan.entry]:
        message = (
            f"launched programmatically, but '{plan.entry}' has no wait: it may read what the "
            "launch ahead of it has not written yet"
        )
        yield place.error("pdl", message, subject=plan.entry, byte=byte)


def check_pdl_gaps(places: Sequence[Place]) -> Iterator[Finding]:
    """In a chain that launches programmatically, a kernel that does not waits for the others."""
    kernels = [p for p in places if p.plan.backend is Backend.CUDA]
    kernels = [p for p in kernels if not p.plan.library and not p.plan.empty]
    if not any(place.plan.programmatic for place in kernels):
        return
    for place in kernels:
        if not place.plan.programmatic:
            message = (
                "launched without PDL in a chain that has it: it starts when the launch ahead of "
                "it has ended, and nothing overlaps there"
            )
            byte = place.plan.at + PlanHeader.SPANS["flags"][0]
            yield place.warning("pdl", message, subject=place.plan.entry, byte=byte)


def check_together(places: Sequence[Place], steps: int) -> Iterator[Finding]:
    """The plans of a chain have one backend, one device, and cover its steps."""
    first = places[0].plan
    for place in places:
        plan, spans = place.plan, PlanHeader.SPANS
        if plan.steps < steps:
            message = f"covers {plan.steps} steps, the chain has {steps}"
            yield place.error("steps", message, step=plan.steps, byte=plan.at + spans["steps"][0])
        if plan.backend is not first.backend:
            message = f"a {plan.backend.name.lower()} plan in a {first.backend.name.lower()} chain"
            yield place.error("device", message, byte=plan.at + spans["backend"][0])
        elif plan.header.device_uuid != first.header.device_uuid:
            message = f"recorded on {device_text(plan)}, plan 0 on {device_text(first)}"
            yield place.error("device", message, byte=plan.at + spans["device_uuid"][0])


def check_device(places: Sequence[Place], uuid: str | None) -> Iterator[Finding]:
    """The plans belong to the device that the caller names by UUID."""
    wanted = uuid.lower().removeprefix("gpu-").replace("-", "") if uuid else None
    for place in places:
        if wanted and place.plan.header.device_uuid.hex() != wanted:
            message = f"recorded on {device_text(place.plan)}, not on {uuid}"
            yield place.error(
                "device", message, byte=place.plan.at + PlanHeader.SPANS["device_uuid"][0]
            )
