"""The tuning tool but for its clock: what it times, chooses, writes and reports."""

from __future__ import annotations

import json
from typing import Any

import bf16_linear as tune
import pytest
from bf16_linear_tuning import measure
from bf16_linear_tuning.choice import best, device_entry, rule_text
from bf16_linear_tuning.report import changes, table, targets

from sdm_runtime.linear import rule
from sdm_runtime.linear.launch import named_tactic, tactics
from sdm_runtime.linear.rule_format import Point

ENTRIES = [row["entry"] for row in tactics()]


def point(gains: dict[str, float], tactic=0, shape=(8, 1024, 2048), route="static_weights"):
    library = dict.fromkeys(gains, 10.0)
    kernel = {setting: 10.0 / gain for setting, gain in gains.items()}
    m, n, k = shape
    return Point(m, n, k, route, ENTRIES[tactic], 1, library, kernel, 0.01)


def both(chain: float, behind: float, tactic: int) -> Point:
    return point({"chain": chain, "behind_others": behind}, tactic)


def test_best_is_the_fastest_of_those_that_win_everywhere():
    fast_chain, steady, slow = both(3.0, 1.0, 0), both(1.5, 1.2, 1), both(1.1, 1.1, 2)
    assert best([fast_chain, steady, slow]) is steady
    assert best([fast_chain, slow]) is slow
    assert best([fast_chain, both(1.04, 1.04, 1)]).tactic == ENTRIES[1]


@pytest.mark.parametrize("shape", [(1, 256, 1024), (16, 2112, 7168), (64, 8192, 8192)])
def test_candidates_fit_what_their_point_may_serve(shape):
    found = measure.candidates(shape, 132)
    assert len(found) == len(set(found)) >= 3
    for tactic in found:
        row = tactics()[tactic.index]
        assert row["tokens"] <= 2 * shape[0] or row["tokens"] == 8
        assert tactic.splits in row["splits"]
        assert tactic.splits * row["depth"] <= shape[2] // 2 + row["depth"] - 1


def test_candidates_have_every_number_of_splits_within_two_waves():
    shape, wide = (64, 2112, 7168), 33  # blocks of 64 rows
    found = measure.candidates(shape, 132)
    index = ENTRIES.index("bf16_linear_r64_t64_k128_s7")
    assert [t.splits for t in found if t.index == index] == [1, 2, 3, 4, 5, 6, 7, 8]
    few = [t.splits for t in measure.candidates(shape, 2 * wide) if t.index == index]
    assert few == [1, 2, 3, 4]


class FakeCalls:
    """Graphs that know what they take: 20 us for F.linear, 3 us for the kernel before a call."""

    def __init__(self, pool, shape):
        pass

    def function(self, linear):
        return lambda: 20.0

    def kernel(self, tactic, pdl):
        base = 10.0 + tactic.index + tactic.splits - 1
        return lambda: base - 4 * pdl

    def chain(self, call):
        return call

    def clock(self):
        return lambda: 1 / 1800

    def behind_others(self, call):
        return (lambda: 3.0) if call is None else (lambda: 3.0 + call() + 1)


def test_measure_takes_the_other_kernels_time_off(monkeypatch):
    monkeypatch.setattr(measure, "Calls", FakeCalls)
    monkeypatch.setattr(measure, "alternate", lambda graphs, n: [[g()] * n for g in graphs])
    measured = measure.measure(None, (8, 1024, 2048), 132, 3)
    plain, static = measured.points
    assert (plain.route, plain.tactic, plain.splits) == ("plain", ENTRIES[0], 1)
    assert (plain.library_us, plain.kernel_us) == ({"chain": 20.0}, {"chain": 10.0})
    assert static.route == "static_weights"
    assert static.library_us == {"chain": 20.0, "behind_others": 21.0}
    assert static.kernel_us == {"chain": 6.0, "behind_others": 7.0}
    assert static.gain == 3.0
    assert static.spread == 0.0
    assert measured.fastest_chain == static
    assert measured.inductor_us is None
    assert measured.clock_mhz == pytest.approx(1800)


def test_the_chains_fastest_may_be_another_than_the_rules(monkeypatch):
    """The first tactic, fastest in a chain, loses 13 us behind others."""
    monkeypatch.setattr(measure, "Calls", FakeCalls)
    slow_behind = {9.0 + 1: 23.0}  # 3 us before it, 6 of its own, 1 as for all, and 13
    monkeypatch.setattr(
        measure,
        "alternate",
        lambda graphs, n: [[slow_behind.get(g(), g())] * n for g in graphs],
    )
    measured = measure.measure(None, (8, 1024, 2048), 132, 3)
    rule = measured.points[1]
    assert rule.kernel_us == {"chain": 7.0, "behind_others": 8.0}
    assert measured.fastest_chain.kernel_us == {"chain": 6.0, "behind_others": 20.0}


def test_inductor_takes_its_turns(monkeypatch):
    class Calls(FakeCalls):
        def function(self, linear):
            return linear if linear is compiled else super().function(linear)

    def compiled():
        return 12.5

    monkeypatch.setattr(measure, "Calls", Calls)
    monkeypatch.setattr(measure, "alternate", lambda graphs, n: [[g()] * n for g in graphs])
    with_inductor = measure.measure(None, (8, 1024, 2048), 132, 3, compiled)
    without = measure.measure(None, (8, 1024, 2048), 132, 3)
    assert with_inductor.inductor_us == 12.5
    assert with_inductor.points == without.points


def test_written_data_is_read_back():
    points = [both(1.5, 1.2, 1), point({"chain": 1.01}, route="plain")]
    text = rule_text([device_entry((9, 0, 132), points, {"device": "a"})])
    lattice = rule.parse(json.loads(text))[9, 0, 132]
    assert sorted(p.route for p in lattice.points()) == ["plain", "static_weights"]
    assert lattice.decide((8, 1024, 2048), "static_weights").point.tactic == ENTRIES[1]
    assert lattice.decide((8, 1024, 2048), "plain").point is None


def test_only_what_changed_is_reported():
    before = rule.DeviceRule([both(1.5, 1.2, 1), point({"chain": 1.2}, route="plain")], 1.05)
    after = rule.DeviceRule([both(1.5, 1.3, 1), point({"chain": 1.01}, route="plain")], 1.05)
    assert changes(before, before) == []
    (line,) = changes(before, after)
    assert "plain" in line
    assert f"{ENTRIES[0]} x1 -> library (gain 1.010" in line
    assert len(changes(None, before)) == 2


def test_the_table_and_the_targets_are_printed():
    static, plain = both(1.6, 1.2, 1), point({"chain": 1.1}, route="plain")
    text = table([measure.Measured([plain, static], static, 7.5, 1800.0)], 1.05)
    assert text.splitlines()[2:] == [
        "| 1024, 2048 | 8 | 10.00 | 7.50 | 9.09 (1.10x) | 6.25 (1.60x) | r64_t8_k128_s11 x1 | 1.05 "
        "| 5.96 | r64_t8_k128_s11 x1 | 6.25 (1.60x) | 8.33 (1.20x) |"
    ]
    text = table([measure.Measured([plain, static], both(2.0, 1.0, 0), None, 1800.0)], 1.3)
    assert "| 10.00 |  | 9.09 (1.10x) | 5.00 (2.00x) |" in text
    assert (
        f"| {ENTRIES[0].removeprefix('bf16_linear_')} x1 | 1.05 | 4.77 | F.linear |  |  |" in text
    )
    assert targets([static, plain])[0].endswith("1 of 1 met")
    assert "0 of 1 met; missed: 1024x2048 M8 1.40" in targets([both(1.4, 1.2, 1)])[0]
    large = point({"chain": 1.3, "behind_others": 1.1}, shape=(1, 4096, 4096))
    assert [line.split(":")[-1] for line in targets([large])[1:]] == [" 1 of 1 met"] * 2


def test_shapes_are_distinct_and_start_with_the_specified_ones():
    wanted = tune.shapes(quick=False)
    assert len(set(wanted)) == len(wanted)
    assert wanted[: len(tune.shapes(quick=True))] == tune.shapes(quick=True)
    assert all(k % 16 == 0 for _, _, k in wanted)


def test_what_the_time_does_not_suffice_for_is_left_out(monkeypatch):
    monkeypatch.setattr(tune, "measure", lambda *a: a[1])
    wanted = tune.shapes(quick=True)
    given: list[Any] = [
        tune.measure_all(None, wanted, 132, 3, seconds, inductor=False) for seconds in (60.0, -1.0)
    ]
    assert given == [(wanted, []), ([], wanted)]


def test_inductor_is_asked_for_the_specified_shapes_alone(monkeypatch):
    monkeypatch.setattr(tune, "measure", lambda *a: a[4])
    monkeypatch.setattr(tune, "compiled_linear", lambda: "compiled")
    wanted = [(8, 2048, 2048), (16, 2048, 2048), (8, 256, 1024), (128, 11008, 4096)]
    asked: list[Any] = tune.measure_all(None, wanted, 132, 3, 60.0, inductor=True)[0]
    assert asked == ["compiled", None, None, "compiled"]
    assert tune.measure_all(None, wanted, 132, 3, 60.0, inductor=False)[0] == [None] * 4


def test_named_tactics_are_those_of_the_data():
    assert named_tactic(ENTRIES[3], 3).for_core() == (3, 3)
