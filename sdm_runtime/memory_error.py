"""The exception for a device without memory, which is torch's as well."""

from __future__ import annotations

import torch

from sdm_runtime.errors import CudaError


class CudaOutOfMemoryError(CudaError, torch.OutOfMemoryError):
    """A CUDA driver or BLAS call found no memory; what catches torch's own such errors catches it.

    torch's allocator may hold memory that it does not use: ``torch.cuda.empty_cache()``.
    """
