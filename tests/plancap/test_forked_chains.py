"""Host chains and kernels in a child that is forked after its parent used threads."""

import multiprocessing
import os

import pytest
import torch

from sdm_runtime import StepChain, kernels

P, C, HD, STEPS = 4, 64, 64, 4
N = P * STEPS
_TIMEOUT = 60  # seconds until a child counts as hung

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


def _outcome(run, tensors, one_thread, pipe):
    try:
        if one_thread:
            torch.set_num_threads(1)
        run(tensors)
        pipe.send(tensors["d_u"][0, 0, 0].item())
    except RuntimeError as error:
        pipe.send(str(error))


def _in_child(run, one_thread=False):
    """What a forked child says; "hangs" where it says nothing."""
    mine, theirs = multiprocessing.Pipe()
    arguments = (run, _gemm(), one_thread, theirs)  # torch would hang where it makes them
    child = multiprocessing.get_context("fork").Process(target=_outcome, args=arguments)
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


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_forked_child_is_told(two_threads, run):
    run(_gemm())
    said = _in_child(run)
    assert "expected a process of its own" in said
    assert "[gx_gemm]" in said or "[chain]" in said
    assert _in_child(run, one_thread=True) == C  # what the message advises
    run(_gemm())  # the parent goes on
