"""capture_step where there is no CUDA device: a refusal, not a fallback."""

import contextlib
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sdm_runtime.graphs import CapturedStep, capture_step, captured_step
from sdm_runtime.graphs.values import CapturedInputs


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_is_refused():
    calls: list[torch.Tensor] = []
    with pytest.raises(ValueError, match="expected a CUDA device, got none here: call the step"):
        capture_step(calls.append, torch.ones(2))
    assert calls == []


class Held:
    """What a step holds while it runs: an autograd graph, say."""


def test_a_failed_capture_keeps_nothing_of_the_step_alive(monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(captured_step, "_end_broken_capture", lambda stream: None)
    refs = []

    def step():
        held = Held()
        refs.append(weakref.ref(held))
        raise RuntimeError("cannot be captured")

    captured = CapturedStep.__new__(CapturedStep)
    captured._fn, captured._graph = step, None
    captured._inputs = CapturedInputs("[capture_step]", ())
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
    captured: Any = CapturedStep.__new__(CapturedStep)
    captured._fn, captured._graph = step, None
    captured._inputs = CapturedInputs("[capture_step]", ())
    stream = SimpleNamespace(device="cpu")
    if broken:
        with pytest.raises(RuntimeError, match="cannot be captured"):
            captured._capture(stream)
    else:
        assert captured._capture(stream) == 3
    assert modes == ["thread_local"] * (1 + broken)  # the one that repairs torch's generator too


class FakeStream:
    """Says in which order it was told to wait, to copy and to record."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def wait_event(self, event):
        self.log.append((self.name, "waits", event.recorded))

    def wait_stream(self, stream):
        self.log.append((self.name, "waits", stream.name))


class FakeEvent:
    recorded = None

    def record(self, stream):
        self.recorded = stream.name
        stream.log.append((stream.name, "records"))


def test_calls_on_two_streams_wait_for_each_other(monkeypatch):
    log: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    captured: Any = CapturedStep.__new__(CapturedStep)
    captured._inputs = CapturedInputs("[capture_step]", (torch.zeros(2),))
    captured._outputs, captured._device, captured._done = (torch.ones(1),), None, FakeEvent()
    captured._graph = SimpleNamespace(replay=lambda: log.append("replay"))
    for name in ("a", "b"):
        stream = FakeStream(log, name)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device, s=stream: s)
        captured(torch.ones(2))
    first = [("a", "waits", None), "replay", ("a", "records")]
    assert log == [*first, ("b", "waits", "a"), "replay", ("b", "records")]


def test_a_step_that_raises_while_it_warms_up_is_waited_for(monkeypatch):
    log: list[Any] = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream(log, "current"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())

    def step():
        log.append("step")
        raise RuntimeError("out of luck")

    captured: Any = CapturedStep.__new__(CapturedStep)
    captured._inputs, captured._device = CapturedInputs("[capture_step]", ()), None
    captured._fn = step
    with pytest.raises(RuntimeError, match="out of luck"):
        captured._warm_up(FakeStream(log, "side"), 3)
    assert log == [("side", "waits", "current"), "step", ("current", "waits", "side")]
