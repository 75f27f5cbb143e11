"""The planted faults: how each is made, what verify is told, and what it must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from inspect_cases import (
    FACTS,
    GDS,
    GEMM,
    GWR,
    IMAGE,
    PA2,
    UUID,
    chain_file,
    changed_bindings,
    cuda_file,
    cuda_plans,
    edited_header,
    edited_patch,
    edited_reloc,
    good_bindings,
    host_plans,
    name32,
    overlapping_bindings,
    set_field,
    with_plan,
    without_reloc,
)

from sdm_runtime.inspect.verify.bindings import Binding
from sdm_runtime.inspect.verify.device import DeviceFacts


@dataclass
class Fault:
    """A planted fault and the finding that it must give."""

    name: str
    make: Callable[[], bytes]
    level: str
    check: str
    says: str
    options: dict = field(default_factory=dict)  # of verify, made when needed
    also: frozenset[str] = frozenset()  # other errors that follow from it

    def __str__(self) -> str:
        return self.name


def host(index: int, edit: Callable[..., bytes], *args, **members) -> Callable[[], bytes]:
    """The host chain with one plan edited."""
    return lambda: with_plan(host_plans(), index, edit(host_plans()[index], *args, **members))


def cuda(index: int, edit: Callable[..., bytes], *args, **members) -> Callable[[], bytes]:
    """The CUDA chain with one plan edited."""
    return lambda: with_plan(cuda_plans(), index, edit(cuda_plans()[index], *args, **members))


def seven_steps() -> bytes:
    """gx_gemm says that it covers seven steps; its operands have five."""
    longer = edited_header(edited_patch(host_plans()[GEMM], highest=8), steps=7)
    return with_plan(host_plans(), GEMM, longer)


def on_old_device() -> bytes:
    return chain_file([edited_header(plan, capability_major=8) for plan in cuda_plans()])


def no_wait() -> DeviceFacts:
    return DeviceFacts(FACTS.source, FACTS.image_of, {**FACTS.waits, "gx_pa2_bf16": False})


def without_x() -> dict[str, Binding]:
    return {name: bound for name, bound in good_bindings().items() if name != "x"}


OVERLAPS = [
    Fault(
        "two pointers into one written operand",
        host(
            GDS,
            edited_reloc,
            "gy",
            operand=name32("dq"),
            extent=128,
            offset=0,
            step_stride=0,
            step_bytes=0,
        ),
        "error",
        "overlap",
        "'gy' and 'dq' both point into 'dq' and share its bytes 0..128",
        also=frozenset({"operands"}),
    ),
    Fault(
        "steps that overwrite each other",
        host(GWR, edited_reloc, "d_dv", step_stride=1024),
        "error",
        "overlap",
        "every step writes 2048 bytes, the next one starts 1024 bytes on",
    ),
    Fault(
        "overlapping addresses",
        cuda_file,
        "error",
        "overlap",
        "'d_u' and 'x' share 16 bytes of memory",
        {"bindings": overlapping_bindings},
    ),
]

EXTENTS = [
    Fault(
        "a patch past the extent in the last step",
        host(GEMM, edited_patch, base=1, highest=5),
        "error",
        "extent",
        "step 4 alone of 5 leaves 'd_u': step 4 touches bytes 10240..12288",
    ),
    Fault(
        "a plan of more steps than its operands have",
        seven_steps,
        "error",
        "extent",
        "steps 5..6 of 7 leaves 'x'",
    ),
    Fault(
        "a clamp that its field cannot hold",
        host(GEMM, edited_patch, highest=1 << 40),
        "error",
        "patch",
        "its clamp leaves int32",
    ),
    Fault(
        "parameters that reach past their operands",
        host(GEMM, set_field, "hd", 65),
        "error",
        "executor",
        "this build refuses it",
    ),
]

LAUNCHES = [
    Fault(
        "PDL asked of a kernel without a wait",
        cuda_file,
        "error",
        "pdl",
        "'gx_pa2_bf16' has no wait",
        {"facts": no_wait},
    ),
    Fault(
        "PDL on a device that has none",
        on_old_device,
        "error",
        "pdl",
        "programmatic launch on cuda 8.0",
    ),
    Fault(
        "PDL of a kernel that nothing is known of",
        cuda_file,
        "unknown",
        "pdl",
        "whether 'gx_gwr_bf16' waits is not known here",
        {"facts": lambda: None},
    ),
    Fault(
        "one kernel without PDL among others with it",
        cuda(PA2, edited_header, flags=0),
        "warning",
        "pdl",
        "launched without PDL in a chain that has it",
    ),
    Fault(
        "a block that no device can launch",
        cuda(GWR, edited_header, block=(64, 32, 1)),
        "error",
        "geometry",
        "block 64 x 32 has 2048 threads, expected 1..1024",
    ),
    Fault(
        "a grid that its cluster does not divide",
        cuda(GWR, edited_header, cluster=(3, 1, 1)),
        "error",
        "geometry",
        "cluster 3 does not divide grid 8 x 2",
    ),
    Fault(
        "a host plan with shared memory",
        host(GWR, edited_header, shared_bytes=64),
        "error",
        "host",
        "a host plan that names shared memory",
    ),
]

IDENTITIES = [
    Fault(
        "another build's image",
        cuda(GDS, edited_header, image_hash=IMAGE[::-1]),
        "error",
        "image",
        "recorded with image 1f1e1d1c1b1a1918.., this build's 'gx_gds_bf16'",
    ),
    Fault(
        "a device function that this build lacks",
        cuda(GDS, edited_header, entry=b"gx_old", flags=0),
        "error",
        "image",
        "this build has no device function 'gx_old'",
    ),
    Fault(
        "a plan of another device",
        cuda(PA2, edited_header, device_uuid=UUID[::-1]),
        "error",
        "device",
        "recorded on cuda 9.0 GPU-100f0e0d",
    ),
    Fault(
        "not the device that was asked for",
        cuda_file,
        "error",
        "device",
        "not on GPU-ffffffff",
        {"device_uuid": lambda: "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff"},
    ),
    Fault(
        "a host plan among CUDA plans",
        lambda: with_plan(cuda_plans(), GEMM, host_plans()[GEMM]),
        "error",
        "device",
        "a host plan in a cuda chain",
    ),
    Fault(
        "plans of two shapes in one chain",
        lambda: with_plan(host_plans(), GEMM, host_plans(steps=6)[GEMM]),
        "error",
        "operands",
        "no tensor is both. Plans of two shapes in one chain?",
    ),
    Fault(
        "a plan of fewer steps than the chain",
        lambda: chain_file(list(host_plans()), steps=6),
        "error",
        "steps",
        "covers 5 steps, the chain has 6",
    ),
]

OPERANDS = [
    Fault(
        "a pointer without an operand",
        host(PA2, without_reloc, "rec"),
        "error",
        "unbound",
        "pointer 'records' has no operand",
    ),
    Fault(
        "an operand that is not bound",
        cuda_file,
        "error",
        "unbound",
        "operand 'x' is not bound",
        {"bindings": without_x},
    ),
    Fault(
        "an operand whose memory was freed",
        cuda_file,
        "error",
        "unbound",
        "operand 'x' is bound to null: its memory was freed",
        {"bindings": lambda: {**good_bindings(), "x": Binding(0, 640)}},
    ),
    Fault(
        "an operand of another size",
        cuda_file,
        "error",
        "bindings",
        "'x': expected 640 bytes, bound to 576",
        {"bindings": lambda: changed_bindings(x=(0, -64))},
    ),
    Fault(
        "an operand of another dtype",
        cuda_file,
        "error",
        "bindings",
        "'x': expected float32, bound to int32",
        {"bindings": lambda: {**good_bindings(), "x": Binding(1 << 30, 640, "int32")}},
    ),
    Fault(
        "an operand off its alignment",
        cuda_file,
        "error",
        "alignment",
        "'x' is at an address with remainder 8",
        {"bindings": lambda: changed_bindings(x=(8, 0))},
    ),
    Fault(
        "elements that lie across their alignment",
        host(GEMM, edited_reloc, "x", align_log2=1),
        "error",
        "alignment",
        "operand 'x' is aligned to 2, its float32 elements take 4 bytes",
    ),
    Fault(
        "a row recorded with 2 bytes where 16 were possible",
        cuda(PA2, edited_reloc, "bank", align_log2=1),
        "warning",
        "alignment",
        "operand 'bank' was recorded with an alignment of 2",
    ),
    Fault(
        "a row recorded with 4 bytes where 16 were possible",
        cuda(GEMM, edited_reloc, "d_u", align_log2=2),
        "warning",
        "alignment",
        "operand 'd_u' was recorded with an alignment of 4",
    ),
]

FAULTS = [*OVERLAPS, *EXTENTS, *LAUNCHES, *IDENTITIES, *OPERANDS]
