"""A child that is forked after its parent used threads gets an error, not a hang."""

from __future__ import annotations

import multiprocessing
import os
import threading

import pytest
import torch
from op_cases import Case, make_inputs, run

CASE = Case(P=4, T=64, S=100, W=8, hd=64)
_TIMEOUT = 60  # seconds until a child counts as hung

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def _outcome(one_thread, pipe):
    try:
        if one_thread:
            torch.set_num_threads(1)
        pipe.send(float(run(CASE).readings.double().sum()))
    except RuntimeError as error:
        pipe.send(str(error))


def _in_child(start, one_thread=False):
    """What a child says that was started so; "hangs" where it says nothing."""
    mine, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context(start).Process(target=_outcome, args=(one_thread, theirs))
    child.start()
    said = mine.recv() if mine.poll(_TIMEOUT) else "hangs"
    child.kill()
    child.join()
    return said


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_after_threads(two_threads):
    wanted = pytest.approx(float(run(CASE).readings.double().sum()), rel=1e-5)
    said = _in_child("fork")
    assert "[sdm_write_read]" in said
    assert "torch.set_num_threads(1)" in said
    assert '"spawn"' in said
    # What the message advises.
    assert _in_child("fork", one_thread=True) == wanted
    assert run(CASE).readings.isfinite().all()  # the parent goes on


@pytest.mark.slow
def test_a_spawned_child_is_its_own(two_threads):
    wanted = pytest.approx(float(run(CASE).readings.double().sum()), rel=1e-5)
    assert _in_child("spawn") == wanted


def test_a_thread_without_a_team_loses_none(two_threads):
    said = []
    run(CASE)  # on this thread; the next has called nothing but what was refused
    wrong = make_inputs(CASE)
    wrong["v"] = wrong["v"][..., :-1]

    def fork():
        with pytest.raises(ValueError, match="v: expected"):
            run(CASE, wrong)
        said.append(_in_child("fork"))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert isinstance(said[0], float)
