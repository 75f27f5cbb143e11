"""Options of the sparse delta memory layer, checked when they are made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from sdm_runtime.layer.activations import check_activation_name
from sdm_runtime.ops.call.quant import SNAPSHOT_QUANTS, columns_together

DEFAULT_CHUNK_SIZE = 64
MAX_SELECTED = 256  # the payload word of a record holds the write or read index in eight bits
CHUNK_SIZE_RANGE = (16, 256)


@dataclasses.dataclass(frozen=True)
class SparseDeltaMemoryArgs:
    """Options of `SparseDeltaMemory`; names and defaults are those of the published layer.

    Attributes:
        dim: model width; a multiple of `num_heads`. A head is `dim / num_heads` wide.
        num_writes: slots written per token and head, 1 to min(256, slots_per_head).
        num_reads: slots read per token and head, 1 to min(256, slots_per_head).
        slots_per_head: rows S of each head's memory bank.
        chunk_size: tokens per chunk of the operation, 16 to 256; None means 64. It changes the
            speed and the rounding, not the function. A shorter call uses a shorter chunk.
        read_act: weights of the read slots from their scores: "Softmax", "l2_normalize" or the
            name of a torch.nn activation.
        write_act: the same for the written slots.
        read_act_scale: factor on the scores before `read_act`.
        write_act_scale: factor on the scores before `write_act`.
        normalize_readings: LayerNorm over each head's reading.
        norm_eps: epsilon of that LayerNorm.
        A_init_range: decay rates A = exp(A_log) start uniform in this range.
        backprop_on_memory: learn the initial bank (a parameter `memory`); otherwise every call
            without a cache starts from zeros.
        output_gate: multiply the readings with sigmoid(Wog(x)).
        query_batchnorm: BatchNorm1d over the product-key scores of queries and of keys.
        num_heads: heads, each with a bank of its own.
        key_weighted_decay: one log-decay per written slot, g * weight, in place of g for all.
        snapshot_quant: how the operation stores the rows that its backward restores: "none",
            "bf16", "fp8" or "int4".
        grad_bank_fp32: accumulate the bank's gradient in float32 although the bank is bfloat16.
        product_key_factor_dims: widths of the product-key factors, their product is
            `slots_per_head`; None means two factors of sqrt(slots_per_head).
        cuda_graph: a capture of the layer by itself, which this release refuses: capture the
            whole training or decoding step instead, the layer is safe inside a capture.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: a value out of range. Both name the argument, the expected and the given.
    """

    dim: int
    num_writes: int = 64
    num_reads: int = 64
    slots_per_head: int = 10000
    chunk_size: int | None = None
    read_act: str = "Softmax"
    write_act: str = "Softmax"
    read_act_scale: float = 1.0
    write_act_scale: float = 1.0
    normalize_readings: bool = False
    norm_eps: float = 1e-6
    A_init_range: tuple[float, float] = (0, 16)
    backprop_on_memory: bool = True
    output_gate: bool = False
    query_batchnorm: bool = False
    num_heads: int = 1
    key_weighted_decay: bool = False
    snapshot_quant: str = "none"
    grad_bank_fp32: bool = False
    product_key_factor_dims: tuple[int, ...] | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        """Check every argument, in the order in which later checks rely on earlier ones."""
        self._check_flags()
        self._check_sizes()
        self._check_scores()
        self._check_product_keys()

    @property
    def head_dim(self) -> int:
        """Width of one head: the length of a bank row."""
        return self.dim // self.num_heads

    @property
    def factor_dims(self) -> tuple[int, ...]:
        """Widths of the product-key factors, the defaults filled in."""
        if self.product_key_factor_dims is not None:
            return self.product_key_factor_dims
        root = math.isqrt(self.slots_per_head)
        return (root, root)

    @property
    def tokens_per_chunk(self) -> int:
        """The chunk size, the default filled in."""
        return DEFAULT_CHUNK_SIZE if self.chunk_size is None else self.chunk_size

    def _check_flags(self) -> None:
        for field in dataclasses.fields(self):
            if field.type == "bool":
                _check_type(field.name, getattr(self, field.name), bool)
        if self.cuda_graph:
            _fail("cuda_graph", "False (capture the whole step, not the layer alone)", True)

    def _check_sizes(self) -> None:
        for name in ("dim", "num_heads", "slots_per_head"):
            _check_int(name, getattr(self, name), 1, None)
        if self.dim % self.num_heads:
            _fail("dim", f"a multiple of num_heads = {self.num_heads}", self.dim)
        for name in ("num_writes", "num_reads"):
            most = min(MAX_SELECTED, self.slots_per_head)
            _check_int(name, getattr(self, name), 1, most)
        if self.chunk_size is not None:
            _check_int("chunk_size", self.chunk_size, *CHUNK_SIZE_RANGE)
        if self.snapshot_quant not in SNAPSHOT_QUANTS:
            _fail("snapshot_quant", f"one of {', '.join(SNAPSHOT_QUANTS)}", self.snapshot_quant)
        together = columns_together(self.snapshot_quant)
        if self.head_dim % together:
            whole = "an even head size" if together == 2 else f"a head size that {together} divides"
            expected = f"{whole} for {self.snapshot_quant}"
            _fail("snapshot_quant", expected, f"head size {self.head_dim}")

    def _check_scores(self) -> None:
        for name in ("read_act", "write_act"):
            expected = check_activation_name(getattr(self, name))
            if expected is not None:
                _fail(name, expected, getattr(self, name))
        for name in ("read_act_scale", "write_act_scale", "norm_eps"):
            _check_finite(name, getattr(self, name))
        if self.norm_eps <= 0:
            _fail("norm_eps", "a positive number", self.norm_eps)
        bounds = _as_tuple("A_init_range", self.A_init_range)
        for bound in bounds:
            _check_finite("A_init_range", bound)
        if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1]:
            _fail("A_init_range", "two numbers 0 <= low <= high", self.A_init_range)
        object.__setattr__(self, "A_init_range", bounds)

    def _check_product_keys(self) -> None:
        if self.product_key_factor_dims is None:
            if math.isqrt(self.slots_per_head) ** 2 != self.slots_per_head:
                expected = "a square number, or product_key_factor_dims with this product"
                _fail("slots_per_head", expected, self.slots_per_head)
            return
        dims = _as_tuple("product_key_factor_dims", self.product_key_factor_dims)
        for width in dims:
            _check_int("product_key_factor_dims", width, 1, None)
        if not dims or math.prod(dims) != self.slots_per_head:
            expected = f"widths whose product is slots_per_head = {self.slots_per_head}"
            _fail("product_key_factor_dims", expected, dims)
        object.__setattr__(self, "product_key_factor_dims", dims)


def _message(name: str, expected: str, given: object) -> str:
    return f"[SparseDeltaMemoryArgs] {name}: expected {expected}, got {given!r}"


def _fail(name: str, expected: str, given: object) -> None:
    raise ValueError(_message(name, expected, given))


def _check_type(name: str, given: object, kind: type) -> None:
    if not isinstance(given, kind):
        raise TypeError(_message(name, kind.__name__, given))


def _check_int(name: str, given: object, low: int, high: int | None) -> None:
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(_message(name, "int", given))
    if given < low or (high is not None and given > high):
        bounds = f"at least {low}" if high is None else f"{low} to {high}"
        _fail(name, bounds, given)


def _check_finite(name: str, given: object) -> None:
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise TypeError(_message(name, "a number", given))
    if not math.isfinite(given):
        _fail(name, "a finite number", given)


def _as_tuple(name: str, given: object) -> tuple[Any, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(_message(name, "a sequence of numbers", given))
    return tuple(given)
