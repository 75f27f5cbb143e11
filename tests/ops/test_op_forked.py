"""A child that is forked after its parent used threads gets an error, not a hang."""

from __future__ import annotations

import os
import threading

import pytest
from child_process import answer_of_child, torch_threads
from op_cases import Case, make_inputs, run

CASE = Case(P=4, T=64, S=100, W=8, hd=64)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def _sum():
    return float(run(CASE).readings.double().sum())


@pytest.fixture
def two_threads():
    with torch_threads(2):
        yield


def test_a_child_forked_after_threads_is_told(two_threads):
    wanted = pytest.approx(_sum(), rel=1e-5)
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


def test_a_thread_without_a_team_loses_none(two_threads):
    said = []
    run(CASE)  # on this thread; the next has called nothing but what was refused
    wrong = make_inputs(CASE)
    wrong["v"] = wrong["v"][..., :-1]

    def fork():
        with pytest.raises(ValueError, match="v: expected"):
            run(CASE, wrong)
        said.append(answer_of_child(_sum, "fork"))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert isinstance(said[0], float)
