"""Plan and chain files to bytes: no more of them than their header says. Needs no torch."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sdm_runtime.plan_format import CHAIN_MAGIC, PLAN_MAGIC, ChainHeader, PlanHeader

_TOTALS = {
    magic.to_bytes(8, "little"): header.SPANS["total_bytes"]
    for magic, header in ((PLAN_MAGIC, PlanHeader), (CHAIN_MAGIC, ChainHeader))
}


def starts_with(data: bytes, magic: int) -> bool:
    """Whether a file's bytes are those of a plan (PLAN_MAGIC) or of a chain (CHAIN_MAGIC)."""
    return data[:8] == magic.to_bytes(8, "little")


def read_plan_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes for a decoder: the header, and one byte past what it promises if there are more.

    The decoder then names what is wrong, whatever the file's size.

    Raises:
        FileNotFoundError: There is no such file; as open() raises it.
        OSError: The file cannot be read, or is no regular file (a device or a pipe may never end).
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{os.fspath(path)}: not a regular file")
    with Path(path).open("rb") as file:
        head = file.read(PlanHeader.SIZE)
        span = _TOTALS.get(head[:8])
        if span is None:
            return head
        promised = int.from_bytes(head[span[0] : span[0] + span[1]], "little")
        there = os.fstat(file.fileno()).st_size
        return head + file.read(max(0, min(promised + 1, there) - len(head)))
