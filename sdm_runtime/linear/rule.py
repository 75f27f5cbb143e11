"""The decision rule: where the kernel was measured to beat F.linear, as data.

``rule_data.json`` holds, per kind of device, the measured gains (F.linear's time over the
kernel's) on a lattice of shapes, and the measurement that made them; tools/tune_bf16_linear.py
writes it. A shape between lattice points is served by the kernel only where all points around it
reached the least gain; outside the lattice, and on a device without data, the library is.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import product
from typing import Any

FORMAT = 1
MODES = ("plain", "static_weights")


class RuleError(ValueError):
    """rule_data.json does not have the form that this version reads."""


@dataclass(frozen=True)
class Lattice:
    """One kind of device: ``gains[mode][i][j][l]`` is that of tokens[i], rows[j], depths[l]."""

    tokens: tuple[int, ...]
    rows: tuple[int, ...]
    depths: tuple[int, ...]
    gains: dict[str, list[list[list[float]]]]
    minimum_gain: float

    def least_gain(self, m: int, n: int, k: int, mode: str) -> float | None:
        """The least gain of the lattice points around a shape; None outside the lattice."""
        around = [_around(axis, v) for axis, v in zip(self._axes(), (m, n, k), strict=True)]
        if not all(around):
            return None
        table = self.gains[mode]
        return min(table[i][j][depth] for i, j, depth in product(*around))

    def _axes(self) -> tuple[tuple[int, ...], ...]:
        return self.tokens, self.rows, self.depths


def _around(axis: tuple[int, ...], value: int) -> tuple[int, ...]:
    """Indices of the points on both sides of a value, of one point that equals it, or none."""
    at = bisect_left(axis, value)
    if at < len(axis) and axis[at] == value:
        return (at,)
    return (at - 1, at) if 0 < at < len(axis) else ()


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise RuleError(f"rule_data.json: {what}")


def _parse_axis(entry: dict[str, Any], name: str) -> tuple[int, ...]:
    axis = entry[name]
    good = bool(axis) and all(isinstance(v, int) and v >= 1 for v in axis)
    _expect(good and axis == sorted(set(axis)), f"{name}: expected ascending sizes, got {axis}")
    return tuple(axis)


def _parse_device(entry: dict[str, Any], minimum_gain: float) -> tuple[tuple[Any, ...], Lattice]:
    names = {"capability", "sm_count", "tokens", "rows", "depths", "gains", "measurement"}
    _expect(set(entry) == names, f"device: expected {sorted(names)}, got {sorted(entry)}")
    axes = [_parse_axis(entry, name) for name in ("tokens", "rows", "depths")]
    _expect(set(entry["gains"]) == set(MODES), f"gains: expected {MODES}")
    for mode in MODES:
        table = entry["gains"][mode]
        shape_fits = len(table) == len(axes[0]) and all(
            len(plane) == len(axes[1]) and all(len(line) == len(axes[2]) for line in plane)
            for plane in table
        )
        _expect(shape_fits, f"gains[{mode}]: expected {[len(axis) for axis in axes]} numbers")
        _expect(
            all(g > 0 for plane in table for line in plane for g in line),
            f"gains[{mode}]: expected positive numbers",
        )
    key = (*entry["capability"], entry["sm_count"])
    return key, Lattice(axes[0], axes[1], axes[2], entry["gains"], minimum_gain)


def parse(data: dict[str, Any]) -> dict[tuple[Any, ...], Lattice]:
    """The lattices by (capability major, minor, SM count).

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
def load() -> dict[tuple[Any, ...], Lattice]:
    """The lattices of the data file that comes with the package."""
    text = resources.files(__package__).joinpath("rule_data.json").read_text()
    return parse(json.loads(text))


def refusal(
    lattices: dict[tuple[Any, ...], Lattice],
    device: tuple[int, int, int],
    shape: tuple[int, int, int],
    static_weights: bool,
) -> str | None:
    """Why the library serves shape (M, N, K) on a device (major, minor, SMs); None: the kernel."""
    major, minor, sm_count = device
    if major != 9:
        return f"the kernel needs compute capability 9.0, the device has {major}.{minor}"
    lattice = lattices.get(device)
    if lattice is None:
        return f"no measurement for compute capability {major}.{minor} with {sm_count} SMs"
    gain = lattice.least_gain(*shape, MODES[static_weights])
    if gain is None:
        return "the shape is outside the measured region"
    if gain < lattice.minimum_gain:
        return f"measured gain {gain:.2f} is below {lattice.minimum_gain:.2f}"
    return None
