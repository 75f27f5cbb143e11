"""Tensors between pages that fault: a kernel that reads or writes one byte too far dies at once."""

from __future__ import annotations

import ctypes
import mmap

import torch

_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedTensor:
    """A copy of a tensor that ends (up to 15 bytes of alignment) at a page without access."""

    def __init__(self, tensor: torch.Tensor):
        page = mmap.PAGESIZE
        size = tensor.numel() * tensor.element_size()
        pages = -(-size // page) * page
        self._map = mmap.mmap(-1, pages + 2 * page)  # a page, the data, a page
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for guard in (base, base + page + pages):
            if _libc.mprotect(guard, page, _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")
        padded = -(-size // 16) * 16
        self.start = page + pages - padded
        self.end_of_guard = base + page + pages
        flat = torch.frombuffer(self._map, dtype=torch.uint8, offset=self.start, count=size)
        self.tensor = flat.view(tensor.dtype).view(tensor.shape)
        self.tensor.copy_(tensor)

    def read_past_the_end(self) -> int:
        """The control: what a kernel that leaves its operand would do."""
        return ctypes.c_char.from_address(self.end_of_guard).value[0]
