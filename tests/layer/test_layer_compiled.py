"""The layer under torch.compile: graphs around the operation, which runs as it is."""

from __future__ import annotations

import pytest
import torch

from sdm_runtime import SparseDeltaMemory, SparseDeltaMemoryArgs

pytestmark = pytest.mark.filterwarnings("ignore:Dynamo")


def _layer():
    torch.manual_seed(0)
    args = SparseDeltaMemoryArgs(
        dim=16, num_writes=3, num_reads=3, slots_per_head=25, num_heads=2, output_gate=True
    )
    return SparseDeltaMemory(args), torch.randn(2, 20, 16)


@pytest.fixture(autouse=True)
def _no_graphs_of_others():
    torch._dynamo.reset()


def test_a_training_step():
    layer, x = _layer()
    layer(x)[0].square().sum().backward()
    wanted = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    y, cache = torch.compile(layer, backend="eager")(x)
    assert cache.valid_until_backward
    y.square().sum().backward()
    for name, p in layer.named_parameters():
        assert torch.equal(p.grad, wanted[name]), name


@pytest.mark.parametrize("train", [True, False])
def test_through_autograd_ahead_of_time(train):
    # Its graphs return views of what they made: a bank among them could not be advanced.
    layer, x = _layer()
    compiled = torch.compile(layer.train(train), backend="aot_eager")
    with torch.set_grad_enabled(train):
        given, cache = compiled(x)
        wanted, same = layer(x)
        torch.testing.assert_close(given, wanted)
        torch.testing.assert_close(cache.bank, same.bank)
        torch.testing.assert_close(compiled(x, cache)[0], layer(x, same)[0])


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
