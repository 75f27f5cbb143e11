"""Calls of few tokens without gradient: as chains of plans, against the general way."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from layer_cases import OPTIONS, error, make_input, make_layer
from torch import Tensor, nn
from typer.testing import CliRunner

from sdm_runtime import MemoryCache, SparseDeltaMemory, StepChain, last_dispatch
from sdm_runtime.dispatch import keep_last_chain, last_chain
from sdm_runtime.inspect.commands.cli import app
from sdm_runtime.layer import decoding
from sdm_runtime.layer.prepared import OP

CALLED = {"scaled activations", "everything"}  # their activations are called as they are
# Parts of a sequence: prefill, then few tokens.
PARTS = (40, 1, 1, 3, 7, 16, 1)


def pieces(x: Tensor) -> Iterator[Tensor]:
    first = 0
    for tokens in PARTS:
        yield x[:, first : first + tokens]
        first += tokens


def decoded(layer: SparseDeltaMemory, x: Tensor) -> tuple[Tensor, MemoryCache, list[dict]]:
    outputs, ran, cache = [], [], None
    for piece in pieces(x):
        y, cache = layer(piece, cache)
        outputs.append(y)
        ran.append(last_dispatch())
    assert cache is not None
    return torch.cat(outputs, 1), cache, ran


def both_ways(
    layer: SparseDeltaMemory, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[Tensor, MemoryCache, list[dict]], tuple[Tensor, MemoryCache, list[dict]]]:
    by_chain = decoded(layer, x)
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "MOST_TOKENS", 0)
        generally = decoded(layer, x)
    return by_chain, generally


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS)
def test_decoding_continues_a_full_pass(
    monkeypatch: pytest.MonkeyPatch, options: str, dtype: torch.dtype, mode: type
) -> None:
    layer = make_layer(**OPTIONS[options]).eval().to(dtype)
    x = make_input(layer, tokens=sum(PARTS)).to(dtype)
    with mode():
        whole, end = layer(x)
        (y, cache, ran), (general, other, _) = both_ways(layer, x, monkeypatch)
    # A bfloat16 bank is rounded once a token, not once a chunk.
    limit = 1e-5 if dtype == torch.float32 else 0.1
    assert error(y, whole.double()) < limit
    assert error(general, whole.double()) < limit
    assert error(cache.bank, end.bank.double()) < limit
    assert cache.tokens == other.tokens == sum(PARTS)
    routes = [(each["op"], each["route"]) for each in ran]
    route = "general" if options in CALLED else "chain"
    assert routes[0][0] == "sdm_write_read.forward"
    assert routes[1:] == [(OP, route)] * (len(PARTS) - 1)


def test_one_token_has_the_general_ways_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make_layer(num_heads=3).eval()
    x = make_input(layer, tokens=40)
    with torch.no_grad():
        _, start = layer(x[:, :39])
        y, end = layer(x[:, 39:], start.clone())
        assert last_dispatch()["launches"] == 3
        monkeypatch.setattr(decoding, "MOST_TOKENS", 0)
        general, other = layer(x[:, 39:], start)
    assert torch.equal(y, general)
    assert torch.equal(end.bank, other.bank)


def test_repeats_have_the_same_bits_and_tokens_together_those_of_one_by_one() -> None:
    layer = make_layer(num_heads=2).eval()
    x = make_input(layer, tokens=30)
    with torch.no_grad():
        _, start = layer(x[:, :20])
        together, end = layer(x[:, 20:], start.clone())
        again, _ = layer(x[:, 20:], start.clone())
        assert torch.equal(together, again)
        cache, alone = start, []
        for t in range(20, 30):
            y, cache = layer(x[:, t : t + 1], cache)
            alone.append(y)
    # The projections of one row are another product than those of ten.
    assert error(torch.cat(alone, 1), together.double()) < 1e-5
    assert error(cache.bank, end.bank.double()) < 1e-5
    assert not torch.equal(together, again + 1e-3)


def test_the_border_between_the_ways() -> None:
    layer = make_layer().eval()
    x = make_input(layer, tokens=decoding.MOST_TOKENS + 1)
    with torch.no_grad():
        layer(x[:, 1:])
        assert last_dispatch()["op"] == OP
        layer(x)
        assert last_dispatch()["op"] == "sdm_write_read.forward"
        assert layer(x[:, :0])[0].shape == (2, 0, 12)
        assert layer(x[:0, :1])[0].shape == (0, 1, 12)
    layer(x[:, 1:])
    assert last_dispatch()["op"] == "sdm_write_read.forward"  # a gradient may be asked for


def hook_on(name: str) -> Callable[[SparseDeltaMemory], None]:
    def add(layer: SparseDeltaMemory) -> None:
        getattr(layer, name).register_forward_hook(lambda module, given, result: 2 * result)

    return add


def freeze_wrapped(layer: SparseDeltaMemory) -> None:
    layer.Wk_write = nn.Sequential(layer.Wk_write, nn.Identity())  # type: ignore[assignment]


def other_decay(layer: SparseDeltaMemory) -> None:
    layer.A_log = nn.Parameter(layer.A_log + 1)


CHANGES: dict[str, Callable[[SparseDeltaMemory], Any]] = {
    "hook on Wv_write": hook_on("Wv_write"),
    "hook on Wo": hook_on("Wo"),
    "hook on b_proj": hook_on("b_proj"),
    "hook on read_act": hook_on("read_act"),
    "wrapped Wk_write": freeze_wrapped,
    "another A_log": other_decay,
    "moved weights": lambda layer: layer.double().float(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_calls_counts(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    layer = make_layer(num_heads=2).eval()
    x = make_input(layer, tokens=23)
    with torch.no_grad():
        _, start = layer(x[:, :20])
        before, _ = layer(x[:, 20:], start.clone())
        CHANGES[change](layer)
        after, _ = layer(x[:, 20:], start.clone())
        ran = last_dispatch()
        monkeypatch.setattr(decoding, "MOST_TOKENS", 0)
        general, _ = layer(x[:, 20:], start)
    assert error(after, general.double()) < 1e-5
    assert torch.equal(before, after) == (change in ("wrapped Wk_write", "moved weights"))
    assert ran["route"] == ("general" if "read_act" in change else "chain")
    if "read_act" in change:
        assert ran["reason"] == "called as they are: read_act"


def test_autocast_and_subclasses_say_why() -> None:
    layer = make_layer().eval()
    x = make_input(layer, tokens=2)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        layer(x)
    assert last_dispatch()["reason"] == "autocast chooses the dtypes"
    with torch.no_grad():
        layer(nn.Parameter(x))
    assert (last_dispatch()["route"], last_dispatch()["reason"]) == ("general", "x is a Parameter")


def test_a_bank_of_another_dtype_stays_what_it_is() -> None:
    layer = make_layer(num_heads=2).eval()
    x = make_input(layer, tokens=24)
    with torch.no_grad():
        _, exact = layer(x[:, :20])
        rounded = layer.bfloat16()
        y, after = rounded(x[:, 20:].bfloat16(), exact)
    assert last_dispatch()["route"] == "chain"
    assert y.dtype == torch.bfloat16
    assert after.bank.dtype == torch.float32


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copied_layer_runs_on_its_own_weights(copied: Callable[[Any], Any]) -> None:
    layer = make_layer().eval()
    x = make_input(layer, tokens=3)
    with torch.no_grad():
        before, _ = layer(x)
        twin = copied(layer)
        twin.Wo.weight.zero_()
        assert torch.equal(twin(x)[0], twin.Wo.bias.expand_as(before))
        assert torch.equal(layer(x)[0], before)


def test_its_chain_can_be_kept_saved_and_shown(tmp_path: Path) -> None:
    layer = make_layer().eval()
    keep_last_chain()
    try:
        with torch.no_grad():
            layer(make_input(layer, tokens=1))
        chain = last_chain()
    finally:
        keep_last_chain(False)
    assert chain is not None
    chain.save(tmp_path / "decode.chain")
    read = StepChain.load(tmp_path / "decode.chain")
    assert [plan.kernel for plan in read.plans] == ["decode_step"]
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "decode.chain")])
    assert shown.exit_code == 0
    assert "decode_step" in shown.output
