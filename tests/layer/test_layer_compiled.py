"""The layer under torch.compile: graphs around the operation, which runs as it is."""

from __future__ import annotations

import warnings

import pytest
import torch
from layer_cases import OPTIONS, gradients, make_input, make_layer
from torch._dynamo.testing import CompileCounter

from sdm_runtime import SparseDeltaMemory, SparseDeltaMemoryArgs
from sdm_runtime.layer.candidates import candidate_tables
from sdm_runtime.layer.product_keys import topk_by_table


def _layer(heads=2):
    torch.manual_seed(0)
    args = SparseDeltaMemoryArgs(
        dim=16, num_writes=3, num_reads=3, slots_per_head=25, num_heads=heads, output_gate=True
    )
    return SparseDeltaMemory(args), torch.randn(2, 20, 16)


@pytest.fixture(autouse=True)
def _nothing_to_warn_of():
    """No graphs of other tests, and no warning from a compilation."""
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    assert [str(warning.message) for warning in seen] == []


def test_a_compiled_training_step_gives_the_same_gradients():
    layer, x = _layer()
    layer(x)[0].square().sum().backward()
    wanted = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    y, cache = torch.compile(layer, backend="eager")(x)
    assert cache.valid_until_backward
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


def test_one_break_of_the_graph():
    """A table made while a graph is traced would break it for good."""
    candidate_tables.cache_clear()
    layer, x = _layer()
    counter = CompileCounter()
    compiled = torch.compile(layer, backend=counter)
    for _ in range(3):
        compiled(x)[0].sum().backward()
    assert counter.frame_count == 2


def test_the_selection_is_one_graph():
    layer, _ = _layer()
    scores = torch.randn(4, 10)
    compiled = torch.compile(topk_by_table, fullgraph=True, backend="aot_eager")
    tables = candidate_tables(layer.args.factor_dims, 3)
    for given, wanted in zip(
        compiled(scores, (5, 5), tables), topk_by_table(scores, (5, 5), tables), strict=True
    ):
        assert torch.equal(given, wanted)


class Failing(torch.nn.Linear):
    """A projection that can be told to run out of memory."""

    fails = False

    @torch.compiler.disable
    def forward(self, x):
        if self.fails:
            raise torch.OutOfMemoryError("on purpose")
        return super().forward(x)


def test_a_call_that_raises_leaves_its_cache():
    layer, x = _layer()
    layer.Wo = Failing(16, 16)
    compiled = torch.compile(layer.eval(), backend="eager")
    with torch.no_grad():
        _, cache = layer(x)
        expected, end = compiled(x[:, :1], cache.clone())
        before = cache.bank.clone()
        layer.Wo.fails = True
        with pytest.raises(torch.OutOfMemoryError):
            compiled(x[:, :1], cache)
        layer.Wo.fails = False
        assert torch.equal(cache.bank, before)
        given, same = compiled(x[:, :1], cache)
    assert torch.equal(given, expected)
    assert torch.equal(same.bank, end.bank)
    with pytest.raises(RuntimeError, match="advanced its bank in place"):
        _ = cache.bank
