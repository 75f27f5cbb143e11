"""chunk_readings' host twin: to the bit, against float64, and where it is not finite."""

from __future__ import annotations

from dataclasses import replace

import chunk_reference as reference
import pytest
import torch
from chunk_cases import (
    BF16,
    F32,
    READINGS,
    ReadingCase,
    Tensors,
    by_sequence,
    reading_operands,
    reading_output,
)
from kernel_checks import as_bits

from sdm_runtime.ops.call.geometry import Segment
from sdm_runtime.ops.chunks import chunk_kernels

SMALL = [case for case in READINGS if case.chunks * case.C**2 * case.hd < 3e5]


def run(case: ReadingCase, given: Tensors) -> torch.Tensor:
    out = reading_output(case)
    chunk_kernels.chunk_readings(Segment(case.first_step, case.steps), **given, readings=out)
    return out


def staged(case: ReadingCase, chunk: int) -> tuple[int, slice]:
    """A staged chunk's sequence and real tokens."""
    step, sequence = divmod(chunk, case.P)
    first = (case.first_step + step) * case.C
    return sequence, slice(first, min(first + case.C, case.T))


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_bits_are_those_of_the_reference(case: ReadingCase) -> None:
    given = reading_operands(case)
    found = by_sequence(case, run(case, given))
    for chunk in range(case.chunks):
        sequence, tokens = staged(case, chunk)
        rows = slice(tokens.stop - tokens.start)
        parts = given["reading"][chunk, rows], given["qk"][chunk, rows], given["delta"][chunk, rows]
        wanted = reference.readings(*parts).to(case.values)
        assert torch.equal(as_bits(found[sequence, tokens]), as_bits(wanted))
    # Earlier steps are another call's.
    assert found[:, : case.first_step * case.C].isnan().all()


def exact(given: Tensors) -> torch.Tensor:
    return given["reading"].double() + given["qk"].double().tril() @ given["delta"].double()


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


def from_the_reading(given: Tensors) -> torch.Tensor:
    """The same links in the same order, added to the reading itself."""
    y, qk = given["reading"].clone(), given["qk"].tril()
    for j in range(qk.shape[1]):
        y += qk[:, :, j : j + 1] * given["delta"][:, j : j + 1]
    return y


@pytest.mark.parametrize("chunk", [16, 64, 256])
def test_errors_against_float64(chunk: int) -> None:
    """By norm, of a sum that is smaller than the reading, to which its links are not added."""
    case = ReadingCase(P=1, T=chunk, C=chunk, hd=64)
    given = reading_operands(case)
    given["qk"] /= 8
    wanted = exact(given)
    assert error(run(case, given), wanted[0]) < 3.5e-8
    assert error(from_the_reading(given), wanted) > 6e-8


def test_another_order_has_other_bits() -> None:
    """The comparison with the reference can fail."""
    case = ReadingCase(P=1, T=16)
    given = reading_operands(case)
    found, other = run(case, given), from_the_reading(given)
    assert torch.allclose(found, other, atol=1e-5)
    assert not torch.equal(found, other)


@pytest.mark.parametrize("values", [F32, BF16])
@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_heads_beside_each_other(heads: int, values: torch.dtype) -> None:
    """The same bits in the other layout."""
    apart = ReadingCase(P=6, T=37, first_step=1, values=values)
    beside = replace(apart, heads=heads)
    given = reading_operands(apart)
    found, wanted = by_sequence(beside, run(beside, given)), run(apart, given)
    assert torch.equal(as_bits(found), as_bits(wanted))
    assert found[:, : apart.C].isnan().all()
    assert not found[:, apart.C :].isnan().any()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_reaches_no_token_before_its_own(value: float) -> None:
    case = ReadingCase(P=1, T=70, C=70, hd=40)
    given = reading_operands(case)
    before = run(case, given)
    given["delta"][0, 33, 7] = value
    after = run(case, given)
    assert not after[0, 33:, 7].isfinite().any()
    after[0, 33:, 7] = before[0, 33:, 7]
    assert torch.equal(after, before)
    given = reading_operands(case)
    given["qk"][0, 50, 20] = value
    after = run(case, given)
    assert not after[0, 50].isfinite().any()
    after[0, 50] = before[0, 50]
    assert torch.equal(after, before)


@pytest.mark.parametrize("sizes", [{"C": 33, "T": 99}, {"C": 256, "T": 256, "P": 1, "hd": 200}])
def test_threads_change_no_bit(sizes: dict, threads) -> None:
    case = replace(ReadingCase(P=3), **sizes)
    given = reading_operands(case)
    found = []
    for count in (1, 2, 5):
        threads(count)
        found.append(run(case, given))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_denormals_are_kept() -> None:
    case = ReadingCase(P=1, T=16)
    given = reading_operands(case)
    given = {"reading": given["reading"] * 0, "qk": given["qk"] * 1e-20}
    given["delta"] = torch.full_like(given["reading"], 1e-20)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        flushed = run(case, given)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(flushed, run(case, given))
    assert 0 < float(flushed.abs().max()) < 1e-38


WRONG = [
    ({"readings": (37, 6, 9)}, "readings: expected float32 [P, T, 8]"),
    ({"readings": (3, 37, 2, 9)}, "readings: expected float32 [B, T, H, 8]"),
    ({"readings": (6 * 37, 8)}, "readings: expected float32 [P, T, 8]"),
    ({"readings": (3, 37, 0, 8)}, "num_parallel: expected at least 1, got 0"),
    ({"readings": (5, 37, 8)}, "num_parallel: expected"),
    ({"readings": (6, 16, 8)}, "first_step: expected a step in 0..0, got 1"),
    ({"reading": (12, 16)}, "reading: expected float32 [N, C, hd]"),
    ({"qk": (12, 16, 8)}, "qk: expected float32 [12, 16, 16]"),
    ({"delta": (12, 16, 9)}, "delta: expected float32 [12, 16, 8]"),
    ({"reading": (12, 257, 8), "qk": (12, 257, 257), "delta": (12, 257, 8)}, "1..256, got 257"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_arguments(change: dict, message: str) -> None:
    shapes = {"reading": (12, 16, 8), "qk": (12, 16, 16), "delta": (12, 16, 8)}
    shapes |= {"readings": (3, 37, 2, 8)} | change
    given = {name: torch.full(shape, 7.0) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=r"^\[chunk_readings\] ") as caught:
        chunk_kernels.chunk_readings(Segment(1, 3), **given)
    assert message in str(caught.value)
    assert (given["readings"] == 7).all()


@pytest.mark.parametrize("name", ["reading", "qk", "delta", "readings"])
def test_wrong_dtypes_and_layouts(name: str) -> None:
    shapes = {"reading": (12, 16, 8), "qk": (12, 16, 16), "delta": (12, 16, 8)}
    given = {k: torch.full(shape, 7.0) for k, shape in (shapes | {"readings": (6, 37, 8)}).items()}
    strided = given[name].transpose(0, 1).contiguous().transpose(0, 1)
    for kind, change in ((TypeError, given[name].double()), (ValueError, strided)):
        with pytest.raises(kind, match=rf"^\[chunk_readings\] {name}: expected"):
            chunk_kernels.chunk_readings(Segment(1, 3), **(given | {name: change}))
    assert (given["readings"] == 7).all()
