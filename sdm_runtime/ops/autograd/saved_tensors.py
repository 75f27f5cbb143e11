"""What a call saves, handed to autograd and taken back, whatever saved-tensor hooks do to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.ops.chunks.records import records_layout
from sdm_runtime.ops.forward.store import Saved
from sdm_runtime.ops.routes.bound_chains import PLAN_ALIGNMENT
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.words import dtype_word


class Form(NamedTuple):
    """What a saved tensor must still be when it comes back."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def describe(self) -> str:
        """The form in the words of error messages."""
        return f"{dtype_word(self.dtype)} {list(self.shape)} on {self.device}"


def flatten(saved: Saved) -> tuple[Tensor | None, ...]:
    """The saved tensors as one tuple.

    The records travel as their arena's int64: most of their words are not floats, and a hook that
    rounds floating tensors must leave them alone.
    """
    return (*saved[:-1], saved.records.memory)


def forms_of_saved(tensors: Sequence[Tensor | None]) -> tuple[Form | None, ...]:
    """The forms of the tensors that flatten returned."""
    return tuple(None if x is None else _form(x) for x in tensors)


def unflatten(
    tensors: Sequence[Tensor | None], forms: Sequence[Form | None], geometry: Geometry
) -> Saved:
    """The inverse of flatten; the tensors may have other strides and addresses now.

    Raises:
        TypeError: A hook has changed a dtype.
        ValueError: A hook has changed a shape or a device.
    """
    for name, x, form in zip(Saved._fields, tensors, forms, strict=True):
        if x is None or form is None:
            continue
        shape, dtype, device = form
        if x.shape == shape and x.dtype is dtype and x.device == device:
            continue
        error = TypeError if x.dtype != dtype else ValueError
        raise error(
            f"[sdm_write_read] backward: expected the saved {name} as the forward left it, "
            f"{form.describe()}, got {_form(x).describe()} from a saved-tensor hook"
        )
    # The kernels take contiguous tensors.
    whole: list[Any] = [None if x is None else x.contiguous() for x in tensors]
    delta, innovation, x, qx, snapshot, scales, memory = whole
    if memory.data_ptr() % PLAN_ALIGNMENT:  # its parts' offsets assume this
        memory = memory.clone()
    records = Arena(records_layout(geometry), memory)
    return Saved(delta, innovation, x, qx, snapshot, scales, records)


def _form(x: Tensor) -> Form:
    return Form(x.shape, x.dtype, x.device)
