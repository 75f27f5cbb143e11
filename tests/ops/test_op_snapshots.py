"""Snapshots: a chunk keeps no more rows than it has entries, nor than its sequence has."""

from __future__ import annotations

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, errors, make_grad, make_inputs, run

from sdm_runtime.ops.call.geometry import Geometry

CASE = Case(P=2, T=70, S=10, W=6, R=6, hd=36, C=32, repeats=True, gate_per_write=True)
QUANTS = ["none", "bf16", "fp8", "int4"]
SHARED = {"num_memory_slots": 0, "shared_bank": True}


def saved_rows(case: Case, **options) -> list[tuple[int, ...]]:
    """Shapes of what a call saves."""
    leaves = {name: x.clone() for name, x in make_inputs(case).items()}
    leaves["v"].requires_grad_()
    shapes: list[tuple[int, ...]] = []

    def note(x: torch.Tensor) -> None:
        shapes.append(tuple(x.shape))

    with torch.autograd.graph.saved_tensors_hooks(note, lambda _: leaves["v"]):
        call(case, leaves, **options)
    return shapes


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize(
    ("case", "options", "rows"),
    [
        (CASE, {}, 10),
        (CASE, SHARED, 20),
        (CASE.but(P=1), {"num_memory_slots": 0}, 10),
        (CASE.but(S=32 * 6), {}, 32 * 6),
        (CASE.but(S=300), {}, 32 * 6),
        (CASE.but(S=300, T=3), {}, 16 * 6),
    ],
)
def test_rows_of_a_chunk(case, options, rows, quant):
    chunks = case.P * -(-case.T // max(16, min(case.C, case.T)))
    columns = case.hd // 2 if quant == "int4" else case.hd
    assert (chunks * rows, columns) in saved_rows(case, snapshot_quant=quant, **options)


def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for every entry, whatever the bank has."""
    monkeypatch.setattr(Geometry, "snapshot_rows", property(lambda sizes: sizes.chunk_writes))


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [{}, {"hd": 132}, {"picks": "one-hot"}, {"T": 33}], ids=str)
def test_the_bits_are_those_of_a_row_for_every_entry(monkeypatch, sizes, dtype, quant):
    case = CASE.but(dtype=dtype, options={"snapshot_quant": quant}, **sizes)
    given = run(case)
    wide(monkeypatch)
    wanted = run(case)
    assert torch.equal(given.readings, wanted.readings)
    assert torch.equal(given.restored, wanted.restored)
    for name in DIFFERENTIABLE:
        assert torch.equal(given.grads[name], wanted.grads[name]), name


def test_every_slot_of_every_chunk():
    """Each chunk names all of its sequence: no row is left over."""
    case = CASE.but(S=6, W=6, T=64)
    assert (2 * 2 * 6, case.hd) in saved_rows(case)
    assert max(errors(case).values()) < 1e-5
    inputs = make_inputs(case)
    assert torch.equal(run(case).restored, inputs["memory"])


def test_sequences_that_share_a_bank():
    case = CASE.but(P=3, S=15)
    inputs = {name: x.clone() for name, x in make_inputs(case).items()}
    inputs["v"].requires_grad_()
    bank = inputs["memory"].clone()
    wanted = call(case, inputs)
    wanted.backward(make_grad(case))
    grad, inputs["v"].grad = inputs["v"].grad, None
    readings = call(case, inputs, **SHARED)  # each on its own rows all the same
    readings.backward(make_grad(case))
    assert torch.equal(readings, wanted)
    assert torch.equal(inputs["v"].grad, grad)
    assert torch.equal(inputs["memory"], bank)


def test_a_step_that_is_not_finite_restores_its_rows():
    inputs = make_inputs(CASE)
    inputs["v"][0, 40] = torch.inf
    assert torch.equal(run(CASE, inputs).restored, inputs["memory"])
