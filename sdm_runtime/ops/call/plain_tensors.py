"""Tensors whose memory the operation can use: dense, untransformed, apart from the bank."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdm_runtime.tensor.refs import READER, check_memory, extent_bytes
from sdm_runtime.tensor.transforms import has_tangent, may_transform
from sdm_runtime.tensor.words import layout_word

_OP = "sdm_write_read"


def check_plain(name: str, x: Tensor) -> None:
    """Raise unless x is a dense tensor with values in memory, outside of torch's transforms.

    Kernels and out= operations would drop a tangent or a batch dimension without a word, or fail
    when the bank has already advanced.

    Raises:
        TypeError: x is sparse or nested, or wrapped by torch.func.
        ValueError: x has a forward-mode tangent, negates its memory, or has lost it.
    """
    check_untransformed(name, x)
    if x.device.type in ("cpu", "cuda"):
        check_memory(f"[{_OP}] {name}", x)


def are_plain(tensors: dict[str, Tensor]) -> bool:
    """Whether check_plain would pass all of them, asked at once: as in nearly every call.

    Only of ordinary tensors; what it does not know is no.
    """
    if may_transform():
        return False
    for x in tensors.values():
        if type(x) is not Tensor and type(x) is not nn.Parameter:
            return False
    return READER.read_all(tensors, []) is not None


def check_untransformed(name: str, x: Tensor) -> None:
    """The same of tensors that may have no memory: fake ones, and a tracer's."""
    if layout := layout_word(x):
        raise TypeError(f"[{_OP}] {name}: expected a dense tensor, got {layout}")
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        raise TypeError(
            f"[{_OP}] {name}: expected a tensor outside of torch.func (the operation has a "
            "backward of its own and no rules for vmap, grad or jvp), got one inside"
        )
    if has_tangent(x):
        raise ValueError(
            f"[{_OP}] {name}: expected no tangent (there is no forward-mode derivative), got one"
        )


def check_apart(memory: Tensor, name: str, x: Tensor) -> None:
    """Raise ValueError when x lies in the bank's memory, which changes while x is still read.

    By addresses: two storages may lie over one memory, as torch.from_numpy makes them. A tensor
    without elements lies nowhere. What the system maps at two addresses is not seen.
    """
    first, bank = x.data_ptr(), memory.data_ptr()
    if first >= bank:
        over = first < bank + memory.nbytes  # one that is not contiguous is refused anyway
    else:  # the storage's end is sooner found than the last element's
        over = bank < first + x.untyped_storage().nbytes() and bank < first + extent_bytes(x)
    if over and x.numel() and memory.numel():
        raise ValueError(f"[{_OP}] {name}: expected memory apart from the bank, got a part of it")
