"""CUDA plans without a GPU: host plans with the header of a CUDA plan."""

import struct
import zlib
from dataclasses import replace

import torch
from core_testing import core_testing

from sdm_runtime import _core, kernels
from sdm_runtime.format.plan_format import Backend, PlanHeader

# Device functions of the tests: (name, the kernel whose parameters it takes, waits).
DEVICE_CODE = (
    ("gemm_waits", "gx_gemm", True),
    ("gemm_never_waits", "gx_gemm", False),
    ("pa2_waits", "gx_pa2", True),
    ("wrong_parameters", "gx_gemm", True),
    ("many_registers", "gx_gemm", True),
    ("only_newest", "gx_gemm", True),
    ("loaded_once", "gx_gemm", True),
)
STEPS, P, C, HD = 3, 2, 16, 8
PTX, MACHINE_CODE = 1, 2


def part(kind, capability, payload=b"payload "):
    """One part of a fat binary."""
    header = struct.pack("<HHIQIIHHI", kind, 257, 64, len(payload), 0, 0, 0, 0, capability)
    return header.ljust(64, b"\0") + payload


def fat_binary(*parts):
    body = b"".join(parts)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def write_image(path):
    """A fat binary for compute capability 8.0 and later; all that the fake driver looks at."""
    parts = [part(PTX, 90), part(MACHINE_CODE, 90), part(MACHINE_CODE, 80)]
    if path.stem != "only_newest":
        parts.append(part(PTX, 80))
    image = fat_binary(*parts)
    path.write_bytes(image)
    return image


def gemm_tensors(steps=STEPS):
    n = steps * P
    return {"d_u": torch.zeros(n, C, HD), "x": torch.zeros(n, C, C), "d_dv": torch.zeros(n, C, HD)}


def host_plan(kernel, steps=STEPS):
    """The core's plan of a kernel, recorded on the host; gx_gemm's over any number of steps."""
    if kernel == "gx_gemm":
        plan = kernels.plan_gx_gemm(**gemm_tensors(steps), steps=steps, num_parallel=P)
        return plan._core
    w, n = 2, STEPS * P
    entries = torch.zeros(n, C * w, dtype=torch.int32)
    plan = kernels.plan_gx_pa2(
        grad=torch.zeros(4, HD),
        bank=torch.zeros(4, HD),
        snap=torch.zeros(n * C * w, HD),
        d_u=torch.zeros(n * C, HD),
        beta=torch.zeros(n * C),
        kpay=entries,
        rec=torch.zeros(n, C * w, 4, dtype=torch.int32),
        out_eff=torch.zeros(n * C * w),
        out_g=torch.zeros(n * C * w),
        steps=STEPS,
        num_parallel=P,
        chunk_size=C,
        num_writes=w,
        bpre=torch.zeros(n, (C * w + 31) // 32 + 1, dtype=torch.int32),
    )
    return plan._core


def uuid(device):
    """The fake driver's identity of a device."""
    return bytes([0x10 + device]) * 16


def cuda_plan(
    folder,
    entry="gemm_waits",
    *,
    steps=STEPS,
    device=0,
    capability=(9, 0),
    entry_name=None,
    **header,
):
    """A plan of `entry` for a device, decoded. `header` replaces more of its members."""
    kernel = next(kernel for name, kernel, _ in DEVICE_CODE if name == entry)
    data = bytearray(host_plan(kernel, steps).bytes())
    members = {
        "backend": int(Backend.CUDA),
        "entry": entry_name or entry.encode(),
        "grid": (5, 1, 1),
        "block": (128, 1, 1),
        "image_hash": core_testing().sha256((folder / f"{entry}.fatbin").read_bytes()),
        "device_uuid": uuid(device),
        "capability_major": capability[0],
        "capability_minor": capability[1],
        **header,
    }
    data[: PlanHeader.SIZE] = replace(PlanHeader.unpack(data), **members).pack()
    struct.pack_into("<I", data, PlanHeader.SPANS["checksum"][0], zlib.crc32(data[12:]))
    return _core.Plan.decode(bytes(data))


def operands(tensors, device=0):
    """The core's operands: CPU memory passed off as a device's. The fake driver never reads it."""
    core_device = _core.Device(cuda=True, index=device)
    codes = {torch.float32: 1, torch.int32: 3}
    return [
        (
            name,
            _core.TensorRef(
                tensor.data_ptr(), codes[tensor.dtype], core_device, tensor.shape, tensor.stride()
            ),
        )
        for name, tensor in tensors.items()
    ]


def gemm_params(tensors, step):
    """GxGemmParams as bytes: what a launch of a step must carry."""
    pointers = [tensors[name].data_ptr() for name in ("d_u", "x", "d_dv")]
    return struct.pack("<QQQiiii", *pointers, step, P, C, HD)
