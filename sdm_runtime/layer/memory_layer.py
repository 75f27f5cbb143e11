"""The sparse delta memory layer."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from sdm_runtime.layer import decoding
from sdm_runtime.layer.activations import SlotWeights
from sdm_runtime.layer.args import SparseDeltaMemoryArgs
from sdm_runtime.layer.bank import initial_bank, no_readings
from sdm_runtime.layer.cache import MemoryCache
from sdm_runtime.layer.candidates import candidate_tables
from sdm_runtime.layer.gates import token_gates
from sdm_runtime.layer.initialization import (
    init_decay_rates_,
    init_step_bias_,
    reset_module,
    tensors_by_holder,
)
from sdm_runtime.layer.inputs import check_inputs
from sdm_runtime.layer.prepared import PreparedCalls, run_prepared
from sdm_runtime.layer.projection import plain_linear, project
from sdm_runtime.layer.selection import RAW, Selection, own_weights, select_slots
from sdm_runtime.ops import sdm_write_read
from sdm_runtime.ops.autograd.autocast import without_autocast
from sdm_runtime.ops.autograd.function import watch_bank


class SparseDeltaMemory(nn.Module):
    """A layer whose tokens read and write a few slots of a large memory.

    Every head of every batch element owns a bank of `slots_per_head` rows. A token's key selects
    the slots it writes by the gated delta rule, its query those it reads; both are exact top-k
    selections over a product key. Parameters carry the published names and shapes, so published
    state dicts load with strict=True.

    The bank, and with it the operation, has the dtype of `x` (float32 or bfloat16), or autocast's;
    a learned `memory` is a float32 master copy under autocast, as any weight. A cached bank keeps
    its own dtype. Gates, scores and slot weights are computed in float32.

    Projections, norms and activations are called as they are: any may be replaced by a module of
    another kind (quantized, wrapped, of low rank) that maps the same sizes, and its parameters may
    be elsewhere until it is called. The layer's own parameters (`A_log`) say on which device it is.

    In eval mode and without gradients, calls of at most 32 tokens a sequence run as plans (see
    DESIGN.md beside this file): the bank is rounded after every token, not once a chunk. There, and
    in longer calls of up to 128 tokens, kernels of bf16_linear may stand for bfloat16 projections
    on a Hopper GPU. They add up in another order than nn.Linear, so roundings may differ; set the
    attribute `low_latency_projections` to False for nn.Linear's sums.

    Args:
        args: the options.
        layer_id: the layer's number in a model, for the caller's use and in messages.
    """

    memory: nn.Parameter | None
    low_latency_projections: bool = True

    def __init__(self, args: SparseDeltaMemoryArgs, layer_id: int = 0) -> None:
        """Build the layer with fresh parameters."""
        super().__init__()
        if not isinstance(args, SparseDeltaMemoryArgs):
            given = type(args).__name__
            raise TypeError(
                f"[SparseDeltaMemory] args: expected SparseDeltaMemoryArgs, got {given}"
            )
        self.args = args
        self.layer_id = layer_id
        dim, heads = args.dim, args.num_heads
        scores = heads * sum(args.factor_dims)
        self.Wq_read = nn.Linear(dim, scores)
        self.Wk_write = nn.Linear(dim, scores)
        self.Wv_write = nn.Linear(dim, dim)
        self.Wo = nn.Linear(dim, dim)
        self.a_proj = nn.Linear(dim, heads)
        self.b_proj = nn.Linear(dim, heads)
        self.A_log = nn.Parameter(torch.empty(heads))
        self.dt_bias = nn.Parameter(torch.empty(heads))
        self.Wog = nn.Linear(dim, dim) if args.output_gate else None
        self.readings_norm = (
            nn.LayerNorm(args.head_dim, eps=args.norm_eps) if args.normalize_readings else None
        )
        self.query_bn = nn.BatchNorm1d(scores) if args.query_batchnorm else None
        self.key_bn = nn.BatchNorm1d(scores) if args.query_batchnorm else None
        bank = torch.empty(heads * args.slots_per_head, args.head_dim)
        self.memory = nn.Parameter(bank) if args.backprop_on_memory else None
        self.read_act = SlotWeights(args.read_act, args.read_act_scale)
        self.write_act = SlotWeights(args.write_act, args.write_act_scale)
        self._write_tables = candidate_tables(args.factor_dims, args.num_writes)
        self._read_tables = candidate_tables(args.factor_dims, args.num_reads)
        self._prepared_calls = PreparedCalls()
        self._reset_own_parameters(("A_log", "dt_bias", "memory"))
        self._prepare_tables()

    def forward(self, x: Tensor, cache: MemoryCache | None = None) -> tuple[Tensor, MemoryCache]:
        """Write and read the memory, token after token.

        Args:
            x: [B, T, dim], float32 or bfloat16 as the projections take it, or any that autocast
                takes.
            cache: what an earlier call returned, to go on from there; None starts from the learned
                bank, or from zeros without one. See `MemoryCache` for who owns its bank.

        Returns:
            y [B, T, dim] and the cache after the last token. After a training call in eager its
            bank is valid until that call's backward.

        Raises:
            TypeError, ValueError: an argument that does not fit, by name, before any work.
            RuntimeError: the cache is no longer valid.
        """
        if (made := run_prepared(self, x, cache)) is not None:
            return made
        plain = plain_linear(self.Wv_write)
        weight = None if plain is None else plain.weight
        dtype = check_inputs(self.args, self.A_log.device, weight, x, cache)
        way = decoding.way_of(self, x) if decoding.is_decoding(self, x) else None
        if isinstance(way, decoding.Way):
            return decoding.decode(self, x, dtype, cache, way)
        values = self._split_heads(self._project(self.Wv_write, x))
        beta, log_decay = self._gates(x)
        key_scores, query_scores = self._project(self.Wk_write, x), self._project(self.Wq_read, x)
        k_idx, k_val, q_idx, q_val = self._select(key_scores, query_scores)
        with without_autocast(x.device.type):
            if self.args.key_weighted_decay:
                log_decay = log_decay * k_val
            readings, new_cache = self._remember(
                x, dtype, cache, (k_idx, k_val, values, beta, log_decay, q_idx, q_val)
            )
        gate = None if self.Wog is None else self._project(self.Wog, x)
        y = self._merge(readings.to(dtype), gate, dtype)
        if cache is not None:
            cache.returned()
        if way is not None:
            decoding.report_refused(way, x.device)
        return y, new_cache

    if TYPE_CHECKING:  # nn.Module's takes and gives anything
        __call__ = forward

    def reset_parameters(self, names: Iterable[str] | None = None) -> None:
        """Draw parameters anew, as construction does: all of them, or the named ones by themselves.

        All are drawn after `to_empty`, which leaves them without values. A loader that has found
        some in a checkpoint names those that it missed, in a framework's hook for example::

            def _init_weights(self, module):
                if isinstance(module, SparseDeltaMemory):
                    state = [*module.named_parameters(), *module.named_buffers()]
                    module.reset_parameters(name for name, t in state if not was_loaded(t))

        Values are written through torch.nn.init alone, so that a framework which guards its
        functions for what it has loaded may also ask for all.

        Args:
            names: parameters and buffers, as `state_dict` names them: "memory", "Wo.weight".

        Raises:
            TypeError: `names` are not strings, or are one string.
            ValueError: a name that is not there, or of a module without `reset_parameters`; nothing
                was changed.
        """
        wanted = tensors_by_holder(self, names)
        for holder, own in wanted.items():
            if holder is not self:
                reset_module(holder, own)
        self._reset_own_parameters(wanted.get(self, set()))

    def extra_repr(self) -> str:
        """The sizes that the submodules do not show."""
        a = self.args
        return (
            f"slots={a.num_heads}x{a.slots_per_head}, factors={list(a.factor_dims)}, "
            f"writes={a.num_writes}, reads={a.num_reads}, layer_id={self.layer_id}"
        )

    def _reset_own_parameters(self, names: Container[str]) -> None:
        if "A_log" in names:
            init_decay_rates_(self.A_log, self.args.A_init_range)
        if "dt_bias" in names:
            init_step_bias_(self.dt_bias)
        if "memory" in names and self.memory is not None:
            nn.init.zeros_(self.memory)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Move or cast."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._prepare_tables()
        return self

    def _prepare_tables(self) -> None:
        """Before a compilation or a capture, which could not make them."""
        device = self.A_log.device
        if device.type in ("cpu", "cuda"):
            self._write_tables.on(device)
            self._read_tables.on(device)

    def _project(self, linear: nn.Module, x: Tensor) -> Tensor:
        return project(linear, x, low_latency=self.low_latency_projections)

    def _gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Write strength and log-decay, float32 [B*H, T, 1]."""
        b, a = self._project(self.b_proj, x), self._project(self.a_proj, x)
        return token_gates(a, b, self.A_log, self.dt_bias)

    def _select(self, key_scores: Tensor, query_scores: Tensor) -> Selection:
        """From projected scores [B, T, H*K]: rows of the bank and their weights [B*H, T, k]."""
        args = self.args
        writes, reads = own_weights(self.write_act), own_weights(self.read_act)
        selected = select_slots(
            decoding.normalized(key_scores, self.key_bn),
            decoding.normalized(query_scores, self.query_bn),
            args.factor_dims,
            args.num_heads,
            self._write_tables,
            self._read_tables,
            writes,
            reads,
        )
        k_idx, k_val, q_idx, q_val = selected
        with without_autocast(key_scores.device.type):
            if writes is RAW:
                k_val = self.write_act(k_val)
            if reads is RAW:
                q_val = self.read_act(q_val)
        return Selection(k_idx, k_val, q_idx, q_val)

    def _remember(
        self, x: Tensor, dtype: torch.dtype, cache: MemoryCache | None, operands: tuple[Tensor, ...]
    ) -> tuple[Tensor, MemoryCache]:
        """Advance the bank by the call's tokens: the readings [B, T, H, head_dim] and the cache."""
        tokens, traced = x.shape[1], torch.compiler.is_compiling()
        if cache is not None and traced:
            bank = cache.take_traced(copy=torch.is_grad_enabled() or self.training)
        else:
            bank = self._bank_for_call(x, dtype, cache, operands[0])
        if bank.numel() and tokens:
            readings = self._write_read(bank, operands)
            advanced = readings.requires_grad
        else:
            readings, advanced = no_readings(bank, operands, operands[2]), False
        seen = tokens if cache is None else cache.tokens + tokens
        if traced:  # a graph's backward restores its own bank; a copy that nobody asks for is none
            return readings, MemoryCache(bank.clone() if advanced else bank, seen)
        new_cache = MemoryCache(bank, seen, valid_until_backward=advanced)
        if advanced:
            watch_bank(readings, new_cache)
        return readings, new_cache

    def _bank_for_call(
        self, x: Tensor, dtype: torch.dtype, cache: MemoryCache | None, written: Tensor | None
    ) -> Tensor:
        """The bank [B*H*S, head_dim] that this call may advance, at rows as take_bank has them."""
        if cache is not None:
            return cache.take_bank(written, copy=torch.is_grad_enabled() or self.training)
        args = self.args
        if self.memory is not None:
            return initial_bank(self.memory, x.shape[0], dtype)
        rows = x.shape[0] * args.num_heads * args.slots_per_head
        return torch.zeros(rows, args.head_dim, dtype=dtype, device=x.device)

    def _write_read(self, bank: Tensor, operands: tuple[Tensor, ...]) -> Tensor:
        """Run the operation on `bank` in place: the readings [B, T, H, head_dim]."""
        args = self.args
        return sdm_write_read(
            bank,
            *operands,
            chunk_size=args.tokens_per_chunk,
            num_memory_slots=args.slots_per_head,
            num_parallel=bank.shape[0] // args.slots_per_head,
            snapshot_quant=args.snapshot_quant,
            grad_bank_fp32=args.grad_bank_fp32,
        )

    def _merge(self, readings: Tensor, gate: Tensor | None, dtype: torch.dtype) -> Tensor:
        """From readings [B, T, H, head_dim] and Wog(x), if there is one, to the output."""
        if self.readings_norm is not None:
            readings = self.readings_norm(readings)
        merged = readings.flatten(2)
        if gate is not None:
            merged = merged * torch.sigmoid(gate)
        return self._project(self.Wo, merged.to(dtype))

    def _split_heads(self, projected: Tensor) -> Tensor:
        """[B, T, H*n] to [B, T, H, n]."""
        heads = self.args.num_heads
        return projected.view(*projected.shape[:-1], heads, projected.shape[-1] // heads)
