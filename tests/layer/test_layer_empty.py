"""No sequences or no tokens: the same graph, with zeros for gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from layer_cases import OPTIONS, gradients, make_input, make_layer
from torch import nn, optim
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

from sdm_runtime import SparseDeltaMemory

OPTIONS = {**OPTIONS, "learned activation": {"read_act": "PReLU", "write_act": "PReLU"}}
SIZES = {"no sequences": (0, 5), "no tokens": (2, 0), "neither": (0, 0)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_parameter_gets_a_zero_gradient(name: str, size: str) -> None:
    layer = make_layer(**OPTIONS[name])
    before = {n: buffer.clone() for n, buffer in layer.named_buffers() if "tracked" not in n}
    batch, tokens = SIZES[size]
    given = gradients(layer, torch.zeros(batch, tokens, 12))
    assert given.keys() == {"x", *(n for n, _ in layer.named_parameters())}
    assert given.pop("x").shape == (batch, tokens, 12)
    for parameter, grad in given.items():
        assert torch.equal(grad, torch.zeros_like(layer.get_parameter(parameter))), parameter
    assert all(torch.equal(layer.get_buffer(n), value) for n, value in before.items())


@pytest.mark.parametrize("size", SIZES)
def test_values_that_are_not_finite_stay_out(size: str) -> None:
    layer = make_layer()
    with torch.no_grad():
        layer.memory[0] = torch.inf
        layer.memory[1] = torch.nan
    given = gradients(layer, torch.zeros(*SIZES[size], 12))
    assert not any(grad.any() for grad in given.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("autocast", [False, True])
def test_no_tokens_keep_the_dtypes(dtype: torch.dtype, autocast: bool) -> None:
    layer = make_layer(**OPTIONS["everything"])
    layer = layer if autocast else layer.to(dtype)
    x = torch.zeros(2, 0, 12, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y, cache = layer(x)
    assert y.dtype == cache.bank.dtype == (torch.bfloat16 if autocast else dtype)
    y.sum().backward()
    assert not any(p.grad.any() for p in layer.parameters())


@pytest.mark.parametrize("name", ["default", "zero bank"])
def test_the_bank_is_left_as_it_is(name: str) -> None:
    """No token has touched it, so no backward will restore it."""
    layer = make_layer(**OPTIONS[name])
    x = make_input(layer)
    with torch.no_grad():
        _, start = layer(x)
    y, cache = layer(x[:, :0], start)
    assert not cache.valid_until_backward
    y.sum().backward()
    assert torch.equal(cache.bank, start.bank)
    assert cache.tokens == start.tokens
    with torch.no_grad():
        given, _ = layer.eval()(x, cache)
        expected, _ = layer(x, start)
    assert torch.equal(given, expected)


def inputs(layer: SparseDeltaMemory, rank: int, size: str) -> torch.Tensor:
    batch, tokens = SIZES[size]
    return make_input(layer) if rank == 0 else torch.zeros(batch, tokens, layer.args.dim)


def train(rank: int, folder: str, size: str) -> None:
    """Two steps of one of two processes; the second has nothing to do."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    layer = make_layer(**OPTIONS["gated, normalized"])
    model = DistributedDataParallel(layer)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(inputs(layer, rank, size))[0].square().sum().backward()
        optimizer.step()
    torch.save(layer.state_dict(), f"{folder}/rank{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As in the processes: sums of several threads have other roundings."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("size", ["no sequences", "no tokens"])
def test_a_process_without_data_of_its_own(tmp_path: Path, size: str) -> None:
    spawn(train, (str(tmp_path), size), nprocs=2)
    layer = make_layer(**OPTIONS["gated, normalized"])
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (layer(make_input(layer))[0].square().sum() / 2).backward()  # the mean over processes
        optimizer.step()
    for rank in range(2):
        state = torch.load(tmp_path / f"rank{rank}.pt")
        for name, value in layer.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-6, atol=1e-7)
    untrained = make_layer(**OPTIONS["gated, normalized"])
    assert not any(
        torch.equal(p, q) for p, q in zip(untrained.parameters(), layer.parameters(), strict=True)
    )


def test_the_comparison_sees_a_parameter_without_gradient() -> None:
    """The control: what is cut out of the graph is missed."""
    layer = make_layer()
    layer.Wv_write.register_forward_hook(lambda module, given, result: result.detach())
    given = gradients(layer, torch.zeros(2, 0, 12))
    assert given.keys() == {n for n, _ in layer.named_parameters()} - {
        "Wv_write.weight",
        "Wv_write.bias",
    } | {"x"}
    assert isinstance(layer.Wo, nn.Linear)
