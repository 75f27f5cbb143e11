"""Tensors as the core takes them: address, dtype, shape, strides, device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from sdm_runtime import _core
from sdm_runtime.plan_format import Dtype

_DTYPES = {
    torch.float32: Dtype.FLOAT32,
    torch.bfloat16: Dtype.BFLOAT16,
    torch.int32: Dtype.INT32,
    torch.uint8: Dtype.UINT8,
    torch.int64: Dtype.INT64,
    torch.float8_e4m3fn: Dtype.FLOAT8E4M3,
    torch.float64: Dtype.FLOAT64,
    torch.float16: Dtype.FLOAT16,
}


@lru_cache(maxsize=64)
def core_device(device: torch.device) -> Any:
    """The core's name for a torch device.

    Raises:
        ValueError: The device is neither the CPU nor a CUDA device.
    """
    if device.type == "cpu":
        return _core.Device(cuda=False, index=0)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return _core.Device(cuda=True, index=index)
    raise ValueError(f"device: expected cpu or cuda, got {device}")


def tensor_ref(name: str, tensor: torch.Tensor) -> Any:
    """A reference to ``tensor`` for the core; the caller keeps the tensor alive.

    Raises:
        TypeError: ``tensor`` is no tensor, or of a dtype that no kernel takes.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    code = _DTYPES.get(tensor.dtype)
    if code is None:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise TypeError(f"{name}: expected one of {names}, got {tensor.dtype}")
    return _core.TensorRef(
        tensor.data_ptr(), code, core_device(tensor.device), tensor.shape, tensor.stride()
    )


def current_stream(device: torch.device) -> int:
    """The address of torch's current stream on ``device``; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)


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
