"""The sparse delta memory layer: product-key addressing around `sdm_write_read`."""

from __future__ import annotations

from .args import SparseDeltaMemoryArgs
from .cache import MemoryCache
from .memory_layer import SparseDeltaMemory
from .weight_decay import split_weight_decay

__all__ = ["MemoryCache", "SparseDeltaMemory", "SparseDeltaMemoryArgs", "split_weight_decay"]
