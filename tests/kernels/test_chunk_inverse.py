"""chunk_inverse's host twin: to the bit, against float64, and where it is not finite."""

from __future__ import annotations

import chunk_reference as reference
import pytest
import torch
from chunk_cases import TRIANGLES, Tensors, TriangleCase, poisoned, triangles
from kernel_checks import as_bits, differing

from sdm_runtime import _core
from sdm_runtime.ops.chunks import chunk_kernels

SMALL = [case for case in TRIANGLES if case.C <= 72]


def run(given: Tensors) -> Tensors:
    shape = given["system"].shape
    x, qx = poisoned(shape, torch.float32), poisoned(shape, torch.float32)
    pairs = chunk_kernels.PairMatrices(None, given["system"], given["qk"])
    scaled = chunk_kernels.chunk_inverse(pairs, given["beta"], x, qx)
    return {"x": x, "qx": qx, "scaled": scaled}


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_bits_are_those_of_the_reference(case: TriangleCase) -> None:
    given = triangles(case)
    found = run(given)
    beta = given["beta"].view(case.N, case.C)
    for n in range(case.N):
        wanted = reference.inverse(given["system"][n], given["qk"][n], beta[n])
        assert differing({k: x[n] for k, x in found.items()}, wanted) == []


def test_another_order_has_other_bits() -> None:
    """The comparison above can fail: a chain that starts with its column's own row is another."""
    given = triangles(TriangleCase(N=1, C=16))
    system = given["system"][0].tril(-1)
    x = torch.eye(16)
    for i in range(16):
        for j in range(i):
            x[i, : j + 1] -= system[i, j] * x[j, : j + 1]
    found = run(given)["x"][0]
    assert torch.allclose(found, x, atol=1e-6)
    assert not torch.equal(as_bits(found), as_bits(x))


def exact(given: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    one = torch.eye(given["system"].shape[1], dtype=torch.float64)
    lower = given["system"].double().tril(-1)
    x = torch.linalg.solve_triangular(lower + one, one.expand_as(lower), upper=False)
    return x, given["qk"].double().tril() @ x


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(
    ("chunk", "scale", "x_limit", "qx_limit"),
    [
        (64, 0.1, 4e-8, 8e-8),
        (128, 0.05, 3e-8, 8e-8),
        (250, 0.1, 2.1e-7, 2.4e-7),
        (256, 0.03, 4e-8, 1e-7),
    ],
)
def test_errors_against_float64(chunk: int, scale: float, x_limit: float, qx_limit: float) -> None:
    """By norm. Chains that begin with their largest link, the column's own, are over these."""
    given = triangles(TriangleCase(C=chunk, scale=scale))
    found, (x, qx) = run(given), exact(given)
    assert error(found["x"], x) < x_limit
    assert error(found["qx"], qx) < qx_limit


@pytest.mark.parametrize("matrix", ["system", "qk"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("chunk", [20, 70])
def test_what_is_not_finite_stays_in_its_row_and_columns(
    matrix: str, value: float, chunk: int
) -> None:
    """An element at [i, j] reaches columns c <= j, of row i and of the rows that depend on it."""
    row, column = chunk - 4, chunk // 2
    given = triangles(TriangleCase(N=1, C=chunk))
    before = run(given)
    given[matrix][0, row, column] = value
    after = run(given)
    for name in ("x", "qx"):
        changed = as_bits(before[name]) != as_bits(after[name])
        assert not changed[:, :row].any()
        assert not changed[:, :, column + 1 :].any()
        reached = name == "qx" or matrix == "system"
        assert bool((~after[name][0, row, : column + 1].isfinite()).all()) == reached
        assert not after[name].triu(1).any()
    assert not after["scaled"].tril(-1).any()


def test_a_beta_that_is_not_finite_stays_in_its_row() -> None:
    given = triangles(TriangleCase(N=1, C=40))
    given["beta"][11] = torch.nan
    scaled = run(given)["scaled"][0]
    assert scaled[11, 11:].isnan().all()
    assert scaled.isnan().sum() == 29


@pytest.mark.parametrize("chunk", [33, 256])
def test_threads_change_no_bit(chunk: int, threads) -> None:
    given = triangles(TriangleCase(N=3, C=chunk, scale=0.05))
    found = []
    for count in (1, 2, 5):
        threads(count)
        found.append(run(given))
    assert differing(found[1], found[0]) == differing(found[2], found[0]) == []


def test_denormals_are_kept() -> None:
    given = triangles(TriangleCase(N=1, C=24))
    given["system"][0] = torch.diag(torch.full((23,), 1e-20), -1)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        flushed = run(given)
    finally:
        torch.set_flush_denormal(False)
    assert differing(flushed, run(given)) == []
    assert 0 < run(given)["x"][0, 2, 0] < 1e-38


@pytest.mark.parametrize("case", TRIANGLES, ids=str)
def test_the_scaled_transpose_alone(case: TriangleCase) -> None:
    given = triangles(case)
    pairs = chunk_kernels.PairMatrices(None, given["system"], given["qk"])
    scaled = chunk_kernels.chunk_inverse(pairs, given["beta"], None, None)
    assert torch.equal(as_bits(scaled), as_bits(run(given)["scaled"]))


def test_x_and_qx_come_together() -> None:
    given = triangles(TriangleCase())
    pairs = chunk_kernels.PairMatrices(None, given["system"], given["qk"])
    kept = torch.full_like(given["qk"], 7.0)
    for x, qx, said in ((kept, None, "x alone"), (None, kept, "qx alone")):
        expected = rf"\[chunk_inverse\] qx: expected x and qx both, or neither, got {said}"
        with pytest.raises(ValueError, match=expected):
            chunk_kernels.chunk_inverse(pairs, given["beta"], x, qx)
    assert (kept == 7).all()


@pytest.mark.parametrize("name", ["system", "qk", "x", "qx", "scaled", "beta"])
def test_wrong_arguments(name: str) -> None:
    shape = (2, 20, 20)
    operands = {k: torch.full(shape, 7.0) for k in ("system", "qk", "x", "qx", "scaled")}
    operands["beta"] = torch.zeros(40)
    expected = rf"\[chunk_inverse\] {name}: expected float32"
    for error_, change in (
        (TypeError, operands[name].double()),
        (ValueError, operands[name][..., 1:].contiguous()),
    ):
        with pytest.raises(error_, match=expected):
            chunk_kernels._launch(_core.chunk_inverse, operands | {name: change})
    assert all((operands[k] == 7).all() for k in ("x", "qx", "scaled"))


def test_chunks_have_at_most_256_tokens() -> None:
    with pytest.raises(ValueError, match=r"\[chunk_inverse\] .*256"):
        run(triangles(TriangleCase(N=1, C=257)))
