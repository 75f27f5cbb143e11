"""Uses of a learned bank after a call, which autograd takes for uses of the bank before it.

A leaf has one place in the graph, whatever it holds: the gradient of what is computed from the
advanced bank would be added to that of the bank before the call. What saves the bank is refused by
its version; what saves nothing (a sum) is found here, by the gradients that reach the leaf, up to
the call's own backward. Two cases look like right ones, and are not found: a use from before the
call is still in some graph, or the later use's backward follows the call's. Of a bank that is no
leaf, nobody can tell whether its node has other users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from weakref import finalize, ref

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from sdm_runtime.ops.call.bank_lease import BankLease

_MARK = "sdm_runtime.call"


class LaterUses:
    """Watches the gradients of a leaf from a call until the call's own has arrived."""

    def __init__(self, memory: Tensor, lease: BankLease) -> None:
        """After the call, whose graph has no other use of the leaf."""
        self._lease = ref(lease)
        self._own: Callable[[], Tensor | None] = lambda: None  # its gradient, not kept alive
        self._version, self._task = 0, -1
        # torch warns when a tensor with other hooks is pickled.
        self.__torch_unserializable__ = True
        self._handle: Any = memory.register_hook(self)  # type: ignore[no-untyped-call]
        _put_first(memory, self._handle.id)
        finalize(lease, self._handle.remove)

    def returned(self, gradient: Tensor) -> None:
        """The call's backward gives this gradient of the bank."""
        self._own, self._version = ref(gradient), gradient._version
        self._task = torch._C._current_graph_task_id()

    def __call__(self, gradient: Tensor) -> None:
        """A gradient has reached the leaf."""
        lease = self._lease()
        if self._task < 0:
            if lease is not None and lease.awaits_backward_now():
                _refuse()
            self._handle.remove()
            return
        self._handle.remove()
        alone = gradient is self._own() and gradient._version == self._version
        if not alone and torch._C._current_graph_task_id() == self._task:
            _refuse()


def _put_first(memory: Tensor, key: int) -> None:
    """Let a hook run ahead of those that were there: they may return another gradient.

    The engine takes the order of the dict that an OrderedDict is made of, which moving an item
    does not change.
    """
    hooks: Any = memory._backward_hooks
    if len(hooks) > 1:
        others = [(other, hook) for other, hook in hooks.items() if other != key]
        own = hooks[key]
        hooks.clear()
        hooks[key] = own
        hooks.update(others)


def _refuse() -> None:
    raise RuntimeError(
        "[sdm_write_read] memory: expected no gradient of the bank as it is after a call, got one "
        "through a use of it between the call and its backward: use it before the call, or use "
        "memory.detach()"
    )


def has_earlier_uses(memory: Tensor) -> bool:
    """Whether a use of a leaf is in a graph that somebody holds.

    Its node is made for the first use, and lives as long as one does.
    """
    _notes(memory)[_MARK] = True
    return _notes(memory).pop(_MARK, None) is not None


def _notes(memory: Tensor) -> dict[str, object]:
    """What anyone may note at the leaf's node; with the node it goes."""
    notes: Any = get_gradient_edge(memory).node.metadata
    return cast("dict[str, object]", notes)
