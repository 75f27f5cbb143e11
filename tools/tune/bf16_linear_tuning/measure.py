"""Measures one shape: the points of the decision rule, and what they are compared with."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional as F

from sdm_runtime import _core
from sdm_runtime.linear.launch import tactics
from sdm_runtime.linear.modes import Tactic
from sdm_runtime.linear.rule import MAX_STEP
from sdm_runtime.linear.rule_format import Point

from .choice import best
from .timing import Calls, Shape, alternate

PLAIN_FINALISTS, STATIC_FINALISTS = 2, 3
SCREENING_ROUNDS = 3


def candidates(shape: Shape, sm_count: int) -> list[Tactic]:
    """Tactics worth a measurement.

    Their token tile takes all tokens or half of them, their grid is at most two waves when it is
    split, and each split has a tile of the smallest depth that the point may serve.
    """
    m, n, k = shape
    sizes = sorted({row["tokens"] for row in tactics()})
    tile = next((size for size in sizes if size >= m), sizes[-1])
    found = []
    for index, row in enumerate(tactics()):
        if row["tokens"] not in (tile, max(tile // 2, sizes[0])):
            continue
        for splits in row["splits"]:
            blocks = _core.bf16_linear_blocks(m, n, k, index, splits)
            has_tiles = splits <= -(-k // MAX_STEP // row["depth"])
            if splits == 1 or (has_tiles and blocks <= 2 * sm_count):
                found.append(Tactic(index, splits))
    return found


class Measured(NamedTuple):
    """What one shape took."""

    points: list[Point]  # the best tactic by each route: the rule's
    fastest_chain: Point  # of programmatic launches, whatever it takes behind others
    inductor_us: float | None  # a call in a chain of its own
    clock_mhz: float  # of the SMs meanwhile


@dataclass(frozen=True)
class Candidate:
    """A tactic by one route, and its rounds (microseconds a call) by setting."""

    route: str
    tactic: Tactic
    rounds: dict[str, list[float]]


class Surroundings(NamedTuple):
    """The rounds of F.linear by setting, of Inductor's linear in a chain, and of a clock cycle."""

    linear: dict[str, list[float]]
    inductor: list[float] | None
    cycle: list[float]


def measure(
    pool: torch.Tensor,
    shape: Shape,
    sm_count: int,
    rounds: int,
    inductor: Callable[..., torch.Tensor] | None = None,
) -> Measured:
    """Time a shape; ``inductor`` is another function of x, weight and bias to time with it."""
    calls = Calls(pool, shape)
    around, finalists = _rounds(calls, _finalists(calls, shape, sm_count), rounds, inductor)
    points = [_point(shape, candidate, around.linear) for candidate in finalists]
    routes = dict.fromkeys(point.route for point in points)
    return Measured(
        [best(p for p in points if p.route == route) for route in routes],
        min((p for p in points if p.route == "static_weights"), key=lambda p: p.kernel_us["chain"]),
        None if around.inductor is None else statistics.median(around.inductor),
        1 / statistics.median(around.cycle),
    )


def _finalists(calls: Calls, shape: Shape, sm_count: int) -> list[tuple[str, Tactic]]:
    found = []
    every = candidates(shape, sm_count)
    counts = {"plain": PLAIN_FINALISTS, "static_weights": STATIC_FINALISTS}
    for route, count in counts.items():
        graphs = [calls.chain(calls.kernel(tactic, route == "static_weights")) for tactic in every]
        times = map(statistics.median, alternate(graphs, SCREENING_ROUNDS))
        by_time = sorted(zip(times, every, strict=True), key=lambda pair: pair[0])
        found += [(route, tactic) for _, tactic in by_time[:count]]
    return found


def _rounds(
    calls: Calls,
    finalists: list[tuple[str, Tactic]],
    rounds: int,
    inductor: Callable[..., torch.Tensor] | None,
) -> tuple[Surroundings, list[Candidate]]:
    """The finalists with their rounds, and those of what they are compared with, all in turn."""
    linear = calls.function(F.linear)
    graphs = [calls.chain(linear), calls.behind_others(None), calls.behind_others(linear)]
    for route, tactic in finalists:
        kernel = calls.kernel(tactic, route == "static_weights")
        graphs.append(calls.chain(kernel))
        if route == "static_weights":
            graphs.append(calls.behind_others(kernel))
    if inductor is not None:
        graphs.append(calls.chain(calls.function(inductor)))
    chain, others, behind, *rest, cycle = alternate([*graphs, calls.clock()], rounds)

    def without_others(times: list[float]) -> list[float]:
        return [time - other for time, other in zip(times, others, strict=True)]

    timed, results = iter(rest), []
    for route, tactic in finalists:
        by_setting = {"chain": next(timed)}
        if route == "static_weights":
            by_setting["behind_others"] = without_others(next(timed))
        results.append(Candidate(route, tactic, by_setting))
    by_setting = {"chain": chain, "behind_others": without_others(behind)}
    return Surroundings(by_setting, next(timed, None), cycle), results


def _point(shape: Shape, candidate: Candidate, library: dict[str, list[float]]) -> Point:
    gains = {
        setting: [slow / fast for slow, fast in zip(library[setting], times, strict=True)]
        for setting, times in candidate.rounds.items()
    }
    least = min(gains.values(), key=statistics.median)
    row = tactics()[candidate.tactic.index]
    return Point(
        *shape,
        candidate.route,
        row["entry"],
        candidate.tactic.splits,
        {setting: statistics.median(library[setting]) for setting in candidate.rounds},
        {setting: statistics.median(times) for setting, times in candidate.rounds.items()},
        (max(least) - min(least)) / statistics.median(least),
    )
