"""One checked call: everything that the forward and the backward need to know besides tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.ops.call.quant import SnapshotFormat


class Call(NamedTuple):
    """The sizes and options of a call, after its checks. Calls of a kind are equal."""

    geometry: Geometry
    form: SnapshotFormat
    grad_bank_fp32: bool
    gemm: str
    keep_state: bool = False

    def describe(self) -> dict[str, Any]:
        """Sizes by the letters of docs/step_chain.md, for the dispatch record."""
        g = self.geometry
        return {
            "P": g.sequences,
            "T": g.tokens,
            "C": g.chunk,
            "W": g.writes,
            "R": g.reads,
            "hd": g.head_dim,
            "steps": g.steps,
            "snapshot": self.form.name,
        }
