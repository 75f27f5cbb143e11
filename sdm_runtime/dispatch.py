"""What the latest call of the operation ran."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sdm_runtime.plan.chain import StepChain

_lock = threading.Lock()


@dataclass(frozen=True)
class Dispatch:
    """One call: the names are the keys of :func:`last_dispatch`."""

    op: str  # "sdm_write_read.forward" or ".backward", "bf16_linear", "SparseDeltaMemory.decode"
    route: str  # "chain": plans run by the executor; "kernel", "library", "general"
    backend: str  # "host" or "cuda"
    reason: str = ""  # of the layer's decoding: why it went the general way, or what was no plan
    gemm: str | None = None  # "gx_gemm" or "blas"; of bf16_linear, itself or "F.linear"
    gemm_reason: str = ""
    gemm_probe_us: float = 0.0  # of qualifying gx_gemm, microseconds; 0 where that was known
    pdl: bool = False
    geometry: dict[str, Any] = field(default_factory=dict)
    launches: int = 0  # by the executor
    plan_us: float = 0.0  # building the plans and the chain, microseconds


_latest: Dispatch | None = None
_keep_chains = False
_latest_chain: StepChain | None = None


def record(dispatch: Dispatch) -> None:
    """Make dispatch the latest call's, whatever thread it ran on (autograd has its own)."""
    global _latest
    with _lock:
        _latest = dispatch


def last_dispatch() -> dict[str, Any] | None:
    """What the latest call ran, in any thread of this process; None before the first.

    Returns:
        A new dict: op ("sdm_write_read.forward" or ".backward", "bf16_linear",
        "SparseDeltaMemory.decode"), route ("chain"; of ``bf16_linear`` "kernel" or "library"; of a
        layer's call of few tokens that could not run as a chain "general", where gemm, geometry and
        launches are empty), backend, reason (why such a call went the general way, or which modules
        were called beside the chain), gemm ("gx_gemm", "blas", "bf16_linear", "F.linear" or None),
        gemm_reason and gemm_probe_us (microseconds of a probe), pdl, geometry, launches (of the
        chains alone), plan_us (microseconds spent on recording and binding plans, the probe left
        out; 0 where a kept chain runs again).
    """
    with _lock:
        latest = _latest
    return None if latest is None else asdict(latest)


def keep_last_chain(keep: bool = True) -> None:
    """Keep a copy of the chain of each backward, and of each decoding call of the layer.

    :func:`last_chain` gives the latest; False stops it and forgets that one.

    The copy has no operands, so it holds no memory of the training; making it takes the time of
    encoding and decoding four plans, which is why it is off by default.
    """
    global _keep_chains, _latest_chain
    with _lock:
        _keep_chains = keep
        _latest_chain = None


def chains_are_kept() -> bool:
    """Whether :func:`keep_last_chain` is on."""
    return _keep_chains


def last_chain() -> StepChain | None:
    """The latest chain since :func:`keep_last_chain`, unbound; None before one."""
    with _lock:
        return _latest_chain


def chain_to_offer(chain: StepChain) -> StepChain | None:
    """An unbound copy of the chain, if one is asked for.

    Made before the run, which a failure to copy must not stop half-way.
    """
    return chain.unbound() if _keep_chains else None


def offer_chain(copy: StepChain | None) -> None:
    """Keep what :func:`chain_to_offer` gave as the latest chain."""
    global _latest_chain
    with _lock:
        if copy is not None and _keep_chains:
            _latest_chain = copy
