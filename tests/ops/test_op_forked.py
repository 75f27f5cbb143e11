"""A child that is forked after its parent used threads has its own, or an error: not a hang."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from child_process import answer_of_child, run_python, teams_that_stay, torch_threads
from op_cases import Case, run

CASE = Case(P=4, T=64, S=100, W=8, hd=64)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def _sum():
    return float(run(CASE).readings.double().sum())


@pytest.fixture
def two_threads():
    with torch_threads(2):
        yield


def _gradient():
    return float(run(CASE).grads["v"].double().sum())


def test_a_child_forked_after_threads_has_its_own(two_threads):
    for work in (_sum, _gradient):
        wanted = pytest.approx(work(), rel=1e-5)
        assert answer_of_child(work, "fork") == wanted
        assert work() == wanted  # the parent goes on


def test_a_child_that_has_lost_its_threads_is_told(two_threads):
    wanted = pytest.approx(_sum(), rel=1e-5)
    with teams_that_stay():
        said = answer_of_child(_sum, "fork")
        assert isinstance(said, str)
        assert "[sdm_write_read]" in said
        assert "torch.set_num_threads(1)" in said
        assert '"spawn"' in said
        # What the message advises.
        assert answer_of_child(_sum, "fork", one_thread=True) == wanted
    assert run(CASE).readings.isfinite().all()  # the parent goes on


@pytest.mark.slow
def test_a_spawned_child_is_its_own(two_threads):
    wanted = pytest.approx(_sum(), rel=1e-5)
    assert answer_of_child(_sum, "spawn") == wanted


# On its main thread and then, with nothing but a refused call before, a fork on another one.
FORK_ON_A_THREAD = f"""
import sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from child_process import answer_of_child
from op_cases import make_inputs, run
from test_op_forked import CASE, _sum

torch.set_num_threads(2)
run(CASE)
wrong = make_inputs(CASE)
wrong["v"] = wrong["v"][..., :-1]

def fork():
    try:
        run(CASE, wrong)
    except ValueError as error:
        print(error)
    print(answer_of_child(_sum, "fork"))

thread = threading.Thread(target=fork)
thread.start()
thread.join()
"""


def test_a_thread_without_a_team_loses_none():
    """In a new process: no fork on a thread outlives the process groups that other tests make.

    Torch keeps them for the main thread; a child of another thread destroys them, and waits for
    threads that it has not got.
    """
    done = run_python("-c", FORK_ON_A_THREAD)
    assert done.returncode == 0, done.stderr
    refused, said = done.stdout.splitlines()
    assert "v: expected" in refused
    assert float(said) == pytest.approx(_sum(), rel=1e-5)
