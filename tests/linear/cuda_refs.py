"""Operands for launchers that want a GPU's, where none need be there."""

from __future__ import annotations

import torch

from sdm_runtime import _core
from sdm_runtime.tensor.dtypes import DTYPE_CODES


def as_cuda(
    tensor: torch.Tensor,
    *,
    data: int | None = None,
    device: int = 0,
    shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> _core.TensorRef:
    """CPU memory passed off as a device's: nothing reads it."""
    return _core.TensorRef(
        tensor.data_ptr() if data is None else data,
        int(DTYPE_CODES[tensor.dtype]),
        _core.Device(cuda=True, index=device),
        tuple(tensor.shape) if shape is None else shape,
        tensor.stride() if strides is None else strides,
    )
