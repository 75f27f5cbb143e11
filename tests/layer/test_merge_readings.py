"""Readings merged for the output projection: the layer's own operations, and exact values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from layer_plans import with_fields
from merge_cases import BF16, F32, ROWS, TYPES, Merge, merge_case
from plan_cases import from_bytes
from torch import Tensor
from torch.nn import functional as F

from sdm_runtime import Plan, PlanError, StepChain
from sdm_runtime.layer.readings import ReadingsNorm, merge_readings, plan_merge_readings


def as_the_layer(case: Merge) -> Tensor:
    """SparseDeltaMemory._project_out's operations, but for the projection."""
    readings = case.readings.to(case.dtype)
    if case.norm is not None:
        weight, bias, eps = case.norm
        if weight.dtype == F32:  # autocast's layer_norm
            readings = readings.float()
        readings = F.layer_norm(readings, (readings.shape[-1],), weight, bias, eps)
    merged = readings.flatten(2)
    if case.gate is not None:
        merged = merged * torch.sigmoid(case.gate)
    return merged.to(case.dtype)


def exact(case: Merge) -> Tensor:
    readings = case.readings.to(case.dtype).double()
    if case.norm is not None:
        weight, bias, eps = case.norm
        shape = (readings.shape[-1],)
        readings = F.layer_norm(readings, shape, weight.double(), bias.double(), eps)
    merged = readings.flatten(2)
    return merged if case.gate is None else merged * torch.sigmoid(case.gate.double())


@pytest.mark.parametrize("sizes", ROWS)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("gap", [0, 3])
def test_values(sizes: tuple[int, ...], types: tuple[Any, ...], gap: int) -> None:
    case = merge_case(sizes, types, gap)
    given = merge_readings(case.readings, case.dtype, norm=case.norm, gate=case.gate)
    assert given.dtype == case.dtype
    assert given.shape == (sizes[0], sizes[1], sizes[2] * sizes[3])
    assert given.is_contiguous()
    wanted = exact(case)
    # Three roundings of half a unit each: of the norm's result, the sigmoid and the product.
    narrow = BF16 in (
        case.dtype,
        *(x.dtype for x in (*(case.norm or ())[:2], case.gate) if x is not None),
    )
    limit = 3 * 2.0**-8 if narrow else 2e-6
    scale = wanted.abs().clamp(min=1e-2 if narrow else 1.0)
    bound = float(((given.double() - wanted).abs() / scale).max())
    assert bound <= limit
    # The layer's own operations: another order of sums may turn a rounding, of few values.
    layers = as_the_layer(case)
    torch.testing.assert_close(given, layers, rtol=2 * limit, atol=limit)
    if case.dtype == BF16:
        assert float((given != layers).double().mean()) < 0.02
    # The control: without one of the parts it is another result.
    if case.norm is not None and sizes[3] > 1:
        other = merge_readings(case.readings, case.dtype, gate=case.gate)
        assert not torch.allclose(other.double(), wanted, rtol=0.1)
    if case.gate is not None:
        other = merge_readings(case.readings, case.dtype, norm=case.norm)
        assert not torch.allclose(other.double(), wanted, rtol=0.1)


def test_without_norm_or_gate_it_is_a_copy() -> None:
    case = merge_case((2, 3, 2, 70), (BF16, None, None, BF16), 0)
    assert torch.equal(merge_readings(case.readings, BF16), case.readings.flatten(2))


def test_equal_columns_become_the_bias() -> None:
    """Two passes: no cancellation makes a negative variance of a large mean."""
    readings = torch.full((1, 1, 2, 300), 1e6)
    norm = ReadingsNorm(torch.randn(300), torch.randn(300), 1e-6)
    assert torch.equal(merge_readings(readings, F32, norm=norm)[0, 0, :300], norm.bias)


def ordered_sum(row: Tensor) -> Tensor:
    """Of a row in the documented order."""
    total = None
    for part in row.split(128):
        lanes = F.pad(part, (0, 128 - part.numel())).view(32, 4)
        sums = ((lanes[:, 0] + lanes[:, 1]) + lanes[:, 2]) + lanes[:, 3]
        while sums.numel() > 1:
            sums = sums[0::2] + sums[1::2]
        total = sums[0] if total is None else total + sums[0]
    assert total is not None
    return total


@pytest.mark.parametrize("hd", [3, 128, 300, 1156])
def test_the_order_of_the_sums(hd: int) -> None:
    """With a scale of a thousandth (eps) for all, the bias gives the mean away."""
    torch.manual_seed(hd)
    readings = torch.randn(4, 1, 8, hd)
    norm = ReadingsNorm(torch.ones(hd), torch.zeros(hd), 1e30)
    given = merge_readings(readings, F32, norm=norm).view(-1, hd)
    rows = readings.view(-1, hd)
    means = torch.stack([ordered_sum(row) for row in rows]) / hd
    scale = 1.0 / torch.tensor(1e30).sqrt()
    assert torch.equal(given, (rows - means[:, None]) * scale)
    if hd > 3:  # the control
        other = torch.stack([ordered_sum(row.flip(0)) for row in rows]) / hd
        assert not torch.equal(given, (rows - other[:, None]) * scale)


@pytest.mark.parametrize("sizes", [(0, 2, 3, 8), (2, 0, 3, 8)])
def test_no_tokens(sizes: tuple[int, ...]) -> None:
    case = merge_case(sizes, TYPES[0], 0)
    given = merge_readings(case.readings, case.dtype, norm=case.norm, gate=case.gate)
    assert given.shape == (sizes[0], sizes[1], 24)


def test_a_wanted_gradient_is_refused() -> None:
    case = merge_case((1, 1, 2, 8), TYPES[0], 0)
    case.readings.requires_grad_()
    with pytest.raises(ValueError, match="expected tensors that require no gradient"):
        merge_readings(case.readings, BF16)
    with torch.no_grad():
        assert not merge_readings(case.readings, BF16).requires_grad


def half(norm: ReadingsNorm) -> ReadingsNorm:
    return norm._replace(weight=norm.weight[:4])


BAD: list[tuple[str, Any, type[Exception], str]] = [
    (
        "readings",
        lambda x: x[0],
        ValueError,
        "readings: expected float32 or bfloat16 [B, T, H, hd]",
    ),
    ("readings", lambda x: x.double(), TypeError, "readings: expected float32 or bfloat16"),
    ("readings", lambda x: x.mT.contiguous().mT, ValueError, "a head's columns side by side"),
    ("gate", lambda x: x[..., 1:], ValueError, "gate: expected float32 or bfloat16 [1, 5, 16]"),
    ("gate", lambda x: x.half(), TypeError, "gate: expected float32 or bfloat16 [1, 5, 16]"),
    ("gate", lambda x: x.mT.contiguous().mT, ValueError, "a token's values side by side"),
    ("norm", half, ValueError, "norm_weight: expected bfloat16 [8], got bfloat16 [4]"),
    ("norm", lambda x: x._replace(bias=x.bias.float()), TypeError, "norm_bias: expected bfloat16"),
    ("norm", lambda x: x._replace(eps=0.0), ValueError, "eps: expected a positive number"),
    ("norm", lambda x: x._replace(eps=float("nan")), ValueError, "eps: expected a positive number"),
]


@pytest.mark.parametrize(("name", "change", "error", "message"), BAD)
def test_a_wrong_argument_is_named(
    name: str, change: Any, error: type[Exception], message: str
) -> None:
    case = merge_case((1, 5, 2, 8), TYPES[0], 0)
    arguments: dict[str, Any] = {"readings": case.readings, "norm": case.norm, "gate": case.gate}
    merge_readings(dtype=BF16, **arguments)
    with pytest.raises(error, match=re.escape(message)):
        merge_readings(dtype=BF16, **arguments | {name: change(arguments[name])})


def record(case: Merge) -> tuple[Plan, Tensor]:
    batches, tokens, heads, hd = case.readings.shape
    merged = torch.full((batches, tokens, heads * hd), torch.nan, dtype=case.dtype)
    return plan_merge_readings(case.readings, merged, norm=case.norm, gate=case.gate), merged


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("gap", [0, 3])
def test_recorded_saved_loaded_rebound(types: tuple[Any, ...], gap: int, tmp_path: Path) -> None:
    sizes = (2, 3, 2, 132)
    case, second = (merge_case(sizes, types, gap, seed) for seed in (0, 1))
    plan, merged = record(case)
    StepChain([plan], 1).run()
    wanted = merge_readings(case.readings, case.dtype, norm=case.norm, gate=case.gate)
    assert torch.equal(merged, wanted)
    plan.save(tmp_path / "merge.plan")
    other_plan, other = record(second)
    bound = Plan.load(tmp_path / "merge.plan").bind(**other_plan.tensors)
    StepChain([bound], 1).run()
    wanted = merge_readings(second.readings, case.dtype, norm=second.norm, gate=second.gate)
    assert torch.equal(other, wanted)
    assert not torch.equal(other, merged)


DAMAGE = [
    ({"hd": 0}, "hd"),
    ({"hd": 2**21}, "hd"),
    ({"hd": 9}, "expected at least"),
    ({"num_heads": 3}, "expected at least"),
    ({"num_tokens": 6}, "expected at least"),
    ({"num_batches": 2}, "expected at least"),
    ({"num_batches": 2**31 - 1, "num_tokens": 1}, "num_heads: expected B . T . H below"),
    ({"readings_batch_stride": -8}, "readings_batch_stride"),
    ({"readings_token_stride": 17}, "readings: expected at least"),
    ({"readings_head_stride": 41}, "readings: expected at least"),
    ({"readings_head_stride": -1}, "readings_head_stride"),
    ({"gate_token_stride": 2**62}, "gate: expected at least"),
    ({"readings_type": 1}, "readings: expected"),
    ({"norm_type": 1}, "norm_weight: expected"),
    ({"gate_type": 1}, "gate: expected"),
    ({"merged_type": 1}, "merged: expected"),
    ({"merged_type": 3}, "merged_type: expected a row format"),
]


@pytest.mark.parametrize(("changes", "message"), DAMAGE)
def test_damaged_numbers_are_refused(changes: dict, message: str) -> None:
    plan, _ = record(merge_case((1, 5, 2, 8), TYPES[0], 0))
    from_bytes(with_fields(plan, num_tokens=4))  # the control
    with pytest.raises(PlanError, match=message):
        from_bytes(with_fields(plan, **changes))
