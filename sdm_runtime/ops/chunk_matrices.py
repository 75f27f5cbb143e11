"""The chunk's triangular system: X, and the products that use it (spec section 2)."""

from __future__ import annotations

import torch
from torch import Tensor


def unit_inverse(a: Tensor, beta: Tensor) -> Tensor:
    """X = (I + diag(beta) A)^-1 for strictly lower A [N, C, C] and beta [N, C, 1], f32."""
    chunk = a.shape[1]
    eye = torch.eye(chunk, dtype=a.dtype, device=a.device)
    system = beta * a + eye
    x: Tensor = torch.linalg.solve_triangular(
        system, eye.expand_as(a), upper=False, unitriangular=True
    )
    # The kernels and the step views need one contiguous matrix per chunk.
    return x.contiguous()


def scaled_transpose(x: Tensor, beta: Tensor) -> Tensor:
    """X diag(beta) of x [N, C, C] and beta [N, C, 1], transposed, as gx_gemm takes it."""
    return torch.mul(x.transpose(1, 2), beta, out=torch.empty_like(x))
