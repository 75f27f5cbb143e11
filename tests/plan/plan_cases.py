"""Real plans and a real chain on small operands, and ways to damage their bytes on purpose."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import torch
from kernel_cases import (
    Shape,
    gds_case,
    gemm_case,
    gwr_case,
    pa2_case,
    read_case,
    snapshot_rows,
    write_case,
)

from sdm_runtime import Plan, StepChain, kernels
from sdm_runtime.format.plan_format import (
    ChainEntry,
    ChainHeader,
    FieldRecord,
    PatchRecord,
    PlanHeader,
    RelocRecord,
)
from sdm_runtime.format.records import Record, text

SHAPE = Shape(hd=36, sequences=2, chunk=4, writes=3, reads=2, steps=3)
ORDER = ("gx_gwr", "gx_gemm", "gx_pa2", "gx_gds")


def chain_operands(shape: Shape = SHAPE) -> dict[str, torch.Tensor]:
    """The operands of the four-kernel chain, by name, and ``kpay``, which no launch reads."""
    gwr, gemm, pa2, gds = (case(shape)[0] for case in (gwr_case, gemm_case, pa2_case, gds_case))
    shared = ("grad", "bank", "d_u")
    own = {name: tensor for name, tensor in gds.items() if name not in shared}
    return {**gwr, "x": gemm["x"], "d_u": gemm["d_u"], **without(pa2, "grad", "d_u"), **own}


def without(tensors, *names):
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def few_rows(shape: Shape) -> dict[str, Any]:
    """What snapshots of fewer rows than entries are recorded with."""
    return {"snap_chunk_rows": snapshot_rows(shape)} if shape.few_rows else {}


def chain_plans(operands: dict[str, torch.Tensor], shape: Shape = SHAPE) -> list[Plan]:
    """gx_gwr, gx_gemm, gx_pa2 and gx_gds recorded on shared operands, in the order of a step."""
    sizes: dict[str, Any] = {"num_parallel": shape.sequences, "steps": shape.steps}
    chunked = {**sizes, "chunk_size": shape.chunk}
    o = operands

    def pick(*names: str) -> dict[str, Any]:
        return {name: o[name] for name in names if name in o}

    pa2 = pick("grad", "bank", "snap", "d_u", "beta", "kpay", "rec", "out_eff", "out_g")
    layout = pick("bpre", "scales") | few_rows(shape)
    return [
        kernels.plan_gx_gwr(
            **pick("grad", "delta", "pd", "slots", "d_dv", "dpd"),
            **chunked,
            num_tokens=shape.tokens,
        ),
        kernels.plan_gx_gemm(**pick("d_u", "x", "d_dv"), **sizes),
        kernels.plan_gx_pa2(**pa2, **layout, **chunked, num_writes=shape.writes),
        kernels.plan_gx_gds(
            **pick("grad", "bank", "gy", "qrec", "dq"), **chunked, num_reads=shape.reads
        ),
    ]


def forward_operands(shape: Shape = SHAPE) -> dict[str, torch.Tensor]:
    """The operands of the forward's chain by name; delta goes by gx_gemm's, d_u."""
    read, gemm, write = (case(shape)[0] for case in (read_case, gemm_case, write_case))
    return {**read, "d_u": gemm["d_u"], "x": gemm["x"], **without(write, "bank", "delta")}


def forward_plans(operands: dict[str, torch.Tensor], shape: Shape = SHAPE) -> list[Plan]:
    """fx_read, gx_gemm and fx_write recorded on shared operands, in the order of a step."""
    o = operands
    sizes: dict[str, Any] = {"num_parallel": shape.sequences, "steps": shape.steps}
    chunked = {**sizes, "chunk_size": shape.chunk, "num_writes": shape.writes}
    names = ("bank", "v", "row_weights", "residual", "reading")
    answers: dict[str, Any] = {name: o[name] for name in names}
    kept: dict[str, Any] = {name: o[name] for name in ("snap", "bpre") if name in o}
    kept |= few_rows(shape)
    return [
        kernels.plan_fx_read(**answers, **chunked, num_tokens=shape.tokens),
        kernels.plan_gx_gemm(o["d_u"], o["x"], o["residual"], **sizes),
        kernels.plan_fx_write(o["bank"], o["d_u"], o["updates"], **kept, **chunked),
    ]


def sample_chain(shape: Shape = SHAPE) -> tuple[StepChain, dict[str, torch.Tensor]]:
    operands = chain_operands(shape)
    chain = StepChain(chain_plans(operands, shape), shape.steps)
    return chain, without(operands, "kpay")


def plan_bytes(plan: Plan) -> bytearray:
    return bytearray(plan.tensor.numpy().tobytes())


def from_bytes(data) -> Plan:
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0).byte()
    return Plan.from_tensor(flat)


def reseal(data) -> bytearray:
    """The same bytes with the checksum that belongs to them."""
    sealed = bytearray(data)
    at, size = PlanHeader.SPANS["checksum"]
    sealed[at : at + size] = zlib.crc32(sealed[at + size :]).to_bytes(4, "little")
    return sealed


def records(data, base: int = 0) -> list[tuple[type[Record], int]]:
    """(record class, byte) of every record of a plan that starts at byte ``base``."""
    header = PlanHeader.unpack(data, base)
    found: list[tuple[type, int]] = [(PlanHeader, base)]
    at = base + PlanHeader.SIZE
    for kind, count in (
        (FieldRecord, header.num_fields),
        (PatchRecord, header.num_patches),
        (RelocRecord, header.num_relocs),
    ):
        found += [(kind, at + i * kind.SIZE) for i in range(count)]
        at += count * kind.SIZE
    return found


def chain_records(data) -> list[tuple[type[Record], int]]:
    """(record class, byte) of a chain's own records; its plans are at the entries' offsets."""
    header = ChainHeader.unpack(data)
    size = ChainHeader.SIZE
    return [
        (ChainHeader, 0),
        *((ChainEntry, size + i * ChainEntry.SIZE) for i in range(header.num_plans)),
    ]


def edited(data, kind: type[Record], at: int, **members) -> bytearray:
    """A copy with some members of one record replaced, resealed."""
    changed = bytearray(data)
    changed[at : at + kind.SIZE] = replace(kind.unpack(changed, at), **members).pack()
    return reseal(changed)


def find_reloc(data, operand: str) -> int:
    """The byte of an operand's relocation."""
    for kind, at in records(data):
        if kind is RelocRecord and text(RelocRecord.unpack(data, at).operand) == operand:
            return at
    raise KeyError(operand)


def params_offset(data) -> int:
    """The byte at which the parameter block starts."""
    return len(data) - (PlanHeader.unpack(data).param_bytes + 7) // 8 * 8
