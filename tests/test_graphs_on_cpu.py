"""capture_step where there is no CUDA device: a refusal, not a fallback."""

import contextlib
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from sdm_runtime import graphs
from sdm_runtime.graphs import CapturedStep, capture_step


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_is_refused():
    calls = []
    with pytest.raises(ValueError, match="expected a CUDA device, got none here: call the step"):
        capture_step(calls.append, torch.ones(2))
    assert calls == []


class Held:
    """What a step holds while it runs: an autograd graph, say."""


def test_a_failed_capture_keeps_nothing_of_the_step_alive(monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(graphs, "_end_broken_capture", lambda stream: None)
    refs = []

    def step():
        held = Held()
        refs.append(weakref.ref(held))
        raise RuntimeError("cannot be captured")

    captured = CapturedStep.__new__(CapturedStep)
    captured._fn, captured._inputs, captured._graph = step, [], None
    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="cannot be captured"):
            captured._capture(None)
        assert refs[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("broken", [False, True])
def test_other_threads_may_use_the_device_during_a_capture(monkeypatch, broken):
    modes = []

    def graph(*_, capture_error_mode="global", **__):
        modes.append(capture_error_mode)
        return contextlib.nullcontext()

    def step():
        if broken:
            raise RuntimeError("cannot be captured")
        return 3

    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    captured = CapturedStep.__new__(CapturedStep)
    captured._fn, captured._inputs, captured._graph = step, [], None
    stream = SimpleNamespace(device="cpu")
    if broken:
        with pytest.raises(RuntimeError, match="cannot be captured"):
            captured._capture(stream)
    else:
        assert captured._capture(stream) == 3
    assert modes == ["thread_local"] * (1 + broken)  # the one that repairs torch's generator too
