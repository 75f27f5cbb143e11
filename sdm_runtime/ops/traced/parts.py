"""A training call's forward and backward as operators without a gradient of their own.

What a graph holds of `write_read`, and between the two nothing but tensors. Both write the bank in
place and say so, so that a compiler can keep track of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.autograd.autocast import without_autocast
from sdm_runtime.ops.backward.run import Gradients, InputForms, forms_of, run_backward
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.checks import check_backend, check_call, check_form
from sdm_runtime.ops.call.geometry import MIN_CHUNK, Geometry
from sdm_runtime.ops.call.quant import snapshot_format
from sdm_runtime.ops.call.staging import Inputs, new_readings, rows_shape
from sdm_runtime.ops.call.versions import raise_version
from sdm_runtime.ops.chunks.records import arena_of
from sdm_runtime.ops.forward.run import run_forward
from sdm_runtime.ops.forward.store import KeepStore, Saved
from sdm_runtime.ops.routes.bound_chains import release_memory
from sdm_runtime.tensor.words import describe, dtype_word

_LIBRARY = torch.library.Library("sdm_runtime", "FRAGMENT")  # type: ignore[no-untyped-call]
INPUTS = (
    "Tensor(a!) memory, Tensor k_idx, Tensor k_val, Tensor v, Tensor beta, Tensor g, "
    "Tensor q_idx, Tensor q_val"
)
OPTIONS = (
    "int chunk_size, SymInt num_memory_slots, SymInt num_parallel, str snapshot_quant, "
    "bool grad_bank_fp32, str gemm, bool shared_bank"
)
# What a graph hands from the forward to the backward: all of it, the records as their memory.
_FIELDS = ("delta", "innovation", "x", "qx", "snapshot", "scales", "records")
_SAVED = ", ".join(f"Tensor {name}" for name in _FIELDS)


class Sizes(NamedTuple):
    """What the backward must know besides tensors; numbers, symbols while a graph is traced."""

    num_parallel: int
    tokens: int
    writes: int
    reads: int
    gates: int  # of a token: 1 or W
    heads: int  # H of v [B, T, H, hd]; 0 of v [P, T, hd]
    chunk_size: int
    num_memory_slots: int
    snapshot_quant: str
    grad_bank_fp32: bool
    gemm: str
    k_val_dtype: torch.dtype
    v_dtype: torch.dtype
    beta_dtype: torch.dtype
    g_dtype: torch.dtype
    q_val_dtype: torch.dtype

    @classmethod
    def of(cls, inputs: Inputs, options: dict[str, Any]) -> Sizes:
        """Of a call: the inputs are [P, T, .]."""
        forms = forms_of(inputs)
        return cls(
            num_parallel=options["num_parallel"],
            tokens=inputs.k_idx.shape[1],
            writes=inputs.k_idx.shape[2],
            reads=inputs.q_idx.shape[2],
            gates=forms.gates,
            heads=forms.heads or 0,
            chunk_size=options["chunk_size"],
            num_memory_slots=options["num_memory_slots"],
            snapshot_quant=options["snapshot_quant"],
            grad_bank_fp32=options["grad_bank_fp32"],
            gemm=options["gemm"],
            k_val_dtype=forms.k_val,
            v_dtype=forms.v,
            beta_dtype=forms.beta,
            g_dtype=forms.g,
            q_val_dtype=forms.q_val,
        )

    def forms(self) -> InputForms:
        """As the backward takes them."""
        return InputForms(
            k_val=self.k_val_dtype,
            v=self.v_dtype,
            beta=self.beta_dtype,
            g=self.g_dtype,
            q_val=self.q_val_dtype,
            gates=self.gates,
            heads=self.heads or None,
        )

    def call(self, memory: Tensor) -> Call:
        """The call on this bank."""
        geometry = Geometry(
            sequences=self.num_parallel,
            tokens=self.tokens,
            chunk=_chunk(self.chunk_size, self.tokens),
            writes=self.writes,
            reads=self.reads,
            head_dim=memory.shape[1],
            bank_rows=memory.shape[0],
            slots=self.num_memory_slots,
        )
        form = snapshot_format(self.snapshot_quant, memory.dtype, geometry.head_dim)
        return Call(geometry, form, self.grad_bank_fp32, self.gemm, keep_state=False)


_SIZES = (
    "SymInt num_parallel, SymInt tokens, SymInt writes, SymInt reads, SymInt gates, SymInt heads, "
    "int chunk_size, SymInt num_memory_slots, str snapshot_quant, bool grad_bank_fp32, str gemm, "
    "ScalarType k_val_dtype, ScalarType v_dtype, ScalarType beta_dtype, ScalarType g_dtype, "
    "ScalarType q_val_dtype"
)


@contextmanager
def _running(memory: Tensor) -> Iterator[None]:
    """While an operator computes: no gradient, no autocast, and chains give way to memory."""
    try:
        with torch.no_grad(), without_autocast(memory.device.type):
            yield
    except torch.OutOfMemoryError:
        release_memory()
        raise


def _saving(memory: Tensor, *tensors: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """The readings, and what the backward needs; memory is advanced."""
    inputs, call = check_call(memory, Inputs(*tensors), **options, keep_state=False)
    check_backend(memory)
    with _running(memory):
        readings, saved = run_forward(memory.detach(), inputs, call, keep=True)
    assert saved is not None
    return readings, *_flat(saved)


def _fake_saving(memory: Tensor, *tensors: Tensor, **options: Any) -> tuple[Tensor, ...]:
    inputs, call = fake_call(memory, Inputs(*tensors), options | {"keep_state": False})
    chunk = _chunk(options["chunk_size"], call.geometry.tokens)
    geometry = call.geometry._replace(chunk=chunk)
    saved = KeepStore(memory, geometry, 1, call.form, keep_state=False).finish()
    return new_readings(memory, inputs, geometry), *_flat(saved)


def _chunk(chunk_size: int, tokens: int) -> int:
    """As effective_chunk, but a graph of any T is one of a T on this side of chunk_size, or of 16.

    What is saved would have sizes by minimum and maximum otherwise.
    """
    return min(chunk_size, max(MIN_CHUNK, tokens))


def _flat(saved: Saved) -> tuple[Tensor, ...]:
    """The saved tensors, an empty one for scales that no format has."""
    scales = saved.delta.new_empty(0) if saved.scales is None else saved.scales
    return (
        saved.delta,
        saved.innovation,
        saved.x,
        saved.qx,
        saved.snapshot,
        scales,
        saved.records.memory,
    )


class _Bank:
    """A bank in the backward's hands: the graph keeps its uses in order, and no lease does."""

    keep_state = False

    def __init__(self, bank: Tensor):
        self.bank = bank

    def restoring(self) -> None:
        """Nobody else restores it."""

    def not_restored(self) -> None:
        """Nothing waits for it."""

    def broken(self, reason: str) -> None:
        """The error that follows says so."""

    def kept(self) -> None:
        """Only of a kept state."""

    def restored(self, *, exact: bool) -> None:
        """Every row is written back."""
        raise_version(self.bank)


def _backward(memory: Tensor, *tensors: Tensor, **sizes: Any) -> tuple[Tensor, ...]:
    """The gradients of memory, k_val, v, beta, g and q_val; memory is restored."""
    *saved, records, grad_readings = tensors
    given = Sizes(**sizes)
    call = given.call(memory)
    check_backend(memory)
    _check_backward(memory, given, grad_readings)
    _check_saved(memory, call, (*saved, records))
    delta, innovation, x, qx, snapshot, scales = (x.contiguous() for x in saved)
    made = Saved(
        delta=delta,
        innovation=innovation,
        x=x,
        qx=qx,
        snapshot=snapshot,
        scales=scales if call.form.scaled else None,
        records=arena_of(records.contiguous(), call.geometry),
    )
    bank = _Bank(memory.detach())
    with _running(memory):
        return tuple(
            run_backward(bank, given.forms(), made, grad_readings, call, exact=call.form.exact)
        )


def _check_backward(memory: Tensor, sizes: Sizes, grad_readings: Tensor) -> None:
    """The numbers of a call and what it is given besides its records, as the forward has them."""
    rows = sizes.num_memory_slots * sizes.num_parallel
    if memory.dim() != 2 or not memory.is_contiguous() or (rows and memory.shape[0] != rows):
        expected = f"a contiguous bank of {rows} rows" if rows else "a contiguous bank"
        raise ValueError(f"[sdm_write_read] memory: expected {expected}, got {describe(memory)}")
    forms, geometry = sizes.forms(), sizes.call(memory).geometry
    if forms.gates not in (1, geometry.writes):
        expected = f"1 or {geometry.writes}"
        raise ValueError(f"[sdm_write_read] gates: expected {expected}, got {forms.gates}")
    for name in ("k_val", "v", "beta", "g", "q_val"):
        if not (dtype := getattr(forms, name)).is_floating_point:
            raise TypeError(f"[sdm_write_read] {name}: expected a floating dtype, got {dtype}")
    numbers = math.prod(rows_shape(geometry, forms.heads))
    gy = grad_readings
    if gy.numel() != numbers or gy.device != memory.device or not gy.is_floating_point():
        expected = f"{numbers} floating numbers on {memory.device}"
        given = f"{describe(gy)} on {gy.device}"
        raise ValueError(f"[sdm_write_read] grad_readings: expected {expected}, got {given}")


def _check_saved(memory: Tensor, call: Call, saved: tuple[Tensor, ...]) -> None:
    """Kernels trust the numbers in what was saved; that it was made for such a call is checked."""
    wanted = _saved_forms(call, memory.shape, memory.dtype)
    for name, x, (shape, dtype) in zip(_FIELDS, saved, wanted, strict=True):
        if x.shape != shape or x.dtype != dtype or x.device != memory.device:
            expected = f"{dtype_word(dtype)} {list(shape)} on {memory.device}"
            raise ValueError(
                f"[sdm_write_read] backward: expected the saved {name} as the forward left it, "
                f"{expected}, got {describe(x)} on {x.device}"
            )


@lru_cache(maxsize=64)
def _saved_forms(
    call: Call, bank: torch.Size, dtype: torch.dtype
) -> tuple[tuple[torch.Size, torch.dtype], ...]:
    memory = torch.empty(bank, dtype=dtype, device="meta")
    saved = _flat(KeepStore(memory, call.geometry, 1, call.form, keep_state=False).finish())
    return tuple((x.shape, x.dtype) for x in saved)


def _fake_backward(memory: Tensor, *tensors: Tensor, **sizes: Any) -> tuple[Tensor, ...]:
    given = Sizes(**sizes)
    geometry, forms = given.call(memory).geometry, given.forms()
    lead = geometry.sequences, geometry.tokens
    return Gradients(
        memory=torch.empty_like(memory, memory_format=torch.contiguous_format),
        k_val=memory.new_empty((*lead, geometry.writes), dtype=forms.k_val),
        v=memory.new_empty(rows_shape(geometry, forms.heads), dtype=forms.v),
        beta=memory.new_empty((*lead, 1), dtype=forms.beta),
        g=memory.new_empty((*lead, forms.gates), dtype=forms.g),
        q_val=memory.new_empty((*lead, geometry.reads), dtype=forms.q_val),
    )


def fake_call(memory: Tensor, inputs: Inputs, options: dict[str, Any]) -> tuple[Inputs, Call]:
    """The call on tensors without memory: of any P, T, S and B, of one W, R and hd."""
    inputs, call = check_form(memory, inputs, **options)
    g = call.geometry
    fixed = g._replace(writes=int(g.writes), reads=int(g.reads), head_dim=int(g.head_dim))
    return inputs, call._replace(geometry=fixed)


def define(name: str, schema: str, run: Any, fake: Any) -> None:
    """Make an operator of the package: on the CPU and CUDA, and on tensors without memory."""
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    _LIBRARY.define(name + schema, tags=tags)  # type: ignore[no-untyped-call]
    implement(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"sdm_runtime::{name}", fake, lib=_LIBRARY)


def implement(name: str, run: Any, key: str) -> None:
    """What a call of the operator is for one of torch's dispatch keys."""
    _LIBRARY.impl(name, run, key)  # type: ignore[no-untyped-call]


define(
    "copy_bank",
    "(Tensor memory) -> Tensor",
    lambda memory: memory.detach().clone(),
    torch.empty_like,
)
define(
    "write_read_saving",
    f"({INPUTS}, *, {OPTIONS}) -> (Tensor readings, {_SAVED})",
    _saving,
    _fake_saving,
)
define(
    "write_read_backward",
    f"(Tensor(a!) memory, {_SAVED}, Tensor grad_readings, *, {_SIZES}) -> "
    "(Tensor grad_memory, Tensor grad_k_val, Tensor grad_v, Tensor grad_beta, Tensor grad_g, "
    "Tensor grad_q_val)",
    _backward,
    _fake_backward,
)
