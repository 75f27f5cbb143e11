"""Whether a call is real: on tensors that are memory, and followed by no tracer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from sdm_runtime.ops.call.staging import Inputs

_KINDS = torch._C._TorchDispatchModeKey
_mode = torch._C._get_dispatch_mode
_CLAIMED = "_sdm_runtime_claimed"  # an attribute of a traced bank, which lives for one trace


def is_traced(memory: Tensor, inputs: Inputs) -> bool:
    """Whether `sdm_write_read` is to be an operator: there is a tracer, or nothing to compute on.

    A mixture of fake and real tensors is none: its checks refuse it by name.
    """
    if torch.compiler.is_compiling() or _mode(_KINDS.PROXY) is not None:
        return True
    kind = type(memory)
    if (kind is Tensor or kind is nn.Parameter) and not memory.is_meta:
        return False
    return all(isinstance(x, Tensor) and _stands_in(x) for x in (memory, *inputs))


def is_real(memory: Tensor) -> bool:
    """Whether an operator's call has memory to work on, and no tracer takes part."""
    tracers = (_KINDS.PROXY, _KINDS.FAKE, _KINDS.FUNCTIONAL)
    return not _stands_in(memory) and all(_mode(kind) is None for kind in tracers)


def is_graph_input(bank: Tensor) -> bool:
    """Whether a bank is a tensor of a traced graph's caller, or a view of one, not written yet.

    False where no graph is traced node by node.
    """
    mode: Any = get_proxy_mode()
    if mode is None or not isinstance(bank, FunctionalTensor):
        return False
    torch._sync(bank)  # type: ignore[no-untyped-call]
    value = torch._from_functional_tensor(bank.elem)
    slot = get_proxy_slot(value, mode.tracer, None)
    if slot is None:
        return False
    node: Any = slot.proxy.node
    while node.op == "call_function" and getattr(node.target, "is_view", False):
        node = node.args[0]
    return bool(node.op == "placeholder")


def claim(memory: Tensor) -> None:
    """Refuse a second call in one graph on a bank that requires grad, as a lease does in eager.

    Raises:
        RuntimeError: both would report the gradient of the bank they started from as that of the
            same tensor.
    """
    if not isinstance(memory, FunctionalTensor) or not memory.requires_grad:
        return
    if getattr(memory, _CLAIMED, False):
        raise RuntimeError(
            "[sdm_write_read] memory: expected one call in a compiled graph on a bank that "
            "requires grad, got a second: pass memory.detach() or a clone"
        )
    setattr(memory, _CLAIMED, True)


def _stands_in(x: Tensor) -> bool:
    """Whether x has a shape and no memory: fake, on meta, or inside of functionalization."""
    return x.is_meta or isinstance(x, (FakeTensor, FunctionalTensor))
