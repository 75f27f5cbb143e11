"""What a call saves, handed to autograd and taken back: saved-tensor hooks may do as they like."""

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
    """What a tensor has to be like when it comes back."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def describe(self) -> str:
        """As messages put it."""
        return f"{dtype_word(self.dtype)} {list(self.shape)} on {self.device}"


def take_apart(saved: Saved) -> tuple[Tensor | None, ...]:
    """The tensors one after another.

    The records travel as the int64 of their arena: most are no numbers, and a hook that rounds
    floating tensors must leave them alone.
    """
    return (*saved[:-1], saved.records.memory)


def forms_of_saved(tensors: Sequence[Tensor | None]) -> tuple[Form | None, ...]:
    """The forms of what take_apart gave."""
    return tuple(None if x is None else _form(x) for x in tensors)


def put_together(
    tensors: Sequence[Tensor | None], forms: Sequence[Form | None], geometry: Geometry
) -> Saved:
    """What take_apart took apart, of any strides and at any address.

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
    # The kernels take each of them in one piece.
    whole: list[Any] = [None if x is None else x.contiguous() for x in tensors]
    delta, innovation, x, qx, snapshot, scales, memory = whole
    if memory.data_ptr() % PLAN_ALIGNMENT:  # from where its parts count theirs
        memory = memory.clone()
    records = Arena(records_layout(geometry), memory)
    return Saved(delta, innovation, x, qx, snapshot, scales, records)


def _form(x: Tensor) -> Form:
    return Form(x.shape, x.dtype, x.device)
