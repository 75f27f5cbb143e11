"""Signals: requests to stop, at once or in time."""

from __future__ import annotations

import os
import signal
import time

import pytest

from sdm_runtime.train.run import interrupts
from sdm_runtime.train.run.interrupts import Stopped, stop_on_signal

KINDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """Give every signal a handler that notes it, and put the old ones back."""
    noted: list[int] = []
    before = {kind: signal.getsignal(kind) for kind in KINDS}
    for kind in KINDS:
        signal.signal(kind, lambda kind, _: noted.append(kind))
    yield noted
    for kind in KINDS:
        signal.signal(kind, before[kind])


def send(kind: int) -> None:
    os.kill(os.getpid(), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_is_a_request(kind: int, handlers) -> None:
    with stop_on_signal() as stop:
        assert not stop.requested
        send(kind)
        assert stop.requested
        assert handlers == []
    send(kind)
    assert handlers == [kind]


def test_one_sent_twice_is_one(handlers, monkeypatch) -> None:
    monkeypatch.setattr(interrupts, "_SAME_SIGNAL_S", 60.0)
    with stop_on_signal() as stop:
        for _ in range(3):
            send(signal.SIGTERM)
        send(signal.SIGINT)
        assert stop.requested
    assert handlers == []


def test_a_later_one_acts_as_before(handlers, monkeypatch) -> None:
    monkeypatch.setattr(interrupts, "_SAME_SIGNAL_S", 0.01)
    with stop_on_signal():
        send(signal.SIGTERM)
        time.sleep(0.02)
        send(signal.SIGINT)
        assert handlers == [signal.SIGINT]
        send(signal.SIGTERM)
        assert handlers == [signal.SIGINT, signal.SIGTERM]


def test_of_several_processes_none_ends_by_a_later_one(handlers, monkeypatch) -> None:
    monkeypatch.setattr(interrupts, "_SAME_SIGNAL_S", 0.01)
    with stop_on_signal(several=True) as stop:
        send(signal.SIGTERM)
        time.sleep(0.02)
        send(signal.SIGTERM)
        assert stop.requested
    send(signal.SIGTERM)  # the launcher's, once the first process has ended
    assert handlers == []


def test_what_nohup_ignores_stays_ignored(handlers) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_on_signal() as stop:
        send(signal.SIGHUP)
        assert not stop.requested
        send(signal.SIGTERM)
        assert stop.requested


def test_at_once_and_in_time() -> None:
    with stop_on_signal() as stop:
        stop.obey("here")
        with stop.in_time():
            send(signal.SIGTERM)
        assert stop.requested
        with pytest.raises(Stopped, match="there"):
            stop.obey("there")
    with stop_on_signal() as stop:
        stop.obey("here")
        with pytest.raises(Stopped, match="here"):
            send(signal.SIGTERM)
