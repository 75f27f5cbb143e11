"""The layer in compiled graphs on a device, also where torch captures them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.utils import fresh_cache

from sdm_runtime import SparseDeltaMemory, SparseDeltaMemoryArgs

MODES: dict[str, Any] = {
    "aot_eager": {"backend": "aot_eager"},
    "inductor": {},
    "reduce-overhead": {"mode": "reduce-overhead"},
}
DIM = 256


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with fresh_cache():
        yield
    torch._dynamo.reset()


class Model(nn.Module):
    """Two layers behind norms."""

    def __init__(self) -> None:
        super().__init__()
        args = SparseDeltaMemoryArgs(
            dim=DIM, num_writes=8, num_reads=8, slots_per_head=1024, num_heads=4, output_gate=True
        )
        self.layers = nn.ModuleList(SparseDeltaMemory(args, i) for i in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))

    def forward(self, x: Tensor, caches: Any = (None, None)) -> tuple[Tensor, list[Any]]:
        new = []
        for layer, norm, cache in zip(self.layers, self.norms, caches, strict=True):
            y, cache = layer(norm(x), cache)
            x = x + y
            new.append(cache)
        return x, new


def make(dtype: torch.dtype = torch.float32) -> Model:
    torch.manual_seed(0)
    model = Model()
    for layer in model.layers:
        nn.init.normal_(layer.memory, std=0.1)  # type: ignore[arg-type]
    return model.to("cuda", dtype)


def losses(model: Model, run: Any, x: Tensor) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    told = []
    for _ in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad()
        loss = (run(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        told.append(loss.item())
    return told


@pytest.mark.parametrize("mode", MODES)
def test_training_steps_are_those_of_eager(mode: str) -> None:
    model = make()
    twin = copy.deepcopy(model)
    x = torch.randn(2, 150, DIM, device="cuda")
    compiled = torch.compile(lambda x: model(x)[0], fullgraph=True, **MODES[mode])
    given = losses(model, compiled, x)
    wanted = losses(twin, lambda x: twin(x)[0], x)
    assert given == pytest.approx(wanted, rel=1e-3)
    assert wanted[-1] < 0.98 * wanted[0]  # the control: they are steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_prefill_and_decoding(mode: str, dtype: torch.dtype) -> None:
    model = make(dtype).eval()
    for layer in model.layers:
        setattr(layer, "low_latency_projections", False)  # sums in nn.Linear's order  # noqa: B010
    compiled = torch.compile(model, fullgraph=True, **MODES[mode])
    tolerance = 1e-4 if dtype is torch.float32 else 0.1
    given: Any = (None, None)
    wanted: Any = given
    with torch.no_grad():
        for tokens in (40, 1, 1, 1, 1, 1, 1, 1):
            x = torch.randn(2, tokens, DIM, device="cuda", dtype=dtype)
            torch.compiler.cudagraph_mark_step_begin()
            y, given = compiled(x, given)
            z, wanted = model(x, wanted)
            torch.testing.assert_close(y, z, rtol=tolerance, atol=tolerance)
            for cache, same in zip(given, wanted, strict=True):
                assert cache.tokens == same.tokens
            if tokens > 1:  # a replay of the prompt's graph would take its results
                given = [cache.clone() for cache in given]


def test_decoding_copies_no_bank() -> None:
    model = make().eval()
    compiled = torch.compile(model, fullgraph=True)
    x = torch.randn(2, 40, DIM, device="cuda")
    with torch.no_grad():
        _, caches = compiled(x)
        for _ in range(4):
            addresses = [cache.bank.data_ptr() for cache in caches]
            _, caches = compiled(x[:, :1], caches)
            assert [cache.bank.data_ptr() for cache in caches] == addresses
