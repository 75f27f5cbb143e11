"""The operation on few tokens without a gradient, as one launch: the decoding step."""

from __future__ import annotations

from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.arguments import flag, whole
from sdm_runtime.tensor.refs import operand_refs, plan_memory
from sdm_runtime.tensor.written import launch_stream, raise_versions

_NAME = "decode_step"


def decode_step(
    bank: Tensor,
    k_idx: Tensor,
    k_val: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    q_idx: Tensor,
    q_val: Tensor,
    readings: Tensor,
    *,
    slots: int,
    key_weighted: bool = False,
) -> None:
    """Write and read the bank, a sequence's tokens one after the other, in one launch.

    What `sdm_write_read` computes (its docstring has the recurrence), with the bank rounded to its
    dtype after every token. One token has the bits of `sdm_write_read` where the rows that it names
    are finite (a NaN in a row that is written reaches the reading); T tokens are T calls of one
    token each. Sequence ``p = b*H + h`` owns the rows ``[p*S, (p+1)*S)``: a write or a read of any
    other row does nothing. Autograd does not record it.

    Args:
        bank: bfloat16 or float32 ``[P*S, hd]``, contiguous, advanced in place.
        k_idx: int32 ``[P, T, W]``, bank rows, ascending within a token; a row that stands there
            twice is decayed by both gates and takes both weights. 1 <= T, W <= 256.
        k_val: float32 ``[P, T, W]``, write weights, rounded to the bank's dtype on entry.
        v: bfloat16 or float32 ``[B, T, H, hd]`` with B * H = P, the last dimension
            contiguous and the other strides free; values, rounded to the bank's dtype on entry.
        beta: float32 ``[P, T]`` or ``[P, T, 1]``, write strengths.
        g: float32 ``[P, T]``, ``[P, T, 1]`` or ``[P, T, W]``, logarithms of the decays.
        q_idx: int32 ``[P, T, R]``, bank rows, ascending within a token. 1 <= R <= 256.
        q_val: float32 ``[P, T, R]``, read weights, rounded to the bank's dtype on entry.
        readings: ``[B, T, H, hd]`` of the bank's dtype, out: strides as v's, rows apart.
        slots: S, the rows of a sequence.
        key_weighted: The gate of a write is ``g * k_val``, of k_val before it is rounded; g then
            has one value a token.

    Where slots do not ascend nothing outside the sequence's rows is touched, but the values are
    undefined.

    Raises:
        TypeError: An argument of another type or dtype.
        ValueError: Another shape, layout or device, or memory of bank or readings that overlaps
            another argument's. Nothing is changed.
        CudaError: The device has no kernel in this build.
    """
    operands = _operands(bank, k_idx, k_val, v, beta, g, q_idx, q_val, readings)
    rows, weighted = whole(_NAME, "slots", slots), flag(_NAME, "key_weighted", key_weighted)
    refs = operand_refs(operands, f"[{_NAME}] ")
    stream = launch_stream(_NAME, bank.device)
    _core.decode_step(refs, rows, weighted, stream)
    raise_versions((bank, readings))


def plan_decode_step(
    bank: Tensor,
    k_idx: Tensor,
    k_val: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    q_idx: Tensor,
    q_val: Tensor,
    readings: Tensor,
    *,
    slots: int,
    key_weighted: bool = False,
    pdl: bool = False,
) -> Plan:
    """Record :func:`decode_step` as a plan of one step, with the same arguments and errors.

    The plan's operands have the arguments' names. v and readings are bound as their memory, from
    the first element to the last: a tensor of one dimension if theirs is not contiguous
    (:func:`~sdm_runtime.tensor.refs.plan_memory`).

    Args:
        pdl: Ask for a programmatic launch. It waits before it reads any operand.
    """
    operands = _operands(bank, k_idx, k_val, v, beta, g, q_idx, q_val, readings)
    rows, weighted = whole(_NAME, "slots", slots), flag(_NAME, "key_weighted", key_weighted)
    early = flag(_NAME, "pdl", pdl)
    refs = operand_refs(operands, f"[{_NAME}] ")
    bound = _core.plan_decode_step(refs, rows, weighted, early)
    return Plan._recorded(bound, {name: plan_memory(x) for name, x in operands.items()})


def _operands(*tensors: Tensor) -> dict[str, Tensor]:
    names = ("bank", "k_idx", "k_val", "v", "beta", "g", "q_idx", "q_val", "readings")
    return dict(zip(names, tensors, strict=True))
