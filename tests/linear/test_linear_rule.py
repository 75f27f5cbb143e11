"""The decision rule as data: what measured points answer for the shapes between and around them."""

from __future__ import annotations

import copy
import itertools

import pytest

from sdm_runtime.linear import rule
from sdm_runtime.linear.launch import named_tactic, tactics
from sdm_runtime.linear.op import _by_rule
from sdm_runtime.linear.rule_format import ROUTES, RuleError, parse_point, point_entry

HOPPER = (9, 0, 132)
ENTRY = "bf16_linear_r64_t8_k128_s6"


def point(m, n, k, route="plain", gain=1.5, **changes) -> dict:
    settings = ("chain",) if route == "plain" else ("chain", "behind_others")
    entry = {"m": m, "n": n, "k": k, "route": route, "tactic": ENTRY, "splits": 1, "spread": 0.01}
    times = dict.fromkeys(settings, 10.0)
    return {
        **entry,
        "library_us": dict.fromkeys(settings, 10.0 * gain),
        "kernel_us": times,
        **changes,
    }


def data() -> dict:
    """A box of weights 128..256 by 512..1024 and one alone; (8, 256, 1024) loses when plain."""
    shapes = [*itertools.product((1, 8), (128, 256), (512, 1024)), (1, 4096, 512)]
    points = [point(*s, route) for s in shapes for route in ROUTES]
    lost = next(
        p for p in points if (p["m"], p["n"], p["k"], p["route"]) == (8, 256, 1024, "plain")
    )
    lost["library_us"] = {"chain": 10.1}
    device = {"capability": [9, 0], "sm_count": 132, "points": points, "measurement": {}}
    return {"format": 2, "minimum_gain": 1.05, "devices": [device]}


def decide(shape, route="plain", device=HOPPER, given=None):
    return rule.decide(rule.parse(given or data()), device, shape, route)


INSIDE = [(1, 128, 512), (1, 200, 768), (8, 128, 1024), (4, 128, 700), (1, 4096, 512)]


@pytest.mark.parametrize("shape", INSIDE)
def test_taken_where_all_points_around_win(shape):
    decision = decide(shape)
    assert decision.reason == "measured to be faster"
    assert all(have >= want for have, want in zip(decision.point.shape, shape, strict=True))


def test_the_largest_corner_names_the_tactic():
    given = data()
    corner = next(p for p in given["devices"][0]["points"] if (p["m"], p["n"]) == (8, 256))
    corner.update(tactic="bf16_linear_r64_t8_k128_s11", splits=2)
    assert corner["k"] == 512
    served = decide((5, 129, 512), given=given).point
    assert (served.tactic, served.splits) == ("bf16_linear_r64_t8_k128_s11", 2)
    assert decide((5, 128, 512), given=given).point.tactic == ENTRY


@pytest.mark.parametrize("shape", [(8, 256, 1024), (7, 200, 1000), (8, 129, 1024)])
def test_refused_beside_a_point_that_does_not_win(shape):
    assert decide(shape).reason == "measured gain 1.010 is below 1.05"
    assert decide(shape).point is None
    assert decide(shape, "static_weights").point is not None


OUTSIDE = [(9, 128, 512), (1, 127, 512), (1, 257, 512), (1, 128, 2048), (8, 4096, 512)]


@pytest.mark.parametrize("shape", [*OUTSIDE, (1, 1024, 512)])
def test_refused_outside_the_measured_region(shape):
    """Between weights more than a factor of two apart nothing counts as measured."""
    assert decide(shape).reason == "the shape is outside the measured region"


def test_refused_on_other_devices():
    reason = decide((1, 128, 512), device=(8, 0, 108)).reason
    assert reason.startswith("the kernel needs compute capability 9.0")
    assert "no measurement" in decide((1, 128, 512), device=(9, 0, 114)).reason


def test_the_gain_is_that_of_the_worst_setting():
    times = {"library_us": {"chain": 20, "behind_others": 11}}
    measured = parse_point(point(1, 128, 512, "static_weights", **times))
    assert measured.gain == pytest.approx(1.1)
    assert parse_point(point_entry(measured)) == measured


def test_static_weights_may_be_served_by_ordinary_launches(monkeypatch):
    given = data()
    for entry in given["devices"][0]["points"]:
        if entry["route"] == "static_weights":
            entry["library_us"]["behind_others"] = 9.0
    monkeypatch.setattr(rule, "load", lambda: rule.parse(given))
    rule.decide_shipped.cache_clear()
    try:
        choice = _by_rule(HOPPER, (1, 128, 512), True)
        assert choice.tactic is not None
        assert not choice.pdl
        assert _by_rule(HOPPER, (1, 128, 2048), True).tactic is None
    finally:
        rule.decide_shipped.cache_clear()


def shipped_points():
    return [p for device in rule.load().values() for p in device.points()]


def test_shipped_points_name_tactics_of_the_table():
    assert shipped_points()
    for measured in shipped_points():
        named_tactic(measured.tactic, measured.splits)
    with pytest.raises(ValueError, match="expected one of bf16_linear_r"):
        named_tactic("bf16_linear_r32_t8_k128_s6", 1)
    assert named_tactic("bf16_linear_r64_t64_k128_s6_m4", 2).splits == 2
    for splits in (0, 3):
        with pytest.raises(ValueError, match=f"splits: expected one of 1, 2 for .*, got {splits}"):
            named_tactic("bf16_linear_r64_t64_k128_s6_m4", splits)


def test_shipped_tactics_fit_every_shape_they_serve():
    """A point serves depths down to half its own, where each split still has a depth tile."""
    for measured in shipped_points():
        tactic = tactics()[named_tactic(measured.tactic, measured.splits).index]
        assert measured.splits <= -(-measured.depth // rule.MAX_STEP // tactic["depth"])


DAMAGE = {
    "format": lambda d: d.update(format=1),
    "minimum_gain": lambda d: d.update(minimum_gain=0.9),
    "expected a route": lambda d: d["devices"][0]["points"][0].update(route="fast"),
    "positive sizes": lambda d: d["devices"][0]["points"][0].update(n=0),
    "positive times": lambda d: d["devices"][0]["points"][0].update(kernel_us={"chain": 0.0}),
    "times in ('chain',)": lambda d: d["devices"][0]["points"][0].update(library_us={"x": 1.0}),
    "plain twice": lambda d: d["devices"][0]["points"].append(point(1, 128, 512)),
    "the same kind twice": lambda d: d["devices"].append(copy.deepcopy(d["devices"][0])),
    "measurement": lambda d: d["devices"][0].pop("measurement"),
    "point: expected": lambda d: d["devices"][0]["points"][0].pop("spread"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_data_is_named(what):
    damaged = data()
    rule.parse(damaged)  # the control
    DAMAGE[what](damaged)
    with pytest.raises(RuleError) as caught:
        rule.parse(damaged)
    assert what in str(caught.value)
