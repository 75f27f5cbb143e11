"""The layer as torch.export writes it down: from x to y, and with a bank that goes in and out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from layer_cases import OPTIONS, make_input, make_layer
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from sdm_runtime import MemoryCache, SparseDeltaMemory


class Whole(nn.Module):
    """x -> y."""

    def __init__(self, layer: SparseDeltaMemory) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Step(Whole):
    """x and a bank -> y and the bank, which is advanced in place."""

    def forward(self, x: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        y, cache = self.layer(x, MemoryCache(bank, 0))
        return y, cache.bank


def layer_of(name: str) -> tuple[SparseDeltaMemory, Tensor]:
    layer = make_layer(**OPTIONS[name]).eval()
    return layer, make_input(layer, tokens=40)  # fewer go another way in eager


def operators(program: ExportedProgram) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if "write_read" in str(n.target)]


@pytest.mark.parametrize("name", ["default", "heads", "everything", "l2", "three factors"])
@pytest.mark.parametrize("strict", [True, False])
def test_inference(strict: bool, name: str) -> None:
    layer, x = layer_of(name)
    with torch.no_grad():
        program = export(Whole(layer), (x,), strict=strict)
        assert operators(program) == ["sdm_runtime.write_read.default"]
        other = torch.randn_like(x)
        given = program.module()(other)
        torch.testing.assert_close(given, layer(other)[0])
        assert not torch.allclose(given, program.module()(x))  # the control
        decomposed = program.run_decompositions().module()
        torch.testing.assert_close(decomposed(other), given)


@pytest.mark.parametrize("strict", [True, False])
def test_of_any_batch_and_length(strict: bool) -> None:
    layer, x = layer_of("heads")
    sizes: Any = ({0: Dim("batch", max=64), 1: Dim("tokens", max=4096)},)
    with torch.no_grad():
        program = export(Whole(layer), (x,), strict=strict, dynamic_shapes=sizes)
        for batch, tokens in ((2, 3), (3, 17), (5, 200)):
            other = torch.randn(batch, tokens, x.shape[2])
            torch.testing.assert_close(program.module()(other), layer(other)[0])


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("tokens", [1, 40])
def test_a_bank_goes_in_and_out(tokens: int, strict: bool) -> None:
    layer, x = layer_of("heads")
    with torch.no_grad():
        _, cache = layer(x)
        bank = cache.bank.clone()
        program = export(Step(layer), (x[:, :tokens], bank.clone()), strict=strict)
        step = program.module()
        for _ in range(3):
            address = bank.data_ptr()
            given, bank = step(x[:, :tokens], bank)
            wanted, cache = layer(x[:, :tokens], cache)
            torch.testing.assert_close(given, wanted)
            torch.testing.assert_close(bank, cache.bank)
            assert bank.data_ptr() == address


def test_training_is_written_down_too() -> None:
    layer, x = layer_of("heads")
    program = export(Whole(layer.train()), (x,))
    given, wanted = program.module(), layer
    y, z = given(x), wanted(x)[0]
    torch.testing.assert_close(y, z)
    layer.zero_grad()
    y.square().sum().backward()
    grads = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    z.square().sum().backward()
    for name, p in layer.named_parameters():
        torch.testing.assert_close(grads[name], p.grad, msg=name)


@pytest.mark.slow
def test_a_file_of_it_runs_elsewhere(tmp_path: Any, in_new_process: Any) -> None:
    layer, x = layer_of("heads")
    with torch.no_grad():
        torch.export.save(export(Whole(layer), (x,)), tmp_path / "layer.pt2")
        torch.save((x, layer(x)[0]), tmp_path / "wanted.pt")
    in_new_process(
        f"""
import torch
import sdm_runtime.layer
x, wanted = torch.load({str(tmp_path / "wanted.pt")!r})
torch.testing.assert_close(torch.export.load({str(tmp_path / "layer.pt2")!r}).module()(x), wanted)
print("ok")
"""
    )
