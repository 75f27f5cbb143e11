"""Whoever wants to see that a projection is called sees it: in a single call, a chain, a repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, ClassVar

import pytest
import torch
from layer_cases import make_input, make_layer
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime import MemoryCache, SparseDeltaMemory
from sdm_runtime.layer import decoding, projection
from sdm_runtime.layer.projection import project

Seen = list[str]
Watch = Callable[[nn.Linear, Seen], AbstractContextManager[Any]]


@contextmanager
def replaced(holder: Any, name: str, seen: Seen) -> Iterator[None]:
    """Something in the place of a function, that notes its call and makes it."""
    own = name in vars(holder)
    before = getattr(holder, name)

    def noted(*given: Any, **options: Any) -> Any:
        seen.append(name)
        return before(*given, **options)

    setattr(holder, name, noted)
    try:
        yield
    finally:
        if own:
            setattr(holder, name, before)
        else:
            delattr(holder, name)


def hook(seen: Seen) -> Callable[..., None]:
    return lambda *given: seen.append("hook")


class Functions(TorchFunctionMode):
    def __init__(self, seen: Seen) -> None:
        """Note every function."""
        super().__init__()
        self.seen = seen

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        if function is F.linear:
            self.seen.append("linear")
        return function(*args, **(kwargs or {}))


def below_a_device(linear: nn.Linear, seen: Seen) -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(Functions(seen))
    stack.enter_context(torch.device("cpu"))
    return stack


WATCHES: dict[str, Watch] = {
    "the module's forward": lambda linear, seen: replaced(linear, "forward", seen),
    "the class's forward": lambda linear, seen: replaced(nn.Linear, "forward", seen),
    "the class's call": lambda linear, seen: replaced(nn.Linear, "__call__", seen),
    "every module's call": lambda linear, seen: replaced(nn.Module, "__call__", seen),
    "the function": lambda linear, seen: replaced(F, "linear", seen),
    "hook": lambda linear, seen: linear.register_forward_hook(hook(seen)),
    "hook, keywords": lambda linear, seen: linear.register_forward_hook(
        hook(seen), with_kwargs=True
    ),
    "hook, always": lambda linear, seen: linear.register_forward_hook(hook(seen), always_call=True),
    "hook before": lambda linear, seen: linear.register_forward_pre_hook(hook(seen)),
    "hook before, keywords": lambda linear, seen: linear.register_forward_pre_hook(
        hook(seen), with_kwargs=True
    ),
    "global hook": lambda linear, seen: torch_modules.register_module_forward_hook(hook(seen)),
    "global hook, always": lambda linear, seen: torch_modules.register_module_forward_hook(
        hook(seen), always_call=True
    ),
    "global hook before": lambda linear, seen: torch_modules.register_module_forward_pre_hook(
        hook(seen)
    ),
    "function mode": lambda linear, seen: Functions(seen),
    "function mode below a device": below_a_device,
}


@pytest.fixture(autouse=True)
def kernel_wins(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """As on a GPU where the kernel wins everywhere: what took a module's place."""
    placed: Seen = []

    def bf16_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        placed.append("bf16_linear")
        return torch._C._nn.linear(x, weight, bias)

    monkeypatch.setattr(projection, "kernel_serves", lambda *given: True)
    monkeypatch.setattr(projection, "bf16_linear", bf16_linear)
    return placed


def linear() -> nn.Linear:
    return nn.Linear(16, 8).bfloat16().requires_grad_(False)


def rows() -> Tensor:
    return torch.randn(1, 2, 16).bfloat16()


@pytest.mark.parametrize("name", WATCHES)
def test_a_watched_projection_is_called(name: str, kernel_wins: Seen) -> None:
    module, x = linear(), rows()
    seen: Seen = []
    with WATCHES[name](module, seen):
        project(module, x, low_latency=True)
    assert seen
    assert not kernel_wins
    with torch.device("cpu"):  # the control, also after the watch: a default is none
        project(module, x, low_latency=True)
    assert kernel_wins


class Chain:
    """A chain on a device that is not there."""

    launches = 6
    ran: ClassVar[Seen] = []

    def __init__(self, *given: object) -> None:
        """Like a HeldChain too."""
        self.held = bool(given)

    def run(self, *given: object) -> None:
        self.ran.append("again" if self.held else "recorded")


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    monkeypatch.setattr(decoding, "kernel_takes", lambda x: x.dtype == torch.bfloat16)
    monkeypatch.setattr(decoding, "HeldChain", Chain)
    monkeypatch.setattr(decoding._Call, "_chain", lambda *given: Chain())
    Chain.ran.clear()
    with torch.no_grad():
        yield Chain.ran


def decoder() -> tuple[SparseDeltaMemory, Tensor, MemoryCache]:
    layer = make_layer(dim=16, num_heads=2, output_gate=True, normalize_readings=True)
    layer = layer.eval().bfloat16()
    x = make_input(layer, tokens=3).bfloat16()
    bank = torch.zeros(2 * 2 * layer.args.slots_per_head, 8, dtype=torch.bfloat16)
    return layer, x, MemoryCache(bank, 0)


class Dispatched(TorchDispatchMode):
    def __init__(self, seen: Seen) -> None:
        """Note every operation."""
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None):
        if operation is torch.ops.aten.addmm.default:
            self.seen.append("addmm")
        return operation(*args, **(kwargs or {}))


LAYER_WATCHES = WATCHES | {
    "dispatch mode": lambda linear, seen: Dispatched(seen),
    "the norm's forward": lambda linear, seen: replaced(nn.LayerNorm, "forward", seen),
    "the norm's function": lambda linear, seen: replaced(F, "layer_norm", seen),
}


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("name", LAYER_WATCHES)
def test_a_watched_layer_calls_what_is_watched(name: str, repeated: bool, chains: Seen) -> None:
    layer, x, cache = decoder()
    layer.low_latency_projections = True
    if repeated:
        _, cache = layer(x, cache)
        _, cache = layer(x, cache)
        assert chains == ["recorded", "again"]
    seen: Seen = []
    with LAYER_WATCHES[name](layer.Wk_write, seen):
        layer(x, cache.clone())
    assert seen
    assert chains.count("again") == repeated
    with torch.device("cpu"):  # the control
        seen.clear()
        layer(x, cache.clone())
    assert chains[-1] == ("again" if repeated else "recorded")
    assert not seen


class Scaled(Tensor):
    """A tensor that gives F.linear a meaning of its own."""

    seen: ClassVar[Seen] = []

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        if function is F.linear:
            cls.seen.append("linear")
        return super().__torch_function__(function, types, args, kwargs or {})


def own_x(module: nn.Linear, x: Tensor) -> Tensor:
    return x.as_subclass(Scaled)


def own_weight(module: nn.Linear, x: Tensor) -> Tensor:
    module.weight = nn.Parameter(module.weight.as_subclass(Scaled), requires_grad=False)
    return x


def own_bias(module: nn.Linear, x: Tensor) -> Tensor:
    module.bias = nn.Parameter(module.bias.as_subclass(Scaled), requires_grad=False)
    return x


@pytest.mark.parametrize("change", [own_x, own_weight, own_bias])
def test_tensors_of_another_kind_get_their_call(
    change: Callable[[nn.Linear, Tensor], Tensor], kernel_wins: Seen
) -> None:
    Scaled.seen.clear()
    module = linear()
    project(module, change(module, rows()), low_latency=True)
    assert Scaled.seen == ["linear"]
    assert not kernel_wins


@pytest.mark.filterwarnings("ignore")  # the old ones say that there are new ones
@pytest.mark.parametrize(
    "wrap",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        lambda m: nn.utils.parametrize.register_parametrization(m, "weight", nn.Tanh()) and m,
    ],
    ids=["weight_norm", "spectral_norm", "weight_norm, new", "spectral_norm, new", "parametrized"],
)
def test_weights_that_are_computed_are_computed(
    wrap: Callable[[nn.Linear], nn.Linear], kernel_wins: Seen
) -> None:
    module = wrap(nn.Linear(16, 8)).requires_grad_(False).bfloat16().eval()
    x = rows()
    for parameter in module.parameters():  # another weight than was computed when wrapped
        parameter.mul_(-0.5)
    with torch.no_grad():
        assert torch.equal(project(module, x, low_latency=True), module(x))
        assert not kernel_wins
        assert projection.kernel_parameters(module, x) is None
        assert projection.kernel_parameters(linear(), x) is not None  # the control


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_on_gradients_that_a_bias_brings(everywhere: bool, kernel_wins: Seen) -> None:
    module, x = linear(), rows()
    seen: Seen = []
    module.bias.requires_grad_()
    project(module, x, low_latency=True)
    assert kernel_wins.pop()  # the control
    note = hook(seen)
    handle = (
        torch_modules.register_module_full_backward_hook(note)
        if everywhere
        else module.register_full_backward_hook(note)
    )
    with handle:
        project(module, x, low_latency=True).sum().backward()
    assert seen
    assert not kernel_wins


def test_a_tangent_goes_through_a_projection(kernel_wins: Seen) -> None:
    module, x = linear(), rows()
    with forward_ad.dual_level():
        tangent = torch.ones_like(x)
        made = project(module, forward_ad.make_dual(x, tangent), low_latency=True)
        assert torch.equal(forward_ad.unpack_dual(made).tangent, F.linear(tangent, module.weight))
    assert not kernel_wins


def test_a_mapped_projection_is_called(kernel_wins: Seen) -> None:
    module, x = linear(), torch.stack([rows(), rows()])
    made = torch.func.vmap(lambda own: project(module, own, low_latency=True))(x)
    torch.testing.assert_close(made, module(x), atol=0.02, rtol=0.02)
    assert not kernel_wins


def test_a_forward_that_was_replaced_before_this_package_is_found() -> None:
    def other(self: nn.Linear, x: Tensor) -> Tensor:
        return x

    assert projection._own(other, nn.Linear.__module__) is None
    assert projection._own(nn.Linear.forward, nn.Linear.__module__) is nn.Linear.forward
    assert all(projection._FORWARDS.values())
    assert projection._CALL is nn.Module.__call__
