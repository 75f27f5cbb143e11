"""The decision rule as data: what a lattice of measured gains answers."""

from __future__ import annotations

import copy

import pytest

from sdm_runtime.linear import rule

HOPPER = (9, 0, 132)


def data() -> dict:
    """Two token counts, two row counts, two depths; plain launches lose at (8, 256, 1024)."""
    wins, loses = [[1.5, 1.2], [1.3, 1.4]], [[1.5, 1.2], [1.3, 1.01]]
    device = {
        "capability": [9, 0],
        "sm_count": 132,
        "tokens": [1, 8],
        "rows": [128, 256],
        "depths": [512, 1024],
        "gains": {"plain": [wins, loses], "static_weights": [wins, wins]},
        "measurement": {},
    }
    return copy.deepcopy({"format": 1, "minimum_gain": 1.05, "devices": [device]})


def refusal(shape, static_weights=False, device=HOPPER):
    return rule.refusal(rule.parse(data()), device, shape, static_weights)


@pytest.mark.parametrize("shape", [(1, 128, 512), (1, 200, 768), (8, 128, 1024), (4, 128, 700)])
def test_taken_where_all_points_around_win(shape):
    assert refusal(shape) is None


@pytest.mark.parametrize("shape", [(8, 256, 1024), (7, 200, 1000), (8, 129, 1024)])
def test_refused_beside_a_point_that_does_not_win(shape):
    assert refusal(shape) == "measured gain 1.01 is below 1.05"
    assert refusal(shape, static_weights=True) is None


@pytest.mark.parametrize("shape", [(9, 128, 512), (1, 127, 512), (1, 257, 512), (1, 128, 2048)])
def test_refused_outside_the_lattice(shape):
    assert refusal(shape) == "the shape is outside the measured region"


def test_refused_on_other_devices():
    assert refusal((1, 128, 512), device=(8, 0, 108)).startswith("the kernel needs compute capab")
    assert "no measurement" in refusal((1, 128, 512), device=(9, 0, 114))


def test_shipped_data_can_be_read():
    assert isinstance(rule.load(), dict)


DAMAGE = {
    "format": lambda d: d.update(format=2),
    "minimum_gain": lambda d: d.update(minimum_gain=0.9),
    "tokens": lambda d: d["devices"][0].update(tokens=[8, 1]),
    "rows": lambda d: d["devices"][0].update(rows=[]),
    "gains": lambda d: d["devices"][0]["gains"].pop("plain"),
    "expected [2, 2, 2] numbers": lambda d: d["devices"][0]["gains"]["plain"].pop(),
    "positive": lambda d: d["devices"][0]["gains"]["plain"][0][0].__setitem__(0, 0.0),
    "twice": lambda d: d["devices"].append(copy.deepcopy(d["devices"][0])),
    "measurement": lambda d: d["devices"][0].pop("measurement"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_data_is_named(what):
    damaged = data()
    rule.parse(damaged)  # the control
    DAMAGE[what](damaged)
    with pytest.raises(rule.RuleError) as caught:
        rule.parse(damaged)
    assert what in str(caught.value)
