"""Measures the points of the decision rule for one shape."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from sdm_runtime import _core
from sdm_runtime.linear.launch import tactics
from sdm_runtime.linear.modes import Tactic
from sdm_runtime.linear.rule import MAX_STEP
from sdm_runtime.linear.rule_format import Point

from .choice import best
from .timing import Calls, Shape, alternate, screen

PLAIN_FINALISTS, STATIC_FINALISTS = 2, 3


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


@dataclass(frozen=True)
class Candidate:
    """A tactic by one route, and its rounds (microseconds a call) by setting."""

    route: str
    tactic: Tactic
    rounds: dict[str, list[float]]


def measure(pool: torch.Tensor, shape: Shape, sm_count: int, rounds: int) -> list[Point]:
    """The points of a shape: the best tactic by each route."""
    calls = Calls(pool, shape)
    library, finalists = _rounds(calls, _finalists(calls, shape, sm_count), rounds)
    points = [_point(shape, candidate, library) for candidate in finalists]
    routes = dict.fromkeys(point.route for point in points)
    return [best(p for p in points if p.route == route) for route in routes]


def _finalists(calls: Calls, shape: Shape, sm_count: int) -> list[tuple[str, Tactic]]:
    found = []
    counts = {"plain": PLAIN_FINALISTS, "static_weights": STATIC_FINALISTS}
    for route, count in counts.items():
        pdl = route == "static_weights"
        times = {
            tactic: screen(calls.chain(calls.kernel(tactic, pdl)))
            for tactic in candidates(shape, sm_count)
        }
        found += [(route, tactic) for tactic in sorted(times, key=times.__getitem__)[:count]]
    return found


def _rounds(
    calls: Calls, finalists: list[tuple[str, Tactic]], rounds: int
) -> tuple[dict[str, list[float]], list[Candidate]]:
    """F.linear's rounds by setting and the finalists with theirs, all replayed in turn."""
    linear = calls.function(F.linear)
    graphs = [calls.chain(linear), calls.behind_others(None), calls.behind_others(linear)]
    for route, tactic in finalists:
        kernel = calls.kernel(tactic, route == "static_weights")
        graphs.append(calls.chain(kernel))
        if route == "static_weights":
            graphs.append(calls.behind_others(kernel))
    chain, others, behind, *rest = alternate(graphs, rounds)

    def without_others(times: list[float]) -> list[float]:
        return [time - other for time, other in zip(times, others, strict=True)]

    library = {"chain": chain, "behind_others": without_others(behind)}
    timed, results = iter(rest), []
    for route, tactic in finalists:
        by_setting = {"chain": next(timed)}
        if route == "static_weights":
            by_setting["behind_others"] = without_others(next(timed))
        results.append(Candidate(route, tactic, by_setting))
    return library, results


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
