"""The decision rule: where the kernel was measured to beat F.linear, with which tactic, as data.

``rule_data.json`` holds, per kind of device, measured points: a shape and a route, the kernel's
tactic for them, and the times from which its gain follows (F.linear's over the kernel's);
tools/tune/bf16_linear.py writes it.
Weights [N, K] between measured ones, at most a factor of two apart along each side, are served
where every corner around them has the least gain, at the measured token counts on both sides of M.
Everything else is the library's: ties, losses, what was not measured, devices without data.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import product
from typing import Any

from .rule_format import FORMAT, Point, RuleError, parse_point

# Corners of a region are at most this factor apart, so that it holds no other kind of shape.
MAX_STEP = 2

Shape = tuple[int, int, int]  # M, N, K
DeviceKind = tuple[int, int, int]  # compute capability (major, minor), SM count


@dataclass(frozen=True)
class Decision:
    """What serves a shape: the kernel as at ``point``, or with None the library; and why."""

    reason: str
    point: Point | None = None


class DeviceRule:
    """The points of one kind of device."""

    def __init__(self, points: Iterable[Point], minimum_gain: float) -> None:
        """Index the points by route, weight and tokens."""
        self.minimum_gain = minimum_gain
        self._routes: dict[str, dict[tuple[int, int], dict[int, Point]]] = {}
        for point in points:
            weights = self._routes.setdefault(point.route, {})
            by_tokens = weights.setdefault((point.rows, point.depth), {})
            if point.tokens in by_tokens:
                raise RuleError(f"points: {point.shape} {point.route} twice")
            by_tokens[point.tokens] = point

    def points(self) -> Iterator[Point]:
        """All points."""
        for weights in self._routes.values():
            for by_tokens in weights.values():
                yield from by_tokens.values()

    def decide(self, shape: Shape, route: str) -> Decision:
        """The kernel where all points around the shape have the least gain."""
        m, n, k = shape
        weights = self._routes.get(route, {})
        around: list[Point] = []
        for corner in _corners(weights.keys(), n, k):
            by_tokens = weights[corner]
            sides = _sides(sorted(by_tokens), m)
            if not sides:
                return Decision("the shape is outside the measured region")
            around += [by_tokens[tokens] for tokens in sides]
        if not around:
            return Decision("the shape is outside the measured region")
        least = min(point.gain for point in around)
        if least < self.minimum_gain:
            return Decision(f"measured gain {least:.3f} is below {self.minimum_gain:.2f}")
        # The largest corner: its token tile takes all tokens and its grid is the largest.
        return Decision("measured to be faster", max(around, key=lambda p: p.shape[::-1]))


def _sides(axis: list[int], value: int) -> tuple[int, ...]:
    """The axis values on both sides of a value, the one that equals it, or none."""
    at = bisect_left(axis, value)
    if at < len(axis) and axis[at] == value:
        return (value,)
    return (axis[at - 1], axis[at]) if 0 < at < len(axis) else ()


def _corners(weights: Iterable[tuple[int, int]], n: int, k: int) -> list[tuple[int, int]]:
    """The corners of the smallest box around (n, k) that were all measured; the largest last."""
    measured = set(weights)
    rows = _intervals({w[0] for w in measured}, n)
    depths = _intervals({w[1] for w in measured}, k)
    boxes = [(sorted(product(set(r), set(d))), r, d) for r in rows for d in depths]
    whole = [box for box in boxes if measured.issuperset(box[0])]
    if not whole:
        return []
    return min(whole, key=lambda box: box[1][1] / box[1][0] * box[2][1] / box[2][0])[0]


def _intervals(axis: set[int], value: int) -> list[tuple[int, int]]:
    """The pairs low <= value <= high of axis values that are at most MAX_STEP apart."""
    return [
        (low, high)
        for low, high in product(axis, axis)
        if low <= value <= high <= MAX_STEP * low and (low < high or low == value)
    ]


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise RuleError(f"rule_data.json: {what}")


def _parse_device(entry: dict[str, Any], minimum_gain: float) -> tuple[DeviceKind, DeviceRule]:
    names = {"capability", "sm_count", "points", "measurement"}
    _expect(set(entry) == names, f"device: expected {sorted(names)}, got {sorted(entry)}")
    major, minor = entry["capability"]
    points = [parse_point(point) for point in entry["points"]]
    return (major, minor, entry["sm_count"]), DeviceRule(points, minimum_gain)


def parse(data: dict[str, Any]) -> dict[DeviceKind, DeviceRule]:
    """The rules by kind of device.

    Raises:
        RuleError: The data has another form.
    """
    _expect(data.get("format") == FORMAT, f"format: expected {FORMAT}, got {data.get('format')}")
    minimum_gain = data["minimum_gain"]
    _expect(minimum_gain >= 1, f"minimum_gain: expected at least 1, got {minimum_gain}")
    devices = [_parse_device(entry, minimum_gain) for entry in data["devices"]]
    _expect(len(dict(devices)) == len(devices), "devices: the same kind twice")
    return dict(devices)


@lru_cache(maxsize=1)
def load() -> dict[DeviceKind, DeviceRule]:
    """The rules of the data file that comes with the package."""
    text = resources.files(__package__).joinpath("rule_data.json").read_text()
    return parse(json.loads(text))


def decide(
    rules: dict[DeviceKind, DeviceRule], device: DeviceKind, shape: Shape, route: str
) -> Decision:
    """What serves shape (M, N, K) on a device, by a route of ``rule_format.ROUTES``."""
    major, minor, sm_count = device
    if major != 9:
        needs = f"the kernel needs compute capability 9.0, the device has {major}.{minor}"
        return Decision(needs)
    rule = rules.get(device)
    if rule is None:
        return Decision(f"no measurement for compute capability {major}.{minor}, {sm_count} SMs")
    return rule.decide(shape, route)


@lru_cache(maxsize=4096)
def decide_shipped(device: DeviceKind, shape: Shape, route: str) -> Decision:
    """:func:`decide` by the data that comes with the package."""
    return decide(load(), device, shape, route)
