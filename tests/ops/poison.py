"""Memory that was freed, filled: what still reads or writes it shows.

Torch's allocator keeps what is freed, so a run on freed memory usually finds its old contents.
"""

from __future__ import annotations

import gc

import torch

BYTE = 0xFF  # NaN as float32 and bfloat16, -1 as an index
PIECES = (512, 2 << 20)  # bytes: the smallest block of the allocator's small pool, of its large one


class Poison:
    """All that the allocator has free for the current stream, filled with BYTE and held.

    The smaller of the two pools is filled to the last byte; in the larger one, gaps of less than
    two MiB stay.
    """

    def __init__(self):
        gc.collect()  # what only a cycle holds is free as well
        self._held = [tensor for piece in PIECES for tensor in _take_all(piece)]
        for tensor in self._held:
            tensor.fill_(BYTE)
        torch.cuda.synchronize()

    def covers(self, address: int, size: int) -> bool:
        """Whether all these bytes were free."""
        return covered(address, size, [(t.data_ptr(), t.numel()) for t in self._held])

    def intact(self) -> bool:
        """Whether nobody has written to it since."""
        return bool((torch.cat(self._held) == BYTE).all())


def covered(address: int, size: int, spans: list[tuple[int, int]]) -> bool:
    """Whether spans that do not overlap hold all bytes of ``address .. address + size``."""
    end = address + size
    shared = (min(end, start + count) - max(address, start) for start, count in spans)
    return sum(max(0, count) for count in shared) == size


def _take_all(piece: int) -> list[torch.Tensor]:
    """Pieces, until the allocator had to ask the device for more memory."""
    taken = []
    reserved = torch.cuda.memory_reserved()
    while torch.cuda.memory_reserved() == reserved:
        taken += [torch.empty(piece, dtype=torch.uint8, device="cuda") for _ in range(16)]
    return taken


def live_blocks() -> dict[int, int]:
    """The allocator's blocks in use, bytes by address."""
    return {
        block["address"]: block["size"]
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }


class _Memory:
    def __init__(self, address: int, size: int):
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def bytes_at(address: int, size: int) -> torch.Tensor:
    """The device's memory there, uint8 ``[size]``; nobody is kept alive."""
    return torch.as_tensor(_Memory(address, size), device="cuda")
