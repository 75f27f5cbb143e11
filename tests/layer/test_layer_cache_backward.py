"""What a backward leaves of the cache that its call returned."""

from __future__ import annotations

import gc

import pytest
import torch
from layer_cases import make_input, make_layer
from torch.multiprocessing.reductions import StorageWeakRef

from sdm_runtime import PlanError
from sdm_runtime.ops.backward import chain as chain_run
from sdm_runtime.ops.routes.step_chain import PassChain


def test_a_refused_backward_leaves_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make_layer()
    y, cache = layer(make_input(layer))
    bank = cache.bank.clone()

    def fails(*_: object) -> None:
        raise torch.OutOfMemoryError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(chain_run, "build_chain", fails)
        with pytest.raises(torch.OutOfMemoryError):
            y.sum().backward(retain_graph=True)
    assert torch.equal(cache.bank, bank)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="has restored the bank"):
        _ = cache.bank


def test_a_run_that_refuses_gives_the_bank_back_to_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = make_layer()
    y, cache = layer(make_input(layer))
    bank = cache.bank.clone()

    def refuses(*given: object) -> None:
        del given
        with pytest.raises(RuntimeError, match="has restored the bank"):
            _ = cache.bank  # nobody may copy it now
        raise PlanError("[chain] bank: moved")

    with monkeypatch.context() as patch:
        patch.setattr(PassChain, "run", refuses)
        with pytest.raises(PlanError):
            y.sum().backward(retain_graph=True)
    assert torch.equal(cache.bank, bank)
    y.sum().backward()


def test_losses_and_caches_that_are_kept_hold_no_bank() -> None:
    layer = make_layer()
    y, cache = layer(make_input(layer))
    storage = StorageWeakRef(cache.bank.untyped_storage())
    loss = y.sum()
    assert not storage.expired()
    loss.backward()
    gc.collect()
    assert storage.expired()
    assert "restored" in repr(cache)
    assert loss.grad_fn is not None
