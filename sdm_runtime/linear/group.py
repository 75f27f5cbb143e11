"""Several linear layers that share x, in one launch on Hopper. Not public yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.refs import current_stream, tensor_ref
from sdm_runtime.tensor.words import describe

from .checks import as_rows
from .launch import flat
from .modes import forced, weights_are_static

MAX_MEMBERS = 8

_WHERE = "[bf16_linear_group]"
Biases = Sequence[Tensor | None] | None


def bf16_linear_group(x: Tensor, weights: Sequence[Tensor], biases: Biases = None) -> list[Tensor]:
    """``[x @ w.T + b for w, b in zip(weights, biases)]`` in bfloat16, by one launch, now.

    Always the kernel, on torch's current stream: with the tactic of ``forced_tactic`` or its
    default one, programmatic inside ``static_weights``. A result's bits are those of bf16_linear's
    kernel with the same tactic and splits. No gradient.

    Args:
        x: bfloat16 ``[..., K]``, K a multiple of 8; evenly spaced rows of stride 1 that start at
            multiples of 16 bytes.
        weights: 1 to 8 of bfloat16 ``[N_i, K]``, rows likewise.
        biases: For each weight bfloat16 ``[N_i]`` or None; None for no biases.

    Returns:
        For each weight bfloat16 ``[..., N_i]``.

    Raises:
        TypeError: A tensor that is not dense or not bfloat16.
        ValueError: Another number of biases, another shape, layout or device.
    """
    tensor_ref(f"{_WHERE} x", x)
    if x.ndim < 1 or x.stride(-1) != 1 or as_rows(x) is None:
        expected = "bfloat16 [..., K] with stride 1 along K and evenly spaced rows"
        given = f"{describe(x)} with strides {list(x.stride())}"
        raise ValueError(f"{_WHERE} x: expected {expected}, got {given}")
    rows = flat(x)
    ys = [rows.new_empty((rows.shape[0], n)) for n in _widths(weights)]
    refs = _refs(_operands(rows, weights, biases, ys), len(weights))
    _core.bf16_linear_group(*refs, _forced_choice(), weights_are_static(), current_stream(x.device))
    return [y.view(*x.shape[:-1], y.shape[1]) for y in ys]


def plan_bf16_linear_group(
    x: Tensor, weights: Sequence[Tensor], biases: Biases, ys: Sequence[Tensor], *, pdl: bool = False
) -> Plan:
    """Record ``y = x @ w.T + b`` for every weight as a plan of one step, for a Hopper GPU.

    With the tactic of ``forced_tactic`` or the default one. The plan's operands are called
    ``group_x``, and ``weight_0``, ``bias_0``, ``y_0`` and so on; it may be bound to other tensors
    of the same shapes.

    Args:
        x: bfloat16 ``[M, K]``, contiguous, on a 16-byte boundary; K a multiple of 8.
        weights: 1 to 8 of bfloat16 ``[N_i, K]``, likewise.
        biases: For each weight bfloat16 ``[N_i]`` or None; None for no biases.
        ys: For each weight bfloat16 ``[M, N_i]``, contiguous, out. Apart from each other and from
            what is read.
        pdl: Launch programmatically in a chain: nothing in it may write a weight.

    Raises:
        TypeError: A tensor that is not bfloat16.
        ValueError: Another number of biases or outputs, another shape, layout or device.
    """
    operands = _operands(x, weights, biases, ys)
    bound = _core.plan_bf16_linear_group(*_refs(operands, len(weights)), _forced_choice(), pdl)
    return Plan._recorded(bound, operands)


class _GroupRefs(NamedTuple):
    """The operands as the core takes them."""

    x: _core.TensorRef
    weights: list[_core.TensorRef]
    biases: list[_core.TensorRef | None]
    ys: list[_core.TensorRef]


def _forced_choice() -> tuple[int, int] | None:
    tactic = forced()
    return None if tactic is None else tactic.for_core()


def _widths(weights: Sequence[Tensor]) -> list[int]:
    for i, weight in enumerate(weights):
        tensor_ref(f"{_WHERE} weight_{i}", weight)
        if weight.ndim != 2:
            raise ValueError(
                f"{_WHERE} weight_{i}: expected bfloat16 [N, K], got {describe(weight)}"
            )
    return [int(weight.shape[0]) for weight in weights]


def _operands(
    x: Tensor, weights: Sequence[Tensor], biases: Biases, ys: Sequence[Tensor]
) -> dict[str, Tensor]:
    """By the names that a plan gives them."""
    count = len(weights)
    if not 1 <= count <= MAX_MEMBERS:
        raise ValueError(f"{_WHERE} weights: expected 1..{MAX_MEMBERS} weights, got {count}")
    for name, given in (("biases", biases), ("ys", ys)):
        if given is not None and len(given) != count:
            raise ValueError(
                f"{_WHERE} {name}: expected {count}, one for each weight, got {len(given)}"
            )
    operands = {"group_x": x} | {f"weight_{i}": weight for i, weight in enumerate(weights)}
    operands |= {f"bias_{i}": bias for i, bias in enumerate(biases or ()) if bias is not None}
    return operands | {f"y_{i}": y for i, y in enumerate(ys)}


def _refs(operands: dict[str, Tensor], count: int) -> _GroupRefs:
    refs = {name: tensor_ref(f"{_WHERE} {name}", tensor) for name, tensor in operands.items()}
    return _GroupRefs(
        refs["group_x"],
        [refs[f"weight_{i}"] for i in range(count)],
        [refs.get(f"bias_{i}") for i in range(count)],
        [refs[f"y_{i}"] for i in range(count)],
    )
