"""Host chains and kernels in a child that is forked after its parent used threads."""

import os

import pytest
import torch
from child_process import answer_of_child, teams_that_stay, torch_threads

from sdm_runtime import StepChain, kernels

P, C, HD, STEPS = 4, 64, 64, 4
N = P * STEPS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def _gemm():
    return {
        "d_u": torch.zeros(N, C, HD),
        "x": torch.ones(N, C, C),
        "d_dv": torch.ones(N, C, HD),
    }


def _chain(t):
    return StepChain([kernels.plan_gx_gemm(**t, steps=STEPS, num_parallel=P)], STEPS)


RUNS = {
    "run": lambda t: _chain(t).run(),
    "run_step": lambda t: _chain(t).run_step(0),
    "run_timed": lambda t: _chain(t).run_timed(),
    "kernel": lambda t: kernels.gx_gemm(**t, ti=0, num_parallel=P),
}


def _in_child(run, one_thread=False):
    tensors = _gemm()  # here: torch would hang where the child makes them

    def first_of_d_u():
        run(tensors)
        return tensors["d_u"][0, 0, 0].item()

    return answer_of_child(first_of_d_u, one_thread=one_thread)


@pytest.fixture
def two_threads():
    with torch_threads(2):
        yield


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_forked_child_has_threads_of_its_own(two_threads, run):
    run(_gemm())
    assert _in_child(run) == C
    run(_gemm())  # the parent goes on


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_child_that_has_lost_them_is_told(two_threads, run):
    run(_gemm())
    with teams_that_stay():
        said = _in_child(run)
        assert "expected a process of its own" in said
        assert "[gx_gemm]" in said or "[chain]" in said
        assert _in_child(run, one_thread=True) == C  # what the message advises
    run(_gemm())  # the parent goes on
