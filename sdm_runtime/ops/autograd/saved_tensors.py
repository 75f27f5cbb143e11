"""What a call saves, handed to autograd and taken back, whatever saved-tensor hooks do to it.

Hooks may move and copy what they are given, and round what is floating: the gradients are then
those of rounded numbers. What a chain takes for addresses must come back as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from sdm_runtime.ops.autograd.fingerprints import fingerprint, is_own, remember_own
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.chunks.records import arena_of
from sdm_runtime.ops.forward.store import Saved
from sdm_runtime.tensor.refs import capturing
from sdm_runtime.tensor.words import dtype_word

# What a chain finds its rows by, what it restores, and what a kept state is made of again.
_WATCHED = ("records", "snapshot", "scales", "delta")
_RECORDS = Saved._fields.index("records")


class Form(NamedTuple):
    """What a saved tensor must still be when it comes back."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def describe(self) -> str:
        """The form in the words of error messages."""
        return f"{dtype_word(self.dtype)} {list(self.shape)} on {self.device}"


class TakenBack(NamedTuple):
    """What a call has saved, as hooks have left it."""

    saved: Saved
    exact: bool  # the snapshot has the bits that it had
    same_delta: bool  # so has delta


class HandedOver:
    """What is known of the tensors in autograd's hands."""

    __slots__ = ("_call", "_forms", "_given", "_sums", "_version")

    def __init__(self, tensors: tuple[Tensor | None, ...], call: Call) -> None:
        """Before they are saved: as `flatten` gives them."""
        self._call = call
        self._given: list[ref[Tensor] | None] | None = None
        self._version = 0  # of the records
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
        if hooks is None:
            # Autograd gives back the very tensors.
            self._given = [None if x is None else ref(x) for x in tensors]
            records = tensors[_RECORDS]
            assert records is not None
            self._version = records._version
            return
        self._forms = tuple(None if x is None else _form(x) for x in tensors)
        watched = _watched(tensors)
        for name, x in watched.items():
            remember_own(x, (name, call))
        again = _computes_again(hooks)
        self._sums = {} if again else {name: fingerprint(x) for name, x in watched.items()}

    def take_back(self, tensors: tuple[Tensor | None, ...]) -> TakenBack:
        """From autograd's hands; the tensors may have other strides and addresses now.

        Raises:
            TypeError: A hook has changed a dtype.
            ValueError: A hook has changed a shape, a device, or a bit of the records.
        """
        if self._given is not None:
            return self._take_same(tensors, self._given)
        for name, x, form in zip(Saved._fields, tensors, self._forms, strict=True):
            if x is not None and form is not None:
                _check_form(name, x, form)
        # The kernels take contiguous tensors.
        whole = {
            name: None if x is None else x.contiguous()
            for name, x in zip(Saved._fields, tensors, strict=True)
        }
        same = self._same(whole)
        memory = whole["records"]
        assert memory is not None
        if not same["records"]:
            raise ValueError(
                "[sdm_write_read] backward: expected the saved records as the forward left them, "
                "got other bits from a saved-tensor hook: their bytes are no numbers to round"
            )
        parts: dict[str, Any] = whole | {"records": arena_of(memory, self._call.geometry)}
        exact = same["snapshot"] and same.get("scales", True)
        return TakenBack(Saved(**parts), exact, same["delta"])

    def _take_same(
        self, tensors: tuple[Tensor | None, ...], given: list[ref[Tensor] | None]
    ) -> TakenBack:
        """Of a call without hooks."""
        for index, (x, known) in enumerate(zip(tensors, given, strict=True)):
            if known is not None and known() is not x:
                raise ValueError(
                    f"[sdm_write_read] backward: expected the saved {Saved._fields[index]} as the "
                    "forward left it, got what a hook for this one tensor has put in its place: "
                    "use torch.autograd.graph.saved_tensors_hooks around the call"
                )
        memory = tensors[_RECORDS]
        assert memory is not None
        if memory._version != self._version:
            raise ValueError(
                "[sdm_write_read] backward: expected the saved records as the forward left them, "
                "got some that were written since"
            )
        parts: list[Any] = [*tensors]
        parts[_RECORDS] = arena_of(memory, self._call.geometry)
        return TakenBack(Saved(*parts), exact=True, same_delta=True)

    def _same(self, tensors: dict[str, Tensor | None]) -> dict[str, bool]:
        """Which of the watched tensors have the bits that they had."""
        watched = {name: x for name in _WATCHED if (x := tensors[name]) is not None}
        same = {name: is_own(x, (name, self._call)) for name, x in watched.items()}
        others = [name for name, own in same.items() if not own and name in self._sums]
        if not others:
            return same
        device = watched["records"].device
        if device.type == "cuda" and capturing(device):
            # A capture cannot wait for a comparison. What a graph replays is what was captured:
            # hooks that have gone well before a capture do so in it.
            return same | {"records": True}
        pairs = [torch.stack((fingerprint(watched[k]), self._sums[k])) for k in others]
        for name, (now, then) in zip(others, torch.stack(pairs).tolist(), strict=True):
            same[name] = now == then
        return same


def flatten(saved: Saved) -> tuple[Tensor | None, ...]:
    """The saved tensors as one tuple, in the order of Saved.

    The records travel as their arena's bytes: most of them are no floats, and a hook that rounds
    floating tensors, or packs wide integers into narrow ones, must leave them alone.
    """
    parts: list[Any] = [*saved]
    parts[_RECORDS] = saved.records.memory.view(torch.uint8)
    return tuple(parts)


def _watched(tensors: tuple[Tensor | None, ...]) -> dict[str, Tensor]:
    named = dict(zip(Saved._fields, tensors, strict=True))
    return {name: x for name in _WATCHED if (x := named[name]) is not None}


def _computes_again(hooks: tuple[Callable[..., Any], ...]) -> bool:
    """Whether they save nothing: a checkpoint's, whose second forward is one of ours."""
    return getattr(hooks[0], "__module__", None) == "torch.utils.checkpoint"


def _check_form(name: str, x: Tensor, form: Form) -> None:
    shape, dtype, device = form
    if x.shape == shape and x.dtype is dtype and x.device == device:
        return
    error = TypeError if x.dtype != dtype else ValueError
    raise error(
        f"[sdm_write_read] backward: expected the saved {name} as the forward left it, "
        f"{form.describe()}, got {_form(x).describe()} from a saved-tensor hook"
    )


def _form(x: Tensor) -> Form:
    return Form(x.shape, x.dtype, x.device)
