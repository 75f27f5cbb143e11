"""Both routes over same-slot pairs against a loop over all pairs of entries."""

from __future__ import annotations

import math

import pytest
import torch
from op_cases import Case, make_inputs, relative_error
from test_timeline import _state

from sdm_runtime.ops import pair_list, pair_sweep, pairs
from sdm_runtime.ops.pair_sides import pair_sides

_CASES = {
    "plain": Case(P=2, T=40, S=9, W=3, R=4, decay=3.0),
    "repeats": Case(P=1, T=30, S=4, W=5, R=6, repeats=True, gate_per_write=True),
    "one slot": Case(P=1, T=20, S=1, W=1, R=3),
    "underflow": Case(P=1, T=32, S=3, W=2, R=2, decay=300.0),
}
_ROUTES = {"list": pair_list, "sweep": pair_sweep}


def _expected(later, log, writes, write_log, weight, write_weight, chunk, d_matrix):
    """One chunk's matrix, and the gradients of the weights, in float64 by a double loop."""
    out = torch.zeros(chunk, chunk, dtype=torch.float64)
    d_later, d_write = torch.zeros_like(log), torch.zeros_like(write_log)
    (start, stop), token, write_token = later.past, later.entries.token, writes.entries.token
    for i in range(log.shape[0]):
        for j in range(int(start[i]), int(stop[i])):
            decay = math.exp(float(log[i] - write_log[j]))
            cell = (int(token[i]), int(write_token[j]))
            out[cell] += float(weight[i]) * float(write_weight[j]) * decay
            d_later[i] += float(d_matrix[cell]) * float(write_weight[j]) * decay
            d_write[j] += float(d_matrix[cell]) * float(weight[i]) * decay
    return out, d_later, d_write


def _chunk(side, n):
    entries = type(side.entries)(*(x[n] for x in side.entries))
    return side._replace(entries=entries, past=tuple(x[n] for x in side.past))


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.parametrize("route", _ROUTES)
@pytest.mark.parametrize("kind", ["writes", "reads"])
def test_matches_the_double_loop(route, kind, name, monkeypatch):
    monkeypatch.setattr(pair_list, "_BLOCK_PAIRS", 37)  # several blocks
    state, geometry = _state(_CASES[name])
    writes, reads = pair_sides(state.timeline, state.weights, state.sums)
    later = writes if kind == "writes" else reads
    d_matrix = torch.randn(geometry.chunks, geometry.chunk, geometry.chunk)
    matrix = _ROUTES[route].matrix(later, writes, geometry.chunk)
    d_later, d_write = _ROUTES[route].gradient(later, writes, d_matrix)
    for n in range(geometry.chunks):
        wanted = _expected(
            _chunk(later, n),
            later.log[n],
            _chunk(writes, n),
            writes.log[n],
            later.weight[n],
            writes.weight[n],
            geometry.chunk,
            d_matrix[n],
        )
        for given, exact in zip((matrix[n], d_later[n], d_write[n]), wanted, strict=True):
            assert relative_error(given, exact) < 2e-7
    strictly_upper = torch.triu(torch.ones_like(matrix[0]), 0 if kind == "writes" else 1)
    assert not (matrix * strictly_upper).any()


@pytest.mark.parametrize("route", _ROUTES)
def test_repeats_give_the_same_bits(route):
    case = Case(P=2, T=64, S=3, W=6, R=6, repeats=True)

    def matrix(factor=1.0):
        inputs = make_inputs(case)
        inputs["q_val"] *= factor
        state, geometry = _state(case, inputs)
        writes, reads = pair_sides(state.timeline, state.weights, state.sums)
        return _ROUTES[route].matrix(reads, writes, geometry.chunk)

    assert torch.equal(matrix(), matrix())
    # The control: the least change of the weights shows.
    assert not torch.equal(matrix(), matrix(1 + 2**-22))


def test_the_cpu_enumerates(monkeypatch):
    used = []
    for route, module in _ROUTES.items():
        real = module.matrix
        monkeypatch.setattr(module, "matrix", lambda *a, r=real, n=route: used.append(n) or r(*a))
    state, geometry = _state(_CASES["plain"])
    pairs.pair_matrices(state.timeline, state.weights, state.sums, geometry.chunk)
    assert used == ["list", "list"]
