"""Tensors as the core takes them: address, dtype, shape, strides, device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch

from sdm_runtime import _core
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.dtypes import DTYPE_CODES
from sdm_runtime.tensor.words import dtype_word, layout_word

READER = _core.TensorReader(
    torch.strided, {dtype: int(code) for dtype, code in DTYPE_CODES.items()}
)
_read = READER.read  # a reference, or None for a tensor that no kernel takes: _refuse says why


def tensor_ref(name: str, tensor: torch.Tensor) -> _core.TensorRef:
    """A reference to ``tensor`` for the core; the caller keeps the tensor alive.

    Args:
        name: What messages call the tensor: ``"[kernel] argument"``.
        tensor: Dense, on the CPU or a CUDA device, its values in memory as they are read.

    Raises:
        TypeError: ``tensor`` is not a dense tensor, wraps others without memory of its own, or has
            a dtype that no kernel takes.
        ValueError: It is on another device, or its memory does not hold its elements.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    ref = _read(tensor)
    if ref is None:
        _refuse(name, tensor)
    return ref


def operand_refs(
    operands: dict[str, torch.Tensor], where: str = "", arenas: Sequence[Arena] = ()
) -> _core.Operands:
    """References to all of them by name, read at once. Raises as :func:`tensor_ref`.

    Args:
        operands: By name; the caller keeps the tensors alive.
        where: What messages put before a name: ``"[chain] bind "``.
        arenas: More operands; each arena's memory is read as one tensor. The caller keeps it alive.
    """
    refs = READER.read_all(operands, [(arena.memory, arena.layout.core) for arena in arenas])
    if refs is None:
        for name, tensor in operands.items():
            tensor_ref(where + name, tensor)
        for arena in arenas:
            tensor_ref(where + ", ".join(arena.layout.operands), arena.memory)
        raise RuntimeError(f"{where}operands: expected tensors to read, got some that changed")
    return refs


def _refuse(name: str, tensor: torch.Tensor) -> NoReturn:
    """Raise what tensor_ref raises for a tensor that cannot be read."""
    if layout := layout_word(tensor):
        raise TypeError(f"{name}: expected a dense tensor, got {layout}")
    if tensor.dtype not in DTYPE_CODES:
        names = ", ".join(map(dtype_word, DTYPE_CODES))
        raise TypeError(f"{name}: expected one of {names}, got {tensor.dtype}")
    if not (tensor.is_cuda or tensor.is_cpu):
        raise ValueError(f"{name}: expected a tensor on cpu or cuda, got one on {tensor.device}")
    check_memory(name, tensor)
    raise TypeError(
        f"{name}: expected a tensor that is its memory, got a {type(tensor).__name__} that has "
        "none to read"
    )


def extent_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the end of the last element of a dense tensor."""
    if tensor.is_contiguous():
        return tensor.nbytes
    if not tensor.numel():
        return 0
    spans = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * step for size, step in spans)) * tensor.element_size()


def plan_memory(tensor: torch.Tensor) -> torch.Tensor:
    """What a plan is bound to for ``tensor``: it, or its memory from the first to the last element.

    For kernels that take strides. The strides are the plan's; a tensor that is bound has none.
    """
    if tensor.is_contiguous():
        return tensor
    elements = extent_bytes(tensor) // tensor.element_size()
    return tensor.detach().as_strided((elements,), (1,))


def check_memory(name: str, tensor: torch.Tensor) -> None:
    """The core reads raw memory: it must be there, and hold the values that torch shows.

    Raises:
        TypeError: ``tensor`` redefines torch's operations (a fake tensor, a distributed one),
            belongs to functionalization, or is a zero tensor, which has no memory.
        ValueError: ``tensor`` (dense) is a negating view, or its storage was made too small.
    """
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise TypeError(
            f"{name}: expected a tensor that is its memory, got a {type(tensor).__name__}, which "
            "gives operations a meaning of its own"
        )
    if torch._is_functional_tensor(tensor):
        raise TypeError(
            f"{name}: expected a tensor that is its memory, got one inside of functionalization, "
            "which stands for another"
        )
    if tensor._is_zerotensor():
        raise TypeError(
            f"{name}: expected a tensor that is its memory, got a zero tensor, which has none: "
            "use torch.zeros_like()"
        )
    if tensor.is_neg():
        raise ValueError(
            f"{name}: expected values as they are in memory, got a view that negates them: "
            "use resolve_neg()"
        )
    if not tensor.numel():
        return  # wherever an empty view begins, nothing of it is read
    needed = tensor.storage_offset() * tensor.itemsize + extent_bytes(tensor)
    held = tensor.untyped_storage().nbytes()
    if held < needed:
        raise ValueError(
            f"{name}: expected a storage of {needed} bytes, got {held} bytes: it was resized"
        )


def capturing(device: torch.device) -> bool:
    """Whether torch's current stream of a CUDA device is being captured."""
    # As torch.cuda.current_device, which asks first whether CUDA is initialized: a backward waits.
    if device.index == torch._C._cuda_getDevice():
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def current_stream(device: torch.device) -> int:
    """The address of torch's current stream on ``device``; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    index = torch.cuda.current_device() if device.index is None else device.index
    # What torch.cuda.current_stream makes its object of; a backward asks before its first launch.
    return torch._C._cuda_getCurrentRawStream(index)


def stream_address(device: torch.device, stream: torch.cuda.Stream | int | None) -> int:
    """The address of ``stream``; of torch's current stream on ``device`` for None."""
    if stream is None:
        return current_stream(device)
    return stream if isinstance(stream, int) else int(stream.cuda_stream)


def external_stream(device: torch.device, address: int) -> torch.cuda.Stream:
    """torch's view of the stream at ``address``; 0 is the device's default stream."""
    if not address:
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(address, device)  # type: ignore[no-untyped-call]
