"""Every check of the operation's arguments, before any work: ValueError or TypeError, by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.errors import CudaError
from sdm_runtime.machine.backends import backends
from sdm_runtime.machine.environment import switch
from sdm_runtime.machine.forked import check_threads
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.geometry import (
    MAX_CHUNK,
    MAX_ENTRIES,
    MIN_CHUNK,
    Geometry,
    effective_chunk,
)
from sdm_runtime.ops.call.outside_slots import report_outside_slots
from sdm_runtime.ops.call.plain_tensors import are_plain, check_apart, check_plain
from sdm_runtime.ops.call.quant import SNAPSHOT_QUANTS, columns_together, snapshot_format
from sdm_runtime.ops.call.staging import Inputs, as_sequences
from sdm_runtime.tensor.refs import capturing, operand_refs
from sdm_runtime.tensor.words import describe

_OP = "sdm_write_read"
_INTS = (int, torch.SymInt)  # the latter stand for them while a graph is traced
_BANK_DTYPES = (torch.bfloat16, torch.float32)
_INDEX_DTYPES = (torch.int32, torch.int64)
_GEMM = ("auto", "fixed", "blas")
_MAX_HEAD_DIM = 1 << 20
_MAX_ROWS = 2**31 - 2  # rows are int32, and one value sorts behind them all


def check_call(memory: Tensor, inputs: Inputs, **options: Any) -> tuple[Inputs, Call]:
    """The inputs as Inputs describes them and the call's sizes; raises for what does not fit.

    The options are those of `sdm_write_read`.
    """
    named = {"memory": memory, **inputs._asdict()}
    plain = are_plain(named)
    for name, x in named.items():
        if not plain:
            if not isinstance(x, Tensor):
                raise _type(name, "a torch.Tensor", type(x).__name__)
            check_plain(name, x)
            if memory.device.type not in ("cpu", "cuda"):
                raise _value("memory", "a CPU or CUDA tensor", str(memory.device))
        _check_device_and_dtype(memory, name, x)
        if x is not memory:
            check_apart(memory, name, x)
    sequences, call = _check_form(memory, inputs, **options)
    if memory.device.type == "cpu":
        if call.gemm == "blas":
            expected = "'auto' or 'fixed' on the CPU, whose chain has no BLAS step"
            raise _value("gemm", expected, "'blas'")
        check_threads(_OP)
    _check_indices(memory, sequences, call.geometry.slots)
    return sequences, call


def check_form(memory: Tensor, inputs: Inputs, **options: Any) -> tuple[Inputs, Call]:
    """What check_call checks of dtypes, shapes and options: of tensors that have no memory.

    Sizes may be symbols, as tracers have them.
    """
    for name, x in (("memory", memory), *inputs._asdict().items()):
        _check_device_and_dtype(memory, name, x)
    return _check_form(memory, inputs, **options)


def _check_form(
    memory: Tensor,
    inputs: Inputs,
    *,
    chunk_size: int,
    num_memory_slots: int,
    num_parallel: int,
    snapshot_quant: str,
    grad_bank_fp32: bool,
    gemm: str,
    shared_bank: bool,
    keep_state: bool,
) -> tuple[Inputs, Call]:
    _check_options(chunk_size, num_memory_slots, num_parallel, snapshot_quant, gemm)
    _check_flags(grad_bank_fp32=grad_bank_fp32, shared_bank=shared_bank, keep_state=keep_state)
    _check_bank(memory)
    _check_bank_owners(memory, num_memory_slots, num_parallel, shared_bank)
    geometry = _check_shapes(memory, inputs, num_parallel, chunk_size)
    geometry = geometry._replace(slots=num_memory_slots)
    together = columns_together(snapshot_quant)
    if geometry.head_dim % together:
        whole = "an even head_dim" if together == 2 else f"a head_dim that {together} divides"
        raise _value("snapshot_quant", f"{whole} with {snapshot_quant!r}", f"{geometry.head_dim}")
    sequences = Inputs(*(as_sequences(x, num_parallel) for x in inputs))
    form = snapshot_format(snapshot_quant, memory.dtype, geometry.head_dim)
    if keep_state and not form.exact:
        expected = "snapshots that hold the rows' bits with keep_state=True"
        raise _value("snapshot_quant", expected, f"{snapshot_quant!r}")
    return sequences, Call(geometry, form, grad_bank_fp32, gemm, keep_state)


def check_saveable(memory: Tensor, inputs: Inputs) -> None:
    """Autograd cannot save inference tensors; it would say so only after the bank has advanced."""
    for name, x in (("memory", memory), *inputs._asdict().items()):
        if x.is_inference():
            raise _value(name, "no inference tensor where a gradient is asked for", "one")


def check_backend(memory: Tensor) -> None:
    """Both passes run kernels: say before any work if there are none for memory's device."""
    cuda = backends()["cuda"] if memory.is_cuda else True
    if cuda is not True:
        raise CudaError(
            f"[{_OP}] memory: expected a CPU tensor, since the CUDA kernels cannot run here "
            f"({cuda}), got one on {memory.device}"
        )


def _value(name: str, expected: str, got: str) -> ValueError:
    return ValueError(f"[{_OP}] {name}: expected {expected}, got {got}")


def _type(name: str, expected: str, got: str) -> TypeError:
    return TypeError(f"[{_OP}] {name}: expected {expected}, got {got}")


def _check_device_and_dtype(memory: Tensor, name: str, x: Tensor) -> None:
    if x.device != memory.device:
        raise _value(name, f"memory's device {memory.device}", str(x.device))
    index = name.endswith("_idx")
    if index and x.dtype not in _INDEX_DTYPES:
        raise _type(name, "int32 or int64", describe(x))
    if not index and not x.dtype.is_floating_point:
        raise _type(name, "a floating-point dtype", describe(x))


def _check_options(
    chunk_size: int, num_memory_slots: int, num_parallel: int, snapshot_quant: str, gemm: str
) -> None:
    numbers = (
        ("chunk_size", chunk_size, MIN_CHUNK, MAX_CHUNK),
        ("num_memory_slots", num_memory_slots, 0, None),
        ("num_parallel", num_parallel, 1, None),
    )
    for name, value, low, high in numbers:
        if not isinstance(value, _INTS) or isinstance(value, bool):
            raise _type(name, "an int", f"{value!r}")
        if value < low or (high is not None and value > high):
            bounds = f"at least {low}" if high is None else f"{low}..{high}"
            raise _value(name, bounds, f"{value}")
    for name, word, words in (
        ("snapshot_quant", snapshot_quant, SNAPSHOT_QUANTS),
        ("gemm", gemm, _GEMM),
    ):
        if word not in words:
            raise _value(name, "one of " + ", ".join(words), f"{word!r}")


def _check_flags(**flags: bool) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise _type(name, "a bool", f"{value!r}")


def _check_bank(memory: Tensor) -> None:
    if memory.dim() != 2 or not 1 <= memory.shape[1] <= _MAX_HEAD_DIM:
        raise _value("memory", f"[rows, 1..{_MAX_HEAD_DIM}]", describe(memory))
    if memory.dtype not in _BANK_DTYPES:
        raise _type("memory", "bfloat16 or float32", describe(memory))
    if not 1 <= memory.shape[0] <= _MAX_ROWS:
        raise _value("memory", f"1..{_MAX_ROWS} rows", describe(memory))
    if not memory.is_contiguous():
        raise _value("memory", "a contiguous bank", f"strides {list(memory.stride())}")


def _check_bank_owners(memory: Tensor, slots: int, sequences: int, shared_bank: bool) -> None:
    if slots == 0:
        if sequences > 1 and not shared_bank:
            raise _value(
                "num_memory_slots",
                f"the slots of each of {sequences} sequences, or shared_bank=True",
                "0",
            )
    elif shared_bank:
        raise _value("shared_bank", f"False with num_memory_slots = {slots}", "True")
    elif memory.shape[0] != sequences * slots:
        raise _value(
            "memory",
            f"num_parallel * num_memory_slots = {sequences * slots} rows",
            describe(memory),
        )


def _check_shapes(memory: Tensor, inputs: Inputs, sequences: int, chunk_size: int) -> Geometry:
    leading = _leading(inputs.k_idx, "k_idx", sequences)
    tokens = leading[-1] if len(leading) == 2 else leading[0] // sequences
    if tokens < 1:
        raise _value("k_idx", "at least one token", describe(inputs.k_idx))
    if not inputs.q_idx.dim():
        raise _value(
            "q_idx", f"[P, T, .] or [P*T, .] with P = num_parallel = {sequences}", "a scalar"
        )
    writes, reads, head_dim = inputs.k_idx.shape[-1], inputs.q_idx.shape[-1], memory.shape[1]
    for name, x, widths in (
        ("k_idx", inputs.k_idx, ()),
        ("q_idx", inputs.q_idx, ()),
        ("k_val", inputs.k_val, (writes,)),
        ("q_val", inputs.q_val, (reads,)),
        ("beta", inputs.beta, (1,)),
        ("g", inputs.g, (1, writes)),
    ):
        _check_shape(name, x, sequences, tokens, widths)
    _check_values(inputs.v, sequences, tokens, head_dim)
    chunk = effective_chunk(chunk_size, tokens)
    return Geometry(sequences, tokens, chunk, writes, reads, head_dim, memory.shape[0])


def _leading(x: Tensor, name: str, sequences: int) -> tuple[int, ...]:
    fits = x.dim() == 3 and x.shape[0] == sequences
    if not fits and not (x.dim() == 2 and x.shape[0] % sequences == 0):
        raise _value(
            name, f"[P, T, .] or [P*T, .] with P = num_parallel = {sequences}", describe(x)
        )
    return tuple(x.shape[:-1])


def _check_shape(
    name: str, x: Tensor, sequences: int, tokens: int, widths: tuple[int, ...]
) -> None:
    """widths: the last dimensions that fit; none: any from 1 to MAX_ENTRIES."""
    fits = tuple(x.shape[:-1]) in ((sequences, tokens), (sequences * tokens,))
    width = x.shape[-1] if x.dim() else 0
    fits = fits and (width in widths if widths else 1 <= width <= MAX_ENTRIES)
    if not fits:
        last = " or ".join(map(str, widths)) if widths else f"1..{MAX_ENTRIES}"
        raise _value(
            name,
            f"[{sequences}, {tokens}, {last}] or [{sequences * tokens}, {last}]",
            describe(x),
        )


def _check_values(v: Tensor, sequences: int, tokens: int, head_dim: int) -> None:
    if v.dim() != 4:
        _check_shape("v", v, sequences, tokens, (head_dim,))
        return
    batch, tokens_of_v, heads, width = v.shape
    if batch * heads != sequences or tokens_of_v != tokens or width != head_dim:
        raise _value(
            "v",
            f"[B, {tokens}, H, {head_dim}] with B * H = num_parallel = {sequences}",
            describe(v),
        )


def _check_indices(memory: Tensor, inputs: Inputs, slots: int) -> None:
    """Each sequence's rows must be its own.

    A GPU would have to be waited for: there it is checked on request alone, and not in a graph
    capture. Otherwise the kernels leave such entries out, and a later call reports them.
    """
    on_request = switch("SDM_CHECK_INDICES")
    if memory.is_cuda:
        report_outside_slots(memory.device)
        if not on_request or capturing(memory.device):
            return
        found = _find_outside(memory, inputs, slots)
    else:
        operands = {"k_idx": inputs.k_idx, "q_idx": inputs.q_idx}
        found = _core.outside_slot(operand_refs(operands), slots, memory.shape[0])
    if found is not None:
        name, sequence, value = found
        low = sequence * slots
        high = low + (slots or memory.shape[0])
        raise _value(name, f"rows {low}..{high - 1} in sequence {sequence}", f"{value}")


def _find_outside(memory: Tensor, inputs: Inputs, slots: int) -> tuple[str, int, int] | None:
    """As the core's outside_slot, on any device."""
    first = slots * torch.arange(inputs.k_idx.shape[0], device=memory.device).view(-1, 1, 1)
    end = first + (slots or memory.shape[0])
    for name, x in (("k_idx", inputs.k_idx), ("q_idx", inputs.q_idx)):
        outside = (x < first) | (x >= end)
        if outside.any():
            at = outside.nonzero()[0].tolist()
            return name, at[0], int(x[tuple(at)])
    return None
