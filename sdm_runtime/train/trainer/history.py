"""What a run has shown so far: loss curve, evaluations and totals."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class History:
    """What a run has shown so far.

    Attributes:
        losses: mean loss of each step, nats per predicted symbol.
        evaluations: (steps done, metric) pairs.
        tokens: read so far, by all processes together.
        seconds: time in steps and evaluations, over all sessions of the run.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
