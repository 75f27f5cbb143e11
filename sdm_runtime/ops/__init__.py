"""The operation: the gated delta rule on sparsely addressed slots, with autograd."""

from __future__ import annotations

from sdm_runtime.ops.public import sdm_write_read

__all__ = ["sdm_write_read"]
