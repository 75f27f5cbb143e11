"""The dtypes that kernels take, by the codes that plans call them."""

from __future__ import annotations

import torch

from sdm_runtime.format.plan_format import Dtype

DTYPE_CODES = {
    torch.float32: Dtype.FLOAT32,
    torch.bfloat16: Dtype.BFLOAT16,
    torch.int32: Dtype.INT32,
    torch.uint8: Dtype.UINT8,
    torch.int64: Dtype.INT64,
    torch.float8_e4m3fn: Dtype.FLOAT8E4M3,
    torch.float64: Dtype.FLOAT64,
    torch.float16: Dtype.FLOAT16,
}

# Values that kernels take from callers as they are; others become float32 first.
KERNEL_DTYPES = (torch.float32, torch.bfloat16)
