"""What the GPU tests share."""

from __future__ import annotations

import pytest
import torch

from sdm_runtime import runtime

NEEDS_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(runtime.backends()["cuda"] is not True, reason="no CUDA backend here"),
]


def on_gpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.cuda() for name, tensor in tensors.items()}


def on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}
