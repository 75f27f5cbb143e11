"""A decoding call that was made before, made again: whether the layer is as it was, and the run.

Finding out what a call may leave to plans, and reading every tensor for them, takes the host longer
than the device needs for the step. What a whole chain depends on is noted when it first runs, and
compared here: modules by identity and hooks, parameters by identity and address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from sdm_runtime.dispatch import Dispatch, chains_are_kept, record
from sdm_runtime.errors import CudaError, PlanError
from sdm_runtime.layer.activations import SlotWeights
from sdm_runtime.layer.args import SparseDeltaMemoryArgs
from sdm_runtime.layer.cache import MemoryCache
from sdm_runtime.layer.candidates import CandidateTables
from sdm_runtime.layer.decoding_plans import Forms
from sdm_runtime.layer.projection import is_plain, noticing
from sdm_runtime.layer.selection import own_weights
from sdm_runtime.ops.call.versions import raise_version, set_version
from sdm_runtime.ops.routes.bound_chains import PLAN_ALIGNMENT
from sdm_runtime.plan.held_chain import HeldChain, LastingTensor
from sdm_runtime.tensor.arena import ArenaLayout
from sdm_runtime.tensor.differentiable import may_run_again
from sdm_runtime.tensor.dtypes import KERNEL_DTYPES
from sdm_runtime.tensor.refs import READER

OP = "SparseDeltaMemory.decode"
# The layer's modules whose parameters or kind a chain depends on; some may be None.
_MODULES = (
    *("Wq_read", "Wk_write", "Wv_write", "a_proj", "b_proj", "Wog", "Wo"),
    *("readings_norm", "query_bn", "key_bn"),
)
_OWN = ("A_log", "dt_bias")


class Layer(Protocol):
    """What a call asks of the layer; any module may have been replaced by one of another kind."""

    args: SparseDeltaMemoryArgs
    A_log: nn.Parameter
    dt_bias: nn.Parameter
    Wo: nn.Linear
    readings_norm: nn.LayerNorm | None
    query_bn: nn.BatchNorm1d | None
    key_bn: nn.BatchNorm1d | None
    write_act: SlotWeights
    read_act: SlotWeights
    low_latency_projections: bool
    training: bool
    _write_tables: CandidateTables
    _read_tables: CandidateTables
    _prepared_calls: PreparedCalls
    _modules: dict[str, nn.Module | None]
    _parameters: dict[str, nn.Parameter | None]

    def _project(self, linear: nn.Module, x: Tensor) -> Tensor: ...
    def _split_heads(self, projected: Tensor) -> Tensor: ...
    def _merge(self, readings: Tensor, gate: Tensor | None, dtype: torch.dtype) -> Tensor: ...
    def _bank_for_call(
        self, x: Tensor, dtype: torch.dtype, cache: MemoryCache | None, written: Tensor | None
    ) -> Tensor: ...


def watched() -> str | None:
    """What would miss something if no operation of torch were called, or None."""
    if forward_ad._current_level >= 0:  # plans would drop a tangent without a word
        return "forward-mode derivatives are on"
    if torch._C._len_torch_dispatch_stack():
        return "a dispatch mode wants to see what is called"
    if torch._C._get_tracing_state() is not None:  # a trace would hold the empty result alone
        return "a trace records what is called"
    return noticing()


class PreparedCalls:
    """A layer's calls by kind; copies of the layer and files of it begin with none."""

    _MOST = 16

    def __init__(self) -> None:
        """Without any."""
        self.by_kind: Mapping[object, PreparedCall] = {}

    def keep(self, kind: object, call: PreparedCall) -> None:
        """For later calls, in the place of the oldest where there are many."""
        kept = dict(self.by_kind)  # other threads read the old one
        kept.pop(kind, None)
        while len(kept) >= self._MOST:
            del kept[next(iter(kept))]
        self.by_kind = kept | {kind: call}

    def __deepcopy__(self, memo: dict[int, Any]) -> PreparedCalls:
        """None of them: they are bound to one layer's weights."""
        return PreparedCalls()

    def __reduce__(self) -> tuple[type[PreparedCalls], tuple[()]]:
        """As a copy."""
        return PreparedCalls, ()


def run_prepared(
    layer: Layer, x: Tensor, cache: MemoryCache | None
) -> tuple[Tensor, MemoryCache] | None:
    """The layer's forward, if such a call was made before and nothing has changed since."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or layer.training:
        return None
    calls = layer._prepared_calls.by_kind
    if not calls or type(x) is not Tensor or type(cache) is not MemoryCache:
        return None
    if may_run_again() or watched() is not None or chains_are_kept():
        return None
    bank = cache.bank_for_call()
    # The chain takes addresses: of tensors that are their memory, which is there.
    if READER.read(x) is None or READER.read(bank) is None:
        return None
    call = calls.get(Kind.of(x, bank))
    return None if call is None or not call.holds(layer, x.device) else call.run(layer, x, cache)


class _Lasting(NamedTuple):
    """A module of the layer, and its parameters; it keeps neither alive."""

    name: str
    module: ref[nn.Module] | None
    kind: type[nn.Module]
    parameters: tuple[tuple[str, LastingTensor | None], ...]

    @classmethod
    def of(cls, name: str, module: nn.Module | None) -> _Lasting:
        """As they are now."""
        if module is None:
            return cls(name, None, nn.Module, ())
        return cls(name, ref(module), type(module), _lasting(module._parameters.items()))

    def is_still(self, module: nn.Module | None) -> bool:
        """Whether the layer's module of the name is this one, and would do no more than before."""
        if self.module is None or module is None:
            return self.module is None and module is None
        if self.module() is not module or not is_plain(module, self.kind):
            return False
        return _are_still(self.parameters, module._parameters)


_Parameters = Mapping[str, Tensor | None]


def _lasting(
    parameters: Iterable[tuple[str, Tensor | None]],
) -> tuple[tuple[str, LastingTensor | None], ...]:
    return tuple((name, None if x is None else LastingTensor(x)) for name, x in parameters)


def _are_still(
    lasting: tuple[tuple[str, LastingTensor | None], ...], parameters: _Parameters
) -> bool:
    for name, known in lasting:
        x = parameters.get(name)
        if x is None or known is None:
            if not (x is None and known is None):
                return False
        elif not known.is_still(x):
            return False
    return True


class Kind(NamedTuple):
    """What tells calls apart that the layer itself does not."""

    x: torch.Size
    dtype: torch.dtype
    device: torch.device
    bank: torch.Size
    bank_dtype: torch.dtype
    bank_device: torch.device
    placed: bool  # the bank lies as plans take it

    @classmethod
    def of(cls, x: Tensor, bank: Tensor) -> Kind:
        """A call's."""
        placed = bank.is_contiguous() and bank.data_ptr() % PLAN_ALIGNMENT == 0
        return cls(x.shape, x.dtype, x.device, bank.shape, bank.dtype, bank.device, placed)


class PreparedCall:
    """A whole chain, and what it depends on."""

    __slots__ = ("_args", "_forms", "_held", "_layout", "_modules", "_own", "_ran")

    def __init__(
        self, layer: Layer, held: HeldChain, layout: ArenaLayout, ran: Dispatch, forms: Forms
    ) -> None:
        """Of a call that has run: its chain on group_x, bank, y and an arena of this layout."""
        self._args = layer.args
        self._held, self._layout, self._ran, self._forms = held, layout, ran, forms
        self._modules = tuple(_Lasting.of(name, layer._modules.get(name)) for name in _MODULES)
        self._own = _lasting((name, layer._parameters[name]) for name in _OWN)

    def holds(self, layer: Layer, device: torch.device) -> bool:
        """Whether the chain is still what the layer would run."""
        found, forms = layer._modules, self._forms
        if layer.args is not self._args or not layer.low_latency_projections:
            return False
        for lasting in self._modules:
            if not lasting.is_still(found.get(lasting.name)):
                return False
        if not _are_still(self._own, layer._parameters):
            return False
        norm = found.get("readings_norm")
        if norm is not None and norm.eps != forms.eps:
            return False
        weights = own_weights(layer.write_act), own_weights(layer.read_act)
        if weights != (forms.writes, forms.reads):
            return False
        return not torch.is_autocast_enabled(device.type)

    def run(self, layer: Layer, x: Tensor, cache: MemoryCache) -> tuple[Tensor, MemoryCache]:
        """Make the call."""
        rows = fit_operand(x.reshape(-1, x.shape[2]))
        y = x.new_empty(x.shape)
        memory = x.new_empty(self._layout.words, dtype=torch.int64)
        bank = layer._bank_for_call(x, x.dtype, cache, None)
        with advancing(bank, cache):
            self._held.run((rows, bank, y, memory), x.device)
        cache.returned()
        record(self._ran)
        return y, MemoryCache(bank, cache.tokens + self._forms.tokens)


@contextmanager
def advancing(bank: Tensor, cache: MemoryCache | None) -> Iterator[None]:
    """While a chain that advances the bank is issued.

    The bank counts as advanced before it is: where an interrupt falls in between, an advanced bank
    must not look like the one before.
    """
    before = None if bank.is_inference() else bank._version
    raise_version(bank)
    try:
        yield
    except (CudaError, PlanError) as error:
        # Chains are bound, where they may refuse an operand, before they launch.
        if isinstance(error, PlanError) or error.issued == 0:
            if before is not None:
                set_version(bank, before)
            if cache is not None:
                cache.untouched()
        raise


def fit_operand(x: Tensor) -> Tensor:
    """A tensor as plans take it: contiguous, of float32 or bfloat16, on a boundary."""
    fit = (x if x.dtype in KERNEL_DTYPES else x.float()).contiguous()
    # One token's part of a wider row is contiguous wherever it starts.
    return fit if fit.data_ptr() % PLAN_ALIGNMENT == 0 else fit.clone()
