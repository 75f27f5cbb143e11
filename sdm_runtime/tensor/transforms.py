"""What torch's transforms make of tensors: kernels would drop a tangent or a batch dimension."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.autograd import forward_ad


def may_transform() -> bool:
    """Whether torch.func or forward-mode derivatives are on: else no tensor is of theirs."""
    inside = torch._C._functorch.peek_interpreter_stack() is not None
    return inside or forward_ad._current_level >= 0


def has_tangent(x: Tensor) -> bool:
    """Whether a tensor has a forward-mode tangent, inside of vmap too."""
    transforms = torch._C._functorch
    mapped = not torch.compiler.is_compiling()  # which has no such tensors, and breaks off here
    while mapped and transforms.is_functorch_wrapped_tensor(x) and transforms.is_batchedtensor(x):
        x = transforms.get_unwrapped(x)  # torch cannot take a mapped tensor apart
    return forward_ad.unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]


def check_transforms(where: str, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that differentiation or mapping by torch.func has hold of.

    Raises:
        TypeError: One is inside of torch.func's vmap, grad or jvp.
        ValueError: One has a tangent.
    """
    if not may_transform():
        return
    transforms = torch._C._functorch
    inside = transforms.peek_interpreter_stack() is not None
    for name, x in tensors.items():
        if inside and (transforms.is_batchedtensor(x) or transforms.is_gradtrackingtensor(x)):
            raise TypeError(
                f"[{where}] {name}: expected a tensor outside of torch.func (there are no rules "
                "for vmap, grad or jvp), got one inside"
            )
        if has_tangent(x):
            raise ValueError(
                f"[{where}] {name}: expected no tangent (there is no forward-mode derivative), "
                "got one"
            )
