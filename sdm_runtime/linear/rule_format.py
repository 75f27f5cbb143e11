"""One measured point of the decision rule, as rule_data.json holds it.

The route says how the kernel is launched, the setting what runs before it on the stream:

- ``plain``: ordinary launches. One setting, ``chain``: each call follows another one.
- ``static_weights``: programmatic launches. In ``chain`` a call follows another call of this
  kernel, which lets it start early; in ``behind_others`` it follows a small kernel that does not.

The gain is F.linear's time over the kernel's, in the setting where it is least: the rule does not
know what a caller launches before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FORMAT = 2
SETTINGS = {"plain": ("chain",), "static_weights": ("chain", "behind_others")}
ROUTES = tuple(SETTINGS)


class RuleError(ValueError):
    """rule_data.json does not have the form that this version reads."""


@dataclass(frozen=True)
class Point:
    """A shape and a route: the fastest tactic, and microseconds a call by setting."""

    tokens: int  # M
    rows: int  # N
    depth: int  # K
    route: str
    tactic: str  # the device function
    splits: int
    library_us: dict[str, float]
    kernel_us: dict[str, float]
    spread: float | None  # of the gain over the rounds: (largest - least) / median; None: one round

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K)."""
        return self.tokens, self.rows, self.depth

    @property
    def gain(self) -> float:
        """The least of the settings."""
        return min(self.library_us[s] / self.kernel_us[s] for s in SETTINGS[self.route])


_NAMES = ("m", "n", "k", "route", "tactic", "splits", "library_us", "kernel_us", "spread")


def parse_point(entry: dict[str, Any]) -> Point:
    """A point from its JSON form.

    Raises:
        RuleError: It has another form.
    """
    if set(entry) != set(_NAMES):
        raise RuleError(f"point: expected {sorted(_NAMES)}, got {sorted(entry)}")
    point = Point(*(entry[name] for name in _NAMES))
    where = f"point {point.shape} {point.route}"
    if point.route not in SETTINGS:
        raise RuleError(f"{where}: expected a route of {ROUTES}")
    if any(not isinstance(size, int) or size < 1 for size in (*point.shape, point.splits)):
        raise RuleError(f"{where}: expected positive sizes and splits, got {point.splits} splits")
    for times in (point.library_us, point.kernel_us):
        if set(times) != set(SETTINGS[point.route]) or min(times.values()) <= 0:
            raise RuleError(f"{where}: expected positive times in {SETTINGS[point.route]}")
    return point


def point_entry(point: Point) -> dict[str, Any]:
    """A point in its JSON form; times to a nanosecond."""

    def rounded(times: dict[str, float]) -> dict[str, float]:
        return {setting: round(us, 3) for setting, us in times.items()}

    values = (*point.shape, point.route, point.tactic, point.splits)
    spread = None if point.spread is None else round(point.spread, 3)
    times = (rounded(point.library_us), rounded(point.kernel_us))
    return dict(zip(_NAMES, (*values, *times, spread), strict=True))
