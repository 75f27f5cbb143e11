"""A host twin made to read one float past a tensor: what the sanitized build must find."""

from __future__ import annotations

import torch

from sdm_runtime import _core
from sdm_runtime.format.plan_format import Dtype
from sdm_runtime.tensor.refs import tensor_ref

planes, out = torch.ones(1, 15), torch.ones(16)
cpu = _core.Device(cuda=False, index=0)
one_too_long = _core.TensorRef(planes.data_ptr(), Dtype.FLOAT32, cpu, (1, 16), (16, 1))
_core.plane_reduce(one_too_long, tensor_ref("out", out), None, False, 1, 16, 1, 16, 0)
