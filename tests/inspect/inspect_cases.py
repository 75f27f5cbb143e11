"""Chain files to look into: a real host chain, the same as a GPU machine writes it, and faults."""

from __future__ import annotations

import functools
import struct
from dataclasses import replace

from kernel_cases import Shape
from plan_cases import ORDER, edited, find_reloc, plan_bytes, records, reseal, sample_chain

from sdm_runtime.format.plan_format import (
    CHAIN_MAGIC,
    FORMAT_VERSION,
    OLDEST_READER,
    ChainEntry,
    ChainHeader,
    FieldRecord,
    PatchRecord,
    PlanHeader,
    RelocRecord,
)
from sdm_runtime.inspect.verify.bindings import Binding
from sdm_runtime.inspect.verify.device import DeviceFacts

SHAPE = Shape(hd=64, sequences=2, chunk=4, writes=3, reads=2, steps=5)
UUID = bytes(range(1, 17))
IMAGE = bytes(range(32))
GWR, GEMM, PA2, GDS = range(4)
ROWS = ("grad", "bank", "snap", "delta", "d_dv", "d_u", "gy", "x")
FACTS = DeviceFacts(
    source="a build",
    image_of={f"{kernel}_bf16": IMAGE.hex() for kernel in ORDER},
    waits={f"{kernel}_bf16": True for kernel in ORDER},
)


def chain_file(plans: list[bytes], steps: int = SHAPE.steps, order: int = 0) -> bytes:
    """A chain file of these plans, whatever they are."""
    at = ChainHeader.SIZE + len(plans) * ChainEntry.SIZE
    entries = b""
    for plan in plans:
        entries += ChainEntry(at, len(plan)).pack()
        at += len(plan)
    header = ChainHeader(
        magic=CHAIN_MAGIC,
        checksum=0,
        version=FORMAT_VERSION,
        oldest_reader=OLDEST_READER,
        header_bytes=ChainHeader.SIZE,
        steps=steps,
        num_plans=len(plans),
        order=order,
        total_bytes=at,
    )
    return bytes(reseal(header.pack() + entries + b"".join(plans)))


@functools.cache
def host_plans(steps: int = 5) -> tuple[bytes, ...]:
    chain, _ = sample_chain(replace(SHAPE, steps=steps))
    return tuple(bytes(plan_bytes(plan)) for plan in chain.plans)


@functools.cache
def cuda_plans() -> tuple[bytes, ...]:
    """The host plans with the geometry, identity and alignments of a GPU's."""
    plans = []
    for kernel, data in zip(ORDER, host_plans(), strict=True):
        plan = bytearray(data)
        for kind, at in records(plan):
            name = kind is RelocRecord and RelocRecord.unpack(plan, at).operand.rstrip(b"\0")
            if name and name.decode() in ROWS:
                plan = edited(plan, kind, at, align_log2=4)
        plans.append(
            bytes(
                edited(
                    plan,
                    PlanHeader,
                    0,
                    backend=2,
                    flags=1,
                    device_uuid=UUID,
                    image_hash=IMAGE,
                    entry=f"{kernel}_bf16".encode(),
                    grid=(8, 2, 1),
                    block=(128, 1, 1),
                    shared_bytes=4096,
                    capability_major=9,
                )
            )
        )
    return tuple(plans)


def host_file() -> bytes:
    return chain_file(list(host_plans()))


def cuda_file() -> bytes:
    return chain_file(list(cuda_plans()))


def with_plan(plans: tuple[bytes, ...], index: int, plan: bytes) -> bytes:
    return chain_file([bytes(plan) if i == index else p for i, p in enumerate(plans)])


def edited_reloc(plan: bytes, of_operand: str, **members) -> bytes:
    return bytes(edited(plan, RelocRecord, find_reloc(plan, of_operand), **members))


def edited_patch(plan: bytes, **members) -> bytes:
    at = next(at for kind, at in records(plan) if kind is PatchRecord)
    return bytes(edited(plan, PatchRecord, at, **members))


def without_reloc(plan: bytes, operand: str) -> bytes:
    """The plan without one of its relocations: the pointer stays null."""
    at = find_reloc(plan, operand)
    header = PlanHeader.unpack(plan)
    cut = plan[:at] + plan[at + RelocRecord.SIZE :]
    return bytes(edited(cut, PlanHeader, 0, num_relocs=header.num_relocs - 1, total_bytes=len(cut)))


def set_field(plan: bytes, name: str, value: int) -> bytes:
    """The plan with another value of an int32 field."""
    block = len(plan) - (PlanHeader.unpack(plan).param_bytes + 7) // 8 * 8
    changed = bytearray(plan)
    for kind, at in records(plan):
        if kind is FieldRecord:
            record = FieldRecord.unpack(plan, at)
            if record.name.rstrip(b"\0").decode() == name:
                struct.pack_into("<i", changed, block + record.offset, value)
    return bytes(reseal(changed))


def edited_header(plan: bytes, **members) -> bytes:
    """The plan with other header members; short names are padded."""
    padded = {
        name: value.ljust(PlanHeader.SPANS[name][1], b"\0") if isinstance(value, bytes) else value
        for name, value in members.items()
    }
    return bytes(edited(plan, PlanHeader, 0, **padded))


def name32(text: str) -> bytes:
    return text.encode().ljust(32, b"\0")


def good_bindings() -> dict[str, Binding]:
    """Every operand at an address of its own, 256 bytes apart."""
    from sdm_runtime.inspect import decode

    bound: dict[str, Binding] = {}
    address = 1 << 20
    for plan in decode(cuda_file()).plans:
        for operand in plan.operands:
            if operand.name not in bound:
                bound[operand.name] = Binding(address, operand.extent)
                address += (operand.extent + 511) // 256 * 256
    return bound


def changed_bindings(**changes) -> dict[str, Binding]:
    bound = good_bindings()
    for name, (d_address, d_bytes) in changes.items():
        old = bound[name]
        bound[name] = Binding(old.address + d_address, old.bytes + d_bytes)
    return bound


def overlapping_bindings() -> dict[str, Binding]:
    bound = good_bindings()
    d_u = bound["d_u"]
    return {**bound, "x": Binding(d_u.address + d_u.bytes - 16, bound["x"].bytes)}
