"""The device code of the selection, run on the CPU, against the host twins bit for bit."""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace

import pytest
import torch
from emulated import emulation
from kernel_checks import copies, differing
from select_cases import (
    CASES,
    POISON,
    SelectCase,
    grad_inputs,
    grad_outputs,
    grad_values,
    projections,
    select_outputs,
    select_values,
)

pytestmark = [
    pytest.mark.skipif(
        platform.system() != "Linux" or not shutil.which("g++"), reason="needs g++ on Linux"
    ),
    pytest.mark.slow,
]


@pytest.mark.parametrize("name", CASES)
def test_selection_gives_the_twins_bits(name: str) -> None:
    case = CASES[name]
    values, outputs = select_values(case, projections(case)), select_outputs(case)
    library = emulation()
    expected = copies(outputs)
    library.twin("slot_select", values | expected)
    for field, made in expected.items():
        assert not field.endswith("slots") or not (made == POISON).any()
    chosen = library.chosen("slot_select", values | outputs)
    # Fewer blocks: a warp does several rows.
    for number, launch in enumerate((chosen, replace(chosen, grid=(1, *chosen.grid[1:])))):
        after = copies(outputs)
        library.launch("slot_select", launch, values | after, backwards=number == 1)
        assert differing(after, expected) == [], launch


def test_the_comparison_can_fail() -> None:
    """With the candidates of another order of ties the device code selects others."""
    case = CASES["m ties"]
    values, outputs = select_values(case, projections(case)), select_outputs(case)
    library = emulation()
    expected, after = copies(outputs), copies(outputs)
    library.twin("slot_select", values | expected)
    other = values | {"key_positions": values["key_positions"].flip(-1).contiguous()}
    launch = library.chosen("slot_select", values | outputs)
    library.launch("slot_select", launch, other | after)
    assert "key_slots" in differing(after, expected)
    assert "query_slots" not in differing(after, expected)


@pytest.mark.parametrize(
    ("case", "entry"),
    [
        (SelectCase(), "slot_select_k32_bf16"),
        (SelectCase(q=0, k=1), "slot_select_k32_bf16"),
        (SelectCase(q=33), "slot_select_k64_bf16"),
        (SelectCase(dims=(64, 64), k=16, q=9), "slot_select_k16_bf16"),
        (SelectCase(dims=(64, 65), k=16, q=9), "slot_select_k32_bf16"),
        (SelectCase(dims=(256, 10), k=64, q=9), "slot_select_k64_bf16"),
        (SelectCase(dims=(256, 10), k=65, q=9), "slot_select_any_w256"),
        (SelectCase(dims=(257, 10), k=64, q=9), "slot_select_any_w1024"),
        (SelectCase(dims=(64,), k=16, q=16), "slot_select_any_w256"),
    ],
)
def test_which_device_function_runs(case: SelectCase, entry: str) -> None:
    values, outputs = select_values(case, projections(case)), select_outputs(case)
    assert emulation().chosen("slot_select", values | outputs).entry == entry


@pytest.mark.parametrize("name", CASES)
def test_gradients_give_the_twins_bits(name: str) -> None:
    case = CASES[name]
    values, outputs = grad_values(case, grad_inputs(case)), grad_outputs(case)
    library = emulation()
    expected = copies(outputs)
    library.twin("slot_select_grad", values | expected)
    chosen = library.chosen("slot_select_grad", values | outputs)
    narrow = {f"{side}_wide_stores": 0 for side in case.sides}
    others = [(chosen, {}), (replace(chosen, grid=(1, *chosen.grid[1:])), narrow)]
    for number, (launch, changed) in enumerate(others):
        after = copies(outputs)
        library.launch("slot_select_grad", launch, values | changed | after, number == 1)
        assert differing(after, expected) == [], launch


def test_gradients_of_slots_that_are_none_of_the_rows() -> None:
    """They are left out, by both alike."""
    case = CASES["m f32"]
    inputs = grad_inputs(case)
    inputs["key_slots"][0, 0, :3] = torch.tensor([-1, 1 << 30, case.slots])
    kept = inputs["key_d_weights"].clone()
    values, outputs = grad_values(case, inputs), grad_outputs(case)
    library = emulation()
    expected, after = copies(outputs), copies(outputs)
    library.twin("slot_select_grad", values | expected)
    library.launch(
        "slot_select_grad", library.chosen("slot_select_grad", values | outputs), values | after
    )
    assert differing(after, expected) == []
    assert torch.equal(inputs["key_d_weights"], kept)
