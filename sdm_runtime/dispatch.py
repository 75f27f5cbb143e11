"""What the latest call of the operation ran."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from typing import Any

_lock = threading.Lock()


@dataclass(frozen=True)
class Dispatch:
    """One call: the names are the keys of :func:`last_dispatch`."""

    op: str  # "sdm_write_read.forward", "sdm_write_read.backward", ..
    route: str  # "loop" (torch operations step by step) or "chain" (plans run by the executor)
    backend: str  # "host" or "cuda"
    gemm: str | None = None  # "gx_gemm" or "blas"; None where no step has one
    gemm_reason: str = ""
    pdl: bool = False
    geometry: dict[str, Any] = field(default_factory=dict)
    launches: int = 0  # by the executor
    plan_us: float = 0.0  # building the plans and the chain, microseconds


_latest: Dispatch | None = None


def record(dispatch: Dispatch) -> None:
    """Make dispatch the latest call's, whatever thread it ran on (autograd has its own)."""
    global _latest
    with _lock:
        _latest = dispatch


def last_dispatch() -> dict[str, Any] | None:
    """What the latest call ran, in any thread of this process; None before the first.

    Returns:
        A new dict: op, route ("chain" or "loop"), backend, gemm and gemm_reason, pdl, geometry,
        launches, plan_us (microseconds spent on building plans).
    """
    with _lock:
        latest = _latest
    return None if latest is None else asdict(latest)
