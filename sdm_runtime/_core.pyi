"""The extension (csrc/bindings), as a type checker sees it; tests/test_core_stub.py compares them.

Streams and handles are addresses. Arguments before a ``/`` have no names.
"""

import builtins
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypedDict

import numpy
import torch
from typing_extensions import Buffer

_Bytes = Buffer | numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.uint8]]

class Device:
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __init__(self, cuda: bool, index: int) -> None: ...
    def __str__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...

class TensorRef:
    def __init__(
        self,
        data: int,
        dtype: int,
        device: Device,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None: ...
    def __str__(self) -> str: ...

class Operands:
    def aligned(self, bytes: int) -> bool: ...
    def moved(
        self, tensors: Mapping[str, torch.Tensor], memories: list[torch.Tensor]
    ) -> str | None: ...

class ArenaLayout:
    # A part: name, dtype, shape, first byte.
    def __init__(self, parts: list[tuple[str, int, tuple[int, ...], int]], bytes: int) -> None: ...

class TensorReader:
    def __init__(self, strided: torch.layout, dtypes: dict[torch.dtype, int]) -> None: ...
    def read(self, tensor: object, /) -> TensorRef | None: ...
    def read_all(
        self,
        tensors: dict[str, torch.Tensor],
        arenas: list[tuple[torch.Tensor, ArenaLayout]],
    ) -> Operands | None: ...

_Dim3 = tuple[int, int, int]

class _PlanHeader(TypedDict):
    kernel: str
    entry: str
    backend: Literal["host", "cuda"]
    steps: int
    grid: _Dim3
    block: _Dim3
    cluster: _Dim3
    shared_bytes: int
    programmatic: bool
    library: bool

class Plan:
    @staticmethod
    def decode(data: _Bytes, /) -> Plan: ...
    def bytes(self) -> builtins.bytes: ...
    def params(self) -> builtins.bytes: ...
    def header(self) -> _PlanHeader: ...
    def library(self) -> bool: ...
    # A field: name, type, offset, size.
    def fields(self) -> list[tuple[str, int, int, int]]: ...
    # A patch: field, kind, base, stride, lowest, highest.
    def patches(self) -> list[tuple[int, int, int, int, int, int]]: ...
    # A relocation: operand, field, dtype, access, align, offset, extent, step_stride, step_bytes.
    def relocs(self) -> list[tuple[str, int, int, int, int, int, int, int, int]]: ...
    def bind(self, operands: Sequence[tuple[str, TensorRef]], /) -> BoundPlan: ...

class BoundPlan:
    def plan(self) -> Plan: ...
    def device(self) -> Device: ...

class Chain:
    def __init__(self, plans: Sequence[BoundPlan], steps: int, ascending: bool = False) -> None: ...
    def run(self, stream: int, blas_handle: int = 0, windowed: bool | None = None) -> None: ...
    def early_starts(self) -> list[bool]: ...
    def has_library_step(self) -> bool: ...
    def rebind(self, operands: Operands) -> Chain: ...
    def resized(
        self, operands: Operands, steps: int, numbers: Sequence[tuple[str, int]]
    ) -> Chain: ...
    def bound_plans(self) -> list[BoundPlan]: ...
    def ascending(self) -> bool: ...
    def on_host(self) -> bool: ...
    # A launch: plan, start, end.
    def run_timed(self) -> list[tuple[int, int, int]]: ...
    def run_step(self, ti: int, /) -> None: ...
    def launches(self) -> int: ...
    def steps(self) -> int: ...
    def device(self) -> Device: ...

# A chain with operands at kept addresses, run with the given ones at others: those of tensors in
# order, then of arenas' memories.
class HeldChain:
    def __init__(self, chain: Chain, kept: Operands, given: Operands) -> None: ...
    def run(self, addresses: Sequence[int], stream: int, /) -> None: ...

def check_together(plans: Sequence[Plan], steps: int, /) -> None: ...
def encode_chain(plans: Sequence[Plan], steps: int, ascending: bool = False) -> bytes: ...
def decode_chain(data: _Bytes, /) -> tuple[list[Plan], int, bool]: ...
def early_fields(kernel: str, /) -> list[str]: ...
def kernel_names() -> list[str]: ...

# Of a struct of the wire format: its size, and offset and size of every member.
def format_layout() -> dict[str, tuple[int, dict[str, tuple[int, int]]]]: ...

class _DeviceProfile(TypedDict):
    name: str
    capability: tuple[int, int]
    sm_count: int
    shared_bytes_optin: int
    pdl: bool
    forced: bool
    uuid: str

def cuda_unavailable() -> str: ...
def device_profile(index: int, /) -> _DeviceProfile: ...

# The library step, and what qualifies kernels against it.
def ask_each(getters: Sequence[int], handle: int, /) -> tuple[int, ...]: ...
def library_changes() -> int: ...
def plan_blas_gemm(
    d_u: TensorRef, x: TensorRef, d_dv: TensorRef, num_parallel: int, steps: int, /
) -> BoundPlan: ...

# Kernels of all chunks of a call.
def event_order(
    refs: Operands,
    num_slots: int,
    bank_rows: int,
    chunk_size: int,
    first_step: int,
    stream: int,
    /,
) -> None: ...
def outside_slot(
    refs: Operands, num_slots: int, bank_rows: int, /
) -> tuple[str, int, int] | None: ...
def chunk_prepare(
    refs: Operands,
    chain: Operands | None,
    steps: Operands | None,
    chunk_size: int,
    first_step: int,
    bf16_weights: bool,
    stream: int,
    /,
) -> None: ...
def pair_matrices(refs: Operands, num_writes: int, stream: int, /) -> None: ...
def chunk_inverse(refs: Operands, stream: int, /) -> None: ...
def token_gradients(refs: Operands, first_step: int, stream: int, /) -> None: ...
def chunk_readings(refs: Operands, first_step: int, stream: int, /) -> None: ...
def chunk_gradients(refs: Operands, chunk_size: int, first_step: int, stream: int, /) -> None: ...

# bf16_linear; a choice is a tactic's index and the number of depth splits.
class _TacticRow(TypedDict):
    entry: str
    rows: int
    tokens: int
    depth: int
    stages: int
    token_stages: int
    sharers: int
    shared_bytes: int
    splits: tuple[int, ...]

def bf16_linear(
    x: TensorRef,
    weight: TensorRef,
    bias: TensorRef | None,
    y: TensorRef,
    choice: tuple[int, int] | None,
    pdl: bool,
    stream: int,
    /,
) -> None: ...
def plan_bf16_linear(
    x: TensorRef,
    weight: TensorRef,
    bias: TensorRef | None,
    y: TensorRef,
    choice: tuple[int, int] | None,
    pdl: bool,
    /,
) -> BoundPlan: ...
def bf16_linear_tactics() -> list[_TacticRow]: ...
def bf16_linear_pick(m: int, n: int, k: int, sm_count: int, /) -> tuple[int, int]: ...
def bf16_linear_blocks(m: int, n: int, k: int, tactic: int, splits: int, /) -> int: ...

# Several weights in one launch; every weight has its entry in biases and ys.
def bf16_linear_group(
    x: TensorRef,
    weights: Sequence[TensorRef],
    biases: Sequence[TensorRef | None],
    ys: Sequence[TensorRef],
    choice: tuple[int, int] | None,
    pdl: bool,
    stream: int,
    /,
) -> None: ...
def plan_bf16_linear_group(
    x: TensorRef,
    weights: Sequence[TensorRef],
    biases: Sequence[TensorRef | None],
    ys: Sequence[TensorRef],
    choice: tuple[int, int] | None,
    pdl: bool,
    /,
) -> BoundPlan: ...
def bf16_linear_group_tactics() -> list[int]: ...
def bf16_linear_group_pick(
    m: int, rows: Sequence[int], k: int, sm_count: int, /
) -> tuple[int, int]: ...

# The layer's kernels around the operation.
def token_gates(refs: Operands, stream: int, /) -> None: ...
def plan_token_gates(refs: Operands, pdl: bool, /) -> BoundPlan: ...
def token_gates_grad(refs: Operands, stream: int, /) -> None: ...
def plan_token_gates_grad(refs: Operands, /) -> BoundPlan: ...
def decode_step(refs: Operands, slots: int, key_weighted: bool, stream: int, /) -> None: ...
def plan_decode_step(refs: Operands, slots: int, key_weighted: bool, pdl: bool, /) -> BoundPlan: ...

# Scores, positions, slots, weights and norms by side;
# the scores' first column; no activation, softmax or l2_normalize as 0, 1, 2; its scale.
# Limits: factors, a factor's width, slots, candidates.
def slot_select_limits() -> tuple[int, int, int, int]: ...
def slot_select(
    key: Operands | None,
    key_first: int,
    key_activation: int,
    key_scale: float,
    query: Operands | None,
    query_first: int,
    query_activation: int,
    query_scale: float,
    widths: Sequence[int],
    num_heads: int,
    pdl: bool,
    stream: int,
    /,
) -> None: ...
def plan_slot_select(
    key: Operands | None,
    key_first: int,
    key_activation: int,
    key_scale: float,
    query: Operands | None,
    query_first: int,
    query_activation: int,
    query_scale: float,
    widths: Sequence[int],
    num_heads: int,
    pdl: bool,
    /,
) -> BoundPlan: ...
def merge_readings(refs: Operands, eps: float, stream: int, /) -> None: ...
def plan_merge_readings(refs: Operands, eps: float, pdl: bool, /) -> BoundPlan: ...

# slot_select_grad: operands d_weights, slots, weights, norms and d_scores by side.
def slot_select_grad(
    key: Operands | None,
    key_activation: int,
    key_scale: float,
    query: Operands | None,
    query_activation: int,
    query_scale: float,
    widths: Sequence[int],
    num_heads: int,
    stream: int,
    /,
) -> None: ...
def plan_slot_select_grad(
    key: Operands | None,
    key_activation: int,
    key_scale: float,
    query: Operands | None,
    query_activation: int,
    query_scale: float,
    widths: Sequence[int],
    num_heads: int,
    /,
) -> BoundPlan: ...

# Kernels of rows.
def row_formats() -> dict[str, tuple[int, float | None]]: ...
def quantize_rows(rows: TensorRef, codes: TensorRef, scales: TensorRef, format: str, /) -> None: ...
def plane_reduce(
    planes: TensorRef,
    out: TensorRef,
    factor: TensorRef | None,
    negate: bool,
    group: int,
    num_tokens: int,
    num_parallel: int,
    chunk_size: int,
    stream: int,
    /,
) -> None: ...

# Step kernels by name: operands, numbers and words by the names of their tables.
def run_step(
    kernel: str,
    operands: Sequence[tuple[str, TensorRef]],
    numbers: Sequence[tuple[str, int]],
    words: Sequence[tuple[str, str]],
    ti: int,
    stream: int,
) -> None: ...
def record_step(
    kernel: str,
    operands: Sequence[tuple[str, TensorRef]],
    numbers: Sequence[tuple[str, int]],
    words: Sequence[tuple[str, str]],
    steps: int,
    pdl: bool,
) -> BoundPlan: ...

# By kernel: operands (name, access, optional), numbers (name, optional) and words.
_StepTable = tuple[list[tuple[str, int, bool]], list[tuple[str, bool]], list[str]]

def step_tables() -> dict[str, _StepTable]: ...

# Only in a build with CUDA: each of these names is missing elsewhere.
class ChainGraph:
    def __init__(
        self, chain: Chain, capture_stream: int = 0, blas_handle: int = 0, done: int = 0
    ) -> None: ...
    def replay(self, stream: int, /) -> None: ...
    def rebind(
        self, chain: Chain, capture_stream: int = 0, blas_handle: int = 0, done: int = 0
    ) -> None: ...
    def handle(self) -> int: ...
    def nodes(self) -> int: ...
    def programmatic_edges(self) -> int: ...

class PrivateStream:
    def __init__(self, device: int) -> None: ...
    def handle(self) -> int: ...

def exchange_capture_mode(mode: int, /) -> int: ...
def enable_ranges(on: bool, /) -> None: ...
def enable_counter(on: bool, /) -> None: ...
def counted_launches() -> int: ...
