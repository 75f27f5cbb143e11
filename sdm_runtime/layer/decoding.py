"""A call of few tokens without gradient, as one chain of plans.

On a Hopper GPU in bfloat16 the chain is: the projections of x in one grouped launch, the slots of
keys and queries with their weights, the gates, the step, what merges the heads where there is a
norm or an output gate, and the output projection. What no plan can run (a projection with hooks,
float32 weights, a norm of scores) is called as it is, before the chain or after it. Plans are
recorded for the first call of a kind and bound for those that follow; a whole chain that has run
runs again without a look at the layer beyond whether it has changed (`prepared.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter_ns
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sdm_runtime.dispatch import Dispatch, chain_to_offer, offer_chain, record
from sdm_runtime.layer.cache import MemoryCache
from sdm_runtime.layer.decoding_plans import (
    SELECTED,
    Forms,
    Plans,
    layout,
    slot_plans,
    step_plans,
    whole_plans,
)
from sdm_runtime.layer.prepared import (
    OP,
    Kind,
    Layer,
    PreparedCall,
    advancing,
    fit_operand,
    watched,
)
from sdm_runtime.layer.projection import is_plain, kernel_parameters, kernel_takes
from sdm_runtime.layer.selection import RAW, Weights, own_weights, unserved
from sdm_runtime.machine.backends import supports_pdl
from sdm_runtime.ops.routes.bound_chains import bound_chain
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.held_chain import HeldChain
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.differentiable import may_run_again
from sdm_runtime.tensor.dtypes import KERNEL_DTYPES
from sdm_runtime.tensor.words import describe

# Of a sequence: they run one after the other, and 64 longer than as a chunk (docs/measured.md).
MOST_TOKENS = 32

# The projections of x in the order of the grouped launch: the layer's module, and what plans call
# its output.
_PROJECTIONS = {
    "Wq_read": "query_scores",
    "Wk_write": "key_scores",
    "Wv_write": "v",
    "a_proj": "gate_a",
    "b_proj": "gate_b",
    "Wog": "gate",
}


class Way(NamedTuple):
    """How a call's selected scores become weights: what a chain must know of it beforehand."""

    writes: Weights
    reads: Weights


def is_decoding(layer: Layer, x: Tensor) -> bool:
    """Whether a call may go this way: few tokens, nothing trained, and nothing traces it.

    A reentrant checkpoint makes its call a second time with gradients: both go the general way.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or layer.training:
        return False
    return 0 < x.shape[1] <= MOST_TOKENS and x.shape[0] > 0 and not may_run_again()


def way_of(layer: Layer, x: Tensor) -> Way | str:
    """The way of a call that may go it, or why it does not."""
    if x.is_meta:
        return "x has no memory"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast chooses the dtypes"
    if type(x) is not Tensor:
        return f"x is a {type(x).__name__}"
    if (reason := watched()) is not None:
        return reason
    for name, own in (("A_log", layer.A_log), ("dt_bias", layer.dt_bias)):
        if type(own) is not nn.Parameter:
            return f"{name} is a {type(own).__name__}"
        if own.dtype not in KERNEL_DTYPES or not own.is_contiguous():
            return f"{name} is {describe(own)} with strides {list(own.stride())}"
    writes, reads = layer._write_tables, layer._read_tables
    if (reason := unserved(layer.args.factor_dims, writes, reads)) is not None:
        return reason
    way = Way(own_weights(layer.write_act), own_weights(layer.read_act))
    if RAW in way:
        acts = zip(("write_act", "read_act"), way, strict=True)
        return f"called as they are: {', '.join(name for name, own in acts if own is RAW)}"
    return way


def report_refused(reason: str, device: torch.device) -> None:
    """Record that a call of few tokens went the general way."""
    backend = "cuda" if device.type == "cuda" else "host"
    record(Dispatch(op=OP, route="general", reason=reason, backend=backend))


def decode(
    layer: Layer, x: Tensor, dtype: torch.dtype, cache: MemoryCache | None, way: Way
) -> tuple[Tensor, MemoryCache]:
    """The layer's forward for a call that has a way."""
    call = _Call(layer, x, dtype, cache, way)
    return call.run_whole() if call.forms.ended else call.run_to_readings()


class _Call:
    """One call, from x to its result."""

    def __init__(
        self, layer: Layer, x: Tensor, dtype: torch.dtype, cache: MemoryCache | None, way: Way
    ) -> None:
        """Call what no plan can run, and find out what plans are to run."""
        self.layer, self.x, self.dtype, self.cache = layer, x, dtype, cache
        self.in_plans = layer.low_latency_projections and kernel_takes(x)  # products with weights
        # Operands that stay from call to call, and those of this one.
        self.lasting: dict[str, Tensor] = {"A_log": layer.A_log, "dt_bias": layer.dt_bias}
        self.lasting["key_positions"] = layer._write_tables.on(x.device).packed
        self.lasting["query_positions"] = layer._read_tables.on(x.device).packed
        self.operands: dict[str, Tensor] = {}
        self.called: list[str] = []  # modules, as they are
        projected = self._project()
        self.plan_us = 0.0
        self.ending: dict[str, Tensor] = {}  # what the end of a whole chain lastingly needs
        self.forms = self._forms(projected, way)

    def run_whole(self) -> tuple[Tensor, MemoryCache]:
        """One chain to the output: nothing but the device can fail once it has begun."""
        layer, x = self.layer, self.x
        y = x.new_empty(x.shape, dtype=self.dtype)
        arena = layout(layer.args, self.forms).allocate(x)
        bank = layer._bank_for_call(x, self.dtype, self.cache, None)
        lasting, operands = self.lasting | self.ending, self.operands | {"bank": bank, "y": y}
        try:
            chain = self._chain(whole_plans, lasting | operands, (arena,))
        except BaseException:
            if self.cache is not None:
                self.cache.untouched()
            raise
        offered = chain_to_offer(chain)
        with advancing(bank, self.cache):
            chain.run()
        offer_chain(offered)
        ran = self._dispatch(chain.launches)
        if self.forms.projected:
            held = HeldChain(chain, lasting, operands, (arena,))
            again = replace(ran, plan_us=0.0)
            prepared = PreparedCall(layer, held, arena.layout, again, self.forms)
            layer._prepared_calls.keep(Kind.of(x, bank), prepared)
        return y, self._finish(bank, ran)

    def run_to_readings(self) -> tuple[Tensor, MemoryCache]:
        """A chain to the slots and one for the step: a module is called behind, which may raise."""
        layer, x, args = self.layer, self.x, self.layer.args
        arena = layout(args, self.forms).allocate(x)
        made = arena if self.forms.projected else self.operands
        v, gate = made["v"], made.get("gate")
        before = {k: t for k, t in self.operands.items() if k not in ("v", "gate")}
        slots = self._chain(slot_plans, self.lasting | before, (arena,))
        slots.run()
        selected = {name: arena[name] for name in SELECTED}
        bank = layer._bank_for_call(x, self.dtype, self.cache, selected["k_idx"])
        readings = bank.new_empty((*x.shape[:2], args.num_heads, args.head_dim))
        step = selected | {"v": v, "bank": bank, "readings": readings}
        chain = self._chain(step_plans, step, ())
        offered = chain_to_offer(chain)
        with advancing(bank, self.cache):
            chain.run()
        offer_chain(offered)
        y = layer._merge(readings.to(self.dtype), gate, self.dtype)
        return y, self._finish(bank, self._dispatch(slots.launches + chain.launches))

    def _project(self) -> bool:
        """Leave the projections to the chain (True), or call them for operands of it."""
        layer, x, found = self.layer, self.x, self.layer._modules
        modules = {name: module for name in _PROJECTIONS if (module := found.get(name)) is not None}
        widths = self._widths()
        if layer.query_bn is layer.key_bn is None and self._add_weights(modules, widths):
            self.operands["group_x"] = fit_operand(x.reshape(-1, x.shape[2]))
            return True
        self.called += modules
        for name, module in modules.items():
            self.operands[_PROJECTIONS[name]] = layer._project(module, x)
        for name, norm in (("query_scores", layer.query_bn), ("key_scores", layer.key_bn)):
            self.operands[name] = normalized(self.operands[name], norm)
        for name in modules:
            if (made := _PROJECTIONS[name]) != "gate":  # which may be spread over the readings
                self._check(name, self.operands[made], widths[made])
        self.operands["v"] = layer._split_heads(self.operands["v"])
        scores = ("query_scores", "key_scores")
        if self.operands[scores[0]].dtype != self.operands[scores[1]].dtype:  # a plan takes one
            self.operands |= {name: self.operands[name].float() for name in scores}
        self.operands = {name: fit_operand(projected) for name, projected in self.operands.items()}
        return False

    def _widths(self) -> dict[str, int]:
        """Columns of what the projections make, by what plans call it."""
        args = self.layer.args
        scores, heads = args.num_heads * sum(args.factor_dims), args.num_heads
        widths = {"query_scores": scores, "key_scores": scores, "v": args.dim}
        return widths | {"gate_a": heads, "gate_b": heads, "gate": args.dim}

    def _check(self, name: str, made: Tensor, width: int) -> None:
        """Refuse what plans of other sizes or memory would take for what it is not."""
        wanted, device = (*self.x.shape[:2], width), self.x.device
        if made.shape == wanted and made.device == device and made.layout is torch.strided:
            return
        raise ValueError(
            f"[SparseDeltaMemory] {name}: expected a dense result {list(wanted)} on {device}, "
            f"got {describe(made)} on {made.device}"
        )

    def _add_weights(self, modules: Mapping[str, nn.Module], widths: Mapping[str, int]) -> bool:
        """Make the weights operands; False if a module must be called."""
        found: dict[str, Tensor] = {}
        for index, (name, module) in enumerate(modules.items()):
            own = kernel_parameters(module, self.x) if self.in_plans else None
            if own is None or own[0].shape[0] != widths[_PROJECTIONS[name]]:
                return False
            found[f"weight_{index}"], bias = own
            if bias is not None:
                found[f"bias_{index}"] = bias
        self.lasting |= found
        return True

    def _forms(self, projected: bool, way: Way) -> Forms:
        layer, x, norm = self.layer, self.x, self.layer.readings_norm
        bank = self.dtype if self.cache is None else self.cache.bank_for_call().dtype
        ended = self._add_ending(norm)
        if not ended:
            self.called.append("Wo")
        gated = layer._modules.get("Wog") is not None
        eps = float(norm.eps) if norm is not None and ended else None
        merged = ended and (eps is not None or gated or bank != self.dtype)
        batch, tokens = x.shape[:2]
        kinds = (bank, self.dtype, projected, ended, gated, merged, eps, way.writes, way.reads)
        return Forms(batch, tokens, *kinds)

    def _add_ending(self, norm: nn.LayerNorm | None) -> bool:
        """Make operands of what the end needs; False if its modules must be called."""
        own = kernel_parameters(self.layer.Wo, self.x) if self.in_plans else None
        if own is None or own[0].shape[0] != self.x.shape[2]:
            return False
        gate = self.operands.get("gate")
        if gate is not None and gate.shape != self.x.shape:
            return False
        self.ending["weight"], bias = own
        if bias is not None:
            self.ending["bias"] = bias
        if norm is None:
            return True
        # Replaced modules of other kinds have other parameters.
        weight, bias = norm._parameters.get("weight"), norm._parameters.get("bias")
        if not is_plain(norm, nn.LayerNorm) or weight is None or bias is None:
            return False
        self.ending |= {"norm_weight": weight, "norm_bias": bias}
        return weight.dtype == bias.dtype and all(
            type(own) is nn.Parameter
            and own.dtype in KERNEL_DTYPES
            and own.is_contiguous()
            and own.shape == (self.layer.args.head_dim,)
            for own in (weight, bias)
        )

    def _chain(
        self, plans: Plans, operands: dict[str, Tensor], arenas: tuple[Arena, ...]
    ) -> StepChain:
        """The chain on these operands, recorded for the first call of the kind."""
        args, forms, device = self.layer.args, self.forms, self.x.device
        pdl, begin = supports_pdl(device), perf_counter_ns()

        def record_plans() -> StepChain:
            named = dict(operands)
            for arena in arenas:
                named |= arena.operands()
            return StepChain(plans(args, forms, named, pdl), 1, order="ascending")

        given = tuple((name, x.dtype, x.shape) for name, x in operands.items())
        kind = (OP, plans, args, forms, given, device, pdl)
        chain = bound_chain(kind, operands, record_plans, arenas)
        self.plan_us += (perf_counter_ns() - begin) / 1e3
        return chain

    def _dispatch(self, launches: int) -> Dispatch:
        args, forms, device = self.layer.args, self.forms, self.x.device
        sizes = {"B": forms.batch, "T": forms.tokens, "H": args.num_heads, "hd": args.head_dim}
        sizes |= {"S": args.slots_per_head, "W": args.num_writes, "R": args.num_reads}
        return Dispatch(
            op=OP,
            route="chain",
            reason=f"called as they are: {', '.join(self.called)}" if self.called else "",
            backend="cuda" if device.type == "cuda" else "host",
            gemm="bf16_linear" if forms.projected or forms.ended else "F.linear",
            pdl=supports_pdl(device),
            geometry=sizes,
            launches=launches,
            plan_us=self.plan_us,
        )

    def _finish(self, bank: Tensor, ran: Dispatch) -> MemoryCache:
        """The cache after a call that has come to its end."""
        seen = 0
        if self.cache is not None:
            self.cache.returned()
            seen = self.cache.tokens
        record(ran)
        return MemoryCache(bank, seen + self.forms.tokens)


def normalized(scores: Tensor, norm: nn.Module | None) -> Tensor:
    """Projected scores [B, T, H*K] behind their batch norm, if there is one."""
    if norm is None:
        return scores
    normed: Tensor = norm(scores.flatten(0, 1)).view(scores.shape)
    return normed
