"""The layer's kernels in a child that is forked after its parent used threads."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from child_process import answer_of_child, teams_that_stay, torch_threads
from torch import Tensor

from sdm_runtime.layer.gates import token_gates
from sdm_runtime.layer.readings import merge_readings

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

RUNS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "token_gates": lambda x, own: token_gates(x, x, own, own)[0],
    "merge_readings": lambda x, own: merge_readings(x.unsqueeze(3), torch.float32),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_forked_child_has_threads_of_its_own_or_is_told(name: str) -> None:
    x, own = torch.ones(4, 4000, 8), torch.zeros(8)  # here: torch would hang in the child

    def run() -> float:
        with torch.no_grad():
            return float(RUNS[name](x, own)[0, 0, 0])

    with torch_threads(2):
        expected = run()
        assert answer_of_child(run) == expected
        run()
        with teams_that_stay():
            said = str(answer_of_child(run))
            assert "expected a process of its own" in said
            assert f"[{name}]" in said
            assert answer_of_child(run, one_thread=True) == expected  # what the message advises
