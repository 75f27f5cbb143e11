"""What a measurement changed, and the table of the specified shapes with their targets."""

from __future__ import annotations

from collections.abc import Iterable

from sdm_runtime.linear.rule import DeviceRule
from sdm_runtime.linear.rule_format import Point

from .measure import Measured
from .timing import Shape

WEIGHT_TB_PER_S = 4.0  # at which the weight-bandwidth time of the targets is taken


def _served(rule: DeviceRule | None, point: Point) -> str:
    served = None if rule is None else rule.decide(point.shape, point.route).point
    return "library" if served is None else f"{served.tactic} x{served.splits}"


def changes(before: DeviceRule | None, after: DeviceRule) -> list[str]:
    """A line for each measured point that the rule now serves in another way."""
    lines = []
    for point in sorted(after.points(), key=lambda p: (*p.shape[1:], p.tokens, p.route)):
        old, new = _served(before, point), _served(after, point)
        if old != new:
            m, n, k = point.shape
            lines.append(
                f"N {n:5} K {k:5} M {m:3} {point.route:14} {old} -> {new} "
                f"(gain {point.gain:.3f}, spread {point.spread or 0:.3f})"
            )
    return lines


def weight_us(shape: Shape) -> float:
    """Microseconds in which the weights alone are read."""
    _, n, k = shape
    return 2e-6 * n * k / WEIGHT_TB_PER_S


def table(measured: Iterable[Measured], minimum_gain: float) -> str:
    """Microseconds a call, with F.linear's time over it in parentheses, in Markdown.

    "Plain" and "chain" are the fastest tactics by ordinary and by programmatic launches, "ratio"
    the chain's time over that in which the weights are read. Then how the rule serves programmatic
    launches, in a chain and behind others.
    """
    lines = [
        "| N, K | M | F.linear | Inductor | plain | chain | its tactic | weights | ratio "
        "| rule's tactic | chain | behind others |",
        "|" + "---|" * 12,
    ]
    for one in measured:
        by_route = {p.route: p for p in one.points}
        plain, static, chain = by_route["plain"], by_route["static_weights"], one.fastest_chain
        m, n, k = plain.shape
        weights = weight_us(plain.shape)
        served = static.gain >= minimum_gain
        cells = [
            f"{n}, {k}",
            f"{m}",
            f"{plain.library_us['chain']:.2f}",
            "" if one.inductor_us is None else f"{one.inductor_us:.2f}",
            _ratio(plain, "chain"),
            _ratio(chain, "chain"),
            _tactic(chain),
            f"{weights:.2f}",
            f"{chain.kernel_us['chain'] / weights:.2f}",
            _tactic(static) if served else "F.linear",
            *([_ratio(static, s) for s in ("chain", "behind_others")] if served else ["", ""]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _tactic(point: Point) -> str:
    return f"{point.tactic.removeprefix('bf16_linear_')} x{point.splits}"


def _ratio(point: Point, setting: str) -> str:
    ours, library = point.kernel_us[setting], point.library_us[setting]
    return f"{ours:.2f} ({library / ours:.2f}x)"


def targets(points: Iterable[Point]) -> list[str]:
    """The targets in a chain of programmatic launches, each with the points that miss it."""
    chain = [p for p in points if p.route == "static_weights" and p.tokens <= 64]
    weights = {p.shape: p.rows * p.depth for p in chain}
    gains = {p.shape: p.library_us["chain"] / p.kernel_us["chain"] for p in chain}
    over = {p.shape: p.kernel_us["chain"] / weight_us(p.shape) for p in chain}
    small = {s: g for s, g in gains.items() if weights[s] <= 7e6}
    middle = {s: g for s, g in gains.items() if 7e6 < weights[s] <= 30e6}
    large = {s: o for s, o in over.items() if weights[s] >= 8e6}
    return [
        _target("1.5x F.linear, N*K <= 7M, M <= 64", small, {s for s in small if small[s] < 1.5}),
        _target(
            "1.2x F.linear, N*K <= 30M, M <= 64", middle, {s for s in middle if middle[s] < 1.2}
        ),
        _target("1.35x weight time, N*K >= 8M", large, {s for s in large if large[s] > 1.35}),
    ]


def _target(name: str, all_values: dict[Shape, float], missed: set[Shape]) -> str:
    listed = ", ".join(f"{n}x{k} M{m} {all_values[m, n, k]:.2f}" for m, n, k in sorted(missed))
    met = len(all_values) - len(missed)
    return f"{name}: {met} of {len(all_values)} met" + (f"; missed: {listed}" if missed else "")
