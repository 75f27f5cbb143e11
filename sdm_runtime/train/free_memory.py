"""How much memory there is."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import torch

_GIB = 2**30


def free_bytes(device: torch.device) -> int:
    """Return the bytes that a process can still take on a device.

    On the CPU what the system has, swap included, bounded by the limits of the process and of its
    control group.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_system_bytes(), *_limits())


def _system_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    kib = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return 1024 * (kib.get("MemAvailable", kib["MemTotal"]) + kib.get("SwapFree", 0))


def _limits() -> Iterator[int]:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    yield soft if soft != resource.RLIM_INFINITY else 2**63
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        own = path.strip("/")
        if kinds == "":
            files = [root / own / "memory.max", root / "memory.max"]
        elif kinds == "memory":
            old = "memory.limit_in_bytes"
            files = [root / "memory" / own / old, root / "memory" / old]
        else:
            continue
        for file in files:
            text = file.read_text().strip() if file.is_file() else "max"
            yield int(text) if text.isdigit() else 2**63


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation has failed: python's, or torch's on a GPU or on the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def gib(count: int) -> str:
    """Return a number of bytes in GiB, as messages show it."""
    if count >= 10**9 * _GIB:
        return "more than 1,000,000,000"
    return f"{count / _GIB:,.1f}" if count < 100 * _GIB else f"{count // _GIB:,}"
