"""Which of the timed tactics a shape gets, and the file that says so."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from sdm_runtime.linear.rule_format import FORMAT, Point, point_entry

MINIMUM_GAIN = 1.05


def best(points: Iterable[Point]) -> Point:
    """Of the points of one shape and route: the fastest over all settings of those that are taken.

    Where none reaches the least gain in every setting: the one that comes closest.
    """
    given = list(points)
    taken = [point for point in given if point.gain >= MINIMUM_GAIN]
    if not taken:
        return max(given, key=lambda point: point.gain)
    return min(taken, key=lambda point: math.prod(point.kernel_us.values()))


def rule_text(devices: list[dict[str, Any]]) -> str:
    """rule_data.json: a line a point."""
    head = json.dumps({"format": FORMAT, "minimum_gain": MINIMUM_GAIN})[1:-1]
    return "{" + head + ', "devices": [\n' + ",\n".join(map(_device_text, devices)) + "\n]}\n"


def device_entry(
    kind: tuple[int, int, int], points: Iterable[Point], measurement: dict[str, Any]
) -> dict[str, Any]:
    """A device's part of rule_data.json."""
    ordered = sorted(points, key=lambda point: (*point.shape[1:], point.tokens, point.route))
    return {
        "capability": list(kind[:2]),
        "sm_count": kind[2],
        "measurement": measurement,
        "points": [point_entry(point) for point in ordered],
    }


def _device_text(entry: dict[str, Any]) -> str:
    head = {name: entry[name] for name in ("capability", "sm_count")}
    measurement = json.dumps(entry["measurement"], indent=2)
    points = ",\n".join(json.dumps(point) for point in entry["points"])
    return f'{json.dumps(head)[:-1]},\n"measurement": {measurement},\n"points": [\n{points}\n]}}'
