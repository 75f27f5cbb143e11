"""Whole calls recorded on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from op_cases import DIFFERENTIABLE, relative_error

import sdm_runtime

_CALLS = torch.load(Path(__file__).parents[1] / "data" / "op_calls.pt", weights_only=True)
_LIMIT = {"bf16": 4e-3, "f32": 1e-6}


@pytest.mark.parametrize("name", _CALLS)
def test_matches_the_recording(name):
    recorded = _CALLS[name]
    sizes, limit = recorded["cfg"], _LIMIT[recorded["cfg"]["dtype"]]
    inputs = {k: x.clone() for k, x in recorded["inputs"].items()}
    grad = inputs.pop("grad_readings")
    for leaf in DIFFERENTIABLE:
        inputs[leaf].requires_grad_()
    readings = sdm_runtime.sdm_write_read(
        **inputs,
        chunk_size=sizes["C"],
        num_memory_slots=sizes["S"],
        num_parallel=sizes["P"],
    )
    assert relative_error(readings, recorded["readings"]) < limit
    assert relative_error(inputs["memory"], recorded["final_bank"]) < limit
    readings.backward(grad.view_as(readings))
    for leaf in DIFFERENTIABLE:
        assert relative_error(inputs[leaf].grad, recorded["grads"][leaf]) < limit, leaf
    assert torch.equal(inputs["memory"], recorded["restored_bank"])
