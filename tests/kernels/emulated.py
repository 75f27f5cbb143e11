"""The step kernels' device code on the CPU: built once per process, by ctypes.

``launch`` runs a device function and ``twin`` the host twin of its kernel, in place.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import struct
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from gen import device_instances as generator

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "emulation"

# plancap::FieldType: the formats of its values; an opaque struct is given as its int32 parts.
FORMATS = {1: "<Q", 8: "<q", 10: "<f"}
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fopenmp", "-ffp-contract=off", "-DSDM_NO_MULTIVERSION"]
FLAGS += ["-Wno-unknown-pragmas", f"-I{FOLDER}", f"-I{ROOT / 'csrc'}"]
TABLE = """\
#include "emulated_kernels.h"
{includes}
namespace emulation {{
namespace {{
constexpr EmulatedKernel kKernels[] = {{
{rows}
}};
}}  // namespace
const std::span<const EmulatedKernel> kEmulatedKernels = kKernels;
}}  // namespace emulation
"""
ROW = '    {{"{entry}", [](const void* p) {{ {entry}(*static_cast<const sdm::{params}*>(p)); }}}},'


@dataclass(frozen=True)
class Launch:
    """A device function, its grid and block (x, y, z), and a block's dynamic shared bytes."""

    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int


def sources_hash() -> str:
    """Of everything that goes into the library."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    folders = [ROOT / "csrc", FOLDER]
    for path in [Path(__file__), *sorted(p for f in folders for p in f.rglob("*.*"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def compile_library(build: Path) -> Path:
    """Compiles the device functions, the emulation and the host twins into one library."""
    library = build / f"emulation_{sources_hash()[:16]}.so"
    if library.exists():
        return library
    build.mkdir(parents=True, exist_ok=True)
    instances = generator.instances()
    table = build / "table.cpp"
    table.write_text(
        TABLE.format(
            includes="\n".join(f'#include "{i.path}"' for i in instances),
            rows="\n".join(ROW.format(**vars(i)) for i in instances),
        )
    )
    csrc = ROOT / "csrc"
    folders = [csrc / "kernels/common/launch", csrc / "kernels/step"]
    folders += sorted({i.path.parent.parent for i in instances})
    emulated = [table, FOLDER / "emulation.cpp"]
    sources = [*emulated, FOLDER / "library.cpp"]
    sources += [p for folder in folders for p in sorted(folder.glob("*.cpp"))]
    sources += sorted(p for p in (csrc / "plancap").glob("*/*.cpp") if p.parent.name != "cuda")

    def compile_one(source: Path) -> Path:
        target = build / f"{source.parent.name}_{source.stem}.o"
        front = ["-include", "cuda_emulation.h"] if source in emulated else []
        command = ["g++", *FLAGS, *front, "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, sources))
    link = ["g++", "-shared", "-fopenmp", *map(str, objects), "-o"]
    subprocess.run([*link, str(library)], check=True)
    return library


class Emulation:
    """The loaded library."""

    def __init__(self, library: Path) -> None:
        self._lib = ctypes.CDLL(str(library))
        self._lib.emulation_error.restype = ctypes.c_char_p
        self._layouts = {k: self._layout(k) for k in {i.kernel for i in generator.instances()}}

    def _layout(self, kernel: str) -> tuple[int, dict[str, tuple[int, int]]]:
        fields: dict[str, tuple[int, int]] = {}
        name = ctypes.c_char_p()
        kind, offset, size = ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_uint32()
        out = [ctypes.byref(v) for v in (name, kind, offset, size)]
        while self._lib.kernel_field(kernel.encode(), len(fields), *out):
            assert name.value is not None
            fields[name.value.decode()] = (kind.value, offset.value)
        return size.value, fields

    def _block(self, kernel: str, values: dict) -> ctypes.Array[ctypes.c_char]:
        size, fields = self._layouts[kernel]
        block = bytearray(size)
        for name, value in values.items():
            kind, offset = fields[name]
            number = value.data_ptr() if isinstance(value, torch.Tensor) else value
            parts = number if isinstance(number, Sequence) else (number,)
            code = FORMATS.get(kind, f"<{len(parts)}i")
            struct.pack_into(code, block, offset, *parts)
        return ctypes.create_string_buffer(bytes(block), size)

    def _check(self, status: int, what: str) -> None:
        if status:
            raise RuntimeError(f"{what}: {self._lib.emulation_error().decode()}")

    def chosen(self, kernel: str, values: dict, sm_count: int = 132, pass_: str = "") -> Launch:
        """The launch that the kernel's geometry chooses for a device of that many SMs.

        ``pass_``: which launch, of a kernel that takes several.
        """
        entry = ctypes.create_string_buffer(96)
        sizes = (ctypes.c_uint32 * 7)()
        block = self._block(kernel, values)
        name = (kernel + pass_).encode()
        self._check(self._lib.choose(name, block, sm_count, entry, sizes), kernel)
        return Launch(entry.value.decode(), tuple(sizes[:3]), tuple(sizes[3:6]), sizes[6])

    def launch(self, kernel: str, launch: Launch, values: dict, backwards: bool = False) -> None:
        """Runs a device function, its blocks in order or the last one first."""
        sizes = (ctypes.c_uint32 * 7)(*launch.grid, *launch.block, launch.shared_bytes)
        block = self._block(kernel, values)
        status = self._lib.emulate(launch.entry.encode(), block, sizes, backwards)
        self._check(status, launch.entry)

    def twin(self, kernel: str, values: dict, pass_: str = "") -> None:
        """Runs the kernel's host twin."""
        name = (kernel + pass_).encode()
        self._check(self._lib.run_twin(name, self._block(kernel, values)), kernel)


@functools.cache
def emulation() -> Emulation:
    """The emulation, compiled into build/emulation."""
    return Emulation(compile_library(ROOT / "build" / "emulation"))
