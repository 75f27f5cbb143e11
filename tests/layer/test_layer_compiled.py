"""The layer under torch.compile, the operation and the bank in its one graph."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from layer_cases import OPTIONS, gradients, make_input, make_layer
from torch import nn
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from torch._inductor.utils import fresh_cache
from torch.utils.checkpoint import checkpoint

from sdm_runtime import SparseDeltaMemory, SparseDeltaMemoryArgs
from sdm_runtime.layer.candidates import candidate_tables
from sdm_runtime.layer.product_keys import topk_by_table

BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


def _layer(heads=2):
    torch.manual_seed(0)
    args = SparseDeltaMemoryArgs(
        dim=16, num_writes=3, num_reads=3, slots_per_head=25, num_heads=heads, output_gate=True
    )
    return SparseDeltaMemory(args), torch.randn(2, 20, 16)


@pytest.fixture(autouse=True)
def _nothing_to_warn_of():
    """No graphs of other tests, none from the disk, and no warning from a compilation."""
    torch._dynamo.reset()
    with fresh_cache(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    # Of torch's own modules, when they are first imported.
    told = [str(x.message) for x in seen if x.category is not DeprecationWarning]
    assert told == []


def test_a_compiled_training_step_gives_the_same_gradients():
    layer, x = _layer()
    layer(x)[0].square().sum().backward()
    wanted = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    y, cache = torch.compile(layer, backend="eager")(x)
    assert not cache.valid_until_backward
    y.square().sum().backward()
    for name, p in layer.named_parameters():
        assert torch.equal(p.grad, wanted[name]), name


def compiled_and_eager(layer, x):
    """Gradients by name, through autograd ahead of time and as they are."""
    compiled = torch.compile(layer, backend="aot_eager")
    given = gradients(layer, x, lambda leaf: compiled(leaf)[0])
    given = {name: grad.clone() for name, grad in given.items()}
    return given, gradients(layer, x)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("heads", [1, 2])
def test_training_through_autograd_ahead_of_time(heads, batch):
    layer, x = _layer(heads)
    given, wanted = compiled_and_eager(layer, x[:batch])
    assert given.keys() == wanted.keys() == {"x", *(name for name, _ in layer.named_parameters())}
    for name, grad in wanted.items():
        assert grad.any(), name
        torch.testing.assert_close(given[name], grad, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("options", [OPTIONS["everything"], {"num_heads": 3, "read_act": "PReLU"}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_with_every_option(options, dtype):
    layer = make_layer(**options).to(dtype)
    given, wanted = compiled_and_eager(layer, make_input(layer).to(dtype))
    assert given.keys() == wanted.keys()
    scale = max(float(grad.float().norm()) for grad in wanted.values())
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for name, grad in wanted.items():
        assert (given[name] - grad).float().norm() < tolerance * scale, name


@pytest.mark.parametrize("train", [True, False])
def test_values_through_autograd_ahead_of_time(train):
    # Its graphs return views of what they made: a bank among them could not be advanced.
    layer, x = _layer()
    compiled = torch.compile(layer.train(train), backend="aot_eager")
    with torch.set_grad_enabled(train):
        given, cache = compiled(x)
        wanted, same = layer(x)
        torch.testing.assert_close(given, wanted)
        torch.testing.assert_close(cache.bank, same.bank)
        torch.testing.assert_close(compiled(x, cache)[0], layer(x, same)[0])


def test_one_graph():
    """A table made while a graph is traced would break it for good."""
    candidate_tables.cache_clear()
    layer, x = _layer()
    counter = CompileCounter()
    compiled = torch.compile(layer, backend=counter)
    for _ in range(3):
        compiled(x)[0].sum().backward()
    assert counter.frame_count == 1


def test_the_selection_is_one_graph():
    layer, _ = _layer()
    scores = torch.randn(4, 10)
    compiled = torch.compile(topk_by_table, fullgraph=True, backend="aot_eager")
    tables = candidate_tables(layer.args.factor_dims, 3)
    for given, wanted in zip(
        compiled(scores, (5, 5), tables), topk_by_table(scores, (5, 5), tables), strict=True
    ):
        assert torch.equal(given, wanted)


class Model(nn.Module):
    """Two layers with something between them, as a model has them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(make_layer(seed=i, num_heads=2) for i in range(2))
        self.norm = nn.LayerNorm(12)

    def forward(self, x, caches=(None, None)):
        new = []
        for layer, cache in zip(self.layers, caches, strict=True):
            y, cache = layer(self.norm(x), cache)
            x = x + y
            new.append(cache)
        return x, new


def steps(model, run, x):
    """Losses and the parameters of a few training steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for i in range(4):
        optimizer.zero_grad()
        loss = (run(x.roll(i, 1))[0] - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_steps_are_those_of_eager(backend):
    model = Model()
    x = torch.randn(2, 20, 12)
    twin = copy.deepcopy(model)
    counter = CompileCounterWithBackend(backend)
    given = steps(model, torch.compile(model, backend=counter, fullgraph=True), x)
    wanted = steps(twin, twin, x)
    assert counter.frame_count == 1
    torch.testing.assert_close(given[0], wanted[0])
    assert not torch.allclose(wanted[0][0], wanted[0][3])  # the control
    names = [name for name, _ in model.named_parameters()]
    for name, p, q in zip(names, given[1], wanted[1], strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_prefill_and_decoding_are_three_graphs(backend, batch):
    """The prompt, the second call, and one whose number of tokens seen is a symbol."""
    model = Model().eval()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    given = wanted = (None, None)
    with torch.no_grad():
        for tokens in (20, 1, 1, 1, 1, 1, 1):
            x = torch.randn(batch, tokens, 12)
            before = given
            y, given = compiled(x, given)
            z, wanted = model(x, wanted)
            torch.testing.assert_close(y, z)
            for cache, same in zip(given, wanted, strict=True):
                assert cache.tokens == same.tokens
                torch.testing.assert_close(cache.bank, same.bank)
            for used in before:
                if used is not None:
                    with pytest.raises(RuntimeError, match="advanced its bank in place"):
                        _ = used.bank
    assert counter.frame_count == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_decoding_in_a_graph_copies_no_bank(backend):
    layer, x = _layer()
    compiled = torch.compile(layer.eval(), backend=backend, fullgraph=True)
    with torch.no_grad():
        _, cache = compiled(x)
        for _ in range(3):
            address = cache.bank.data_ptr()
            _, cache = compiled(x[:, :1], cache)
            assert cache.bank.data_ptr() == address


def test_caches_go_to_and_from_eager_calls():
    layer, x = _layer()
    layer.eval()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        wanted, same = layer(x)
        given, cache = compiled(x)
        for run, other in ((layer, compiled), (compiled, layer)) * 2:
            kept = cache.clone()
            given, cache = run(x[:, :1], cache)
            wanted, same = other(x[:, :1], same)
            torch.testing.assert_close(given, wanted)
            assert not torch.equal(kept.bank, cache.bank)
    torch.testing.assert_close(cache.bank, same.bank)
    assert cache.tokens == same.tokens == 24


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_training_returns_stays_valid(backend):
    """Its bank is the cache's own; an eager call's goes with the backward."""
    layer, x = _layer()
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    y, cache = compiled(x)
    _, same = layer(x)
    torch.testing.assert_close(cache.bank, same.bank)
    assert not cache.valid_until_backward
    before = cache.bank.clone()
    y.sum().backward()
    assert torch.equal(cache.bank, before)
    z, after = compiled(x[:, :4], cache)  # goes on from a copy
    z.sum().backward()
    assert torch.equal(cache.bank, before)
    assert after.tokens == 24
    torch.testing.assert_close(z, layer(x[:, :4], cache)[0])


@pytest.mark.parametrize("tokens", [0, 1, 40])
@pytest.mark.parametrize("train", [True, False])
def test_any_number_of_tokens(tokens, train):
    layer, _ = _layer()
    x = torch.randn(2, tokens, 16)
    compiled = torch.compile(layer.train(train), backend="aot_eager", fullgraph=True)
    with torch.set_grad_enabled(train):
        y, cache = compiled(x)
        z, same = layer(x)
    torch.testing.assert_close(y, z)
    torch.testing.assert_close(cache.bank, same.bank)


def test_lengths_share_graphs():
    layer, _ = _layer()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for tokens in (70, 80, 90, 100, 110):
        x = torch.randn(2, tokens, 16)
        torch.testing.assert_close(compiled(x)[0], layer(x)[0])
    assert counter.frame_count == 2


def test_under_autocast():
    layer, x = _layer()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        given, wanted = compiled(x)[0], layer(x)[0]
    assert given.dtype is wanted.dtype is torch.bfloat16
    torch.testing.assert_close(given, wanted)


def test_inside_of_a_checkpoint():
    layer, x = _layer()

    def run(leaf):
        return checkpoint(lambda x: layer(x)[0], leaf, use_reentrant=False)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    given, wanted = gradients(layer, x, compiled), gradients(layer, x)
    for name, grad in wanted.items():
        torch.testing.assert_close(given[name], grad, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_cache_that_is_used_up_is_refused(fullgraph):
    layer, x = _layer()
    compiled = torch.compile(layer.eval(), backend="aot_eager", fullgraph=fullgraph)
    with torch.no_grad():
        _, cache = compiled(x)
        compiled(x, cache)
        with pytest.raises(RuntimeError, match="no longer valid, it was handed to a later call"):
            compiled(x, cache)


def test_a_reentrant_checkpoint_with_a_cache_is_refused():
    """Its first forward has no gradient, and takes the bank in place."""
    layer, x = _layer()
    compiled = torch.compile(layer.eval(), backend="aot_eager")
    with torch.no_grad():
        _, cache = layer(x)
    leaf = x.clone().requires_grad_()
    y = checkpoint(lambda x: compiled(x, cache)[0], leaf, use_reentrant=True)
    with pytest.raises(RuntimeError, match="no longer valid, it was handed to a later call"):
        y.sum().backward()
    assert leaf.grad is None


class Failing(torch.nn.Linear):
    """A projection that can be told to run out of memory."""

    fails = False

    @torch.compiler.disable
    def forward(self, x):
        if self.fails:
            raise torch.OutOfMemoryError("on purpose")
        return super().forward(x)


def test_a_call_that_raises_in_a_break_of_the_graph_loses_its_cache():
    layer, x = _layer()
    layer.Wo = Failing(16, 16)
    compiled = torch.compile(layer.eval(), backend="eager")
    with torch.no_grad():
        _, cache = layer(x)
        expected, end = compiled(x[:, :1], cache.clone())
        kept = cache.clone()
        layer.Wo.fails = True
        with pytest.raises(torch.OutOfMemoryError):
            compiled(x[:, :1], cache)
        with pytest.raises(RuntimeError, match="a compiled call has it, or had it when it raised"):
            _ = cache.bank
        layer.Wo.fails = False
        given, same = compiled(x[:, :1], kept)
    assert torch.equal(given, expected)
    assert torch.equal(same.bank, end.bank)
    with pytest.raises(RuntimeError, match="advanced its bank in place"):
        _ = kept.bank
