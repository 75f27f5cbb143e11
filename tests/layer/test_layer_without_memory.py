"""The layer on tensors that have forms and no memory: meta, and torch's fake modes."""

from __future__ import annotations

import pytest
import torch
from layer_cases import OPTIONS, make_input, make_layer
from torch import Tensor
from torch._subclasses import FakeTensorMode

from sdm_runtime import MemoryCache, SparseDeltaMemory


def forms(layer: SparseDeltaMemory, x: Tensor) -> list[object]:
    """What a training step, a prompt and two tokens show of forms."""
    seen: list[object] = []

    def note(y: Tensor, cache: MemoryCache) -> None:
        for made in (y, cache.bank):
            seen.append((made.shape, made.dtype, made.device))
        seen.append(cache.tokens)

    layer.train()
    leaf = x.detach().requires_grad_()
    y, cache = layer(leaf)
    note(y, cache)
    y.sum().backward()
    seen.append(leaf.grad.shape)
    seen += [(name, p.grad.shape, p.grad.dtype) for name, p in layer.named_parameters()]
    layer.eval()
    with torch.no_grad():
        y, cache = layer(x)
        note(y, cache)
        for _ in range(2):
            y, cache = layer(x[:, :1], cache)
            note(y, cache)
    return seen


def elsewhere(seen: list[object], device: str) -> list[object]:
    return [(*x[:2], torch.device(device)) if isinstance(x, tuple) and
            isinstance(x[-1], torch.device) else x for x in seen]  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_meta(name: str, dtype: torch.dtype) -> None:
    layer = make_layer(**OPTIONS[name]).to(dtype)
    x = make_input(layer).to(dtype)
    wanted = forms(layer, x)
    layer.zero_grad()
    assert forms(layer.to("meta"), x.to("meta")) == elsewhere(wanted, "meta")


@pytest.mark.parametrize("name", OPTIONS)
def test_in_a_fake_mode(name: str) -> None:
    layer = make_layer(**OPTIONS[name])
    wanted = forms(layer, make_input(layer))
    with FakeTensorMode():
        fake = make_layer(**OPTIONS[name])
        assert forms(fake, make_input(fake)) == wanted
    assert forms(layer, make_input(layer)) == wanted


def test_in_a_fake_mode_with_real_weights() -> None:
    layer = make_layer()
    x = make_input(layer)
    before = [p.clone() for p in layer.parameters()]
    wanted = layer(x)[0]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y, cache = layer(mode.from_tensor(x))
    assert y.shape == wanted.shape
    assert type(cache.bank) is type(y) is not Tensor
    assert all(torch.equal(p, q) for p, q in zip(layer.parameters(), before, strict=True))
    assert torch.equal(layer(x)[0], wanted)


def test_other_devices_are_refused() -> None:
    layer = make_layer()
    with pytest.raises(ValueError, match="x: expected a tensor on cpu, got one on meta"):
        layer(make_input(layer).to("meta"))
