"""The sparse delta memory layer: product-key addressing around `sdm_write_read`."""

from __future__ import annotations

from sdm_runtime.layer.args import SparseDeltaMemoryArgs
from sdm_runtime.layer.cache import MemoryCache
from sdm_runtime.layer.memory_layer import SparseDeltaMemory
from sdm_runtime.layer.weight_decay import split_weight_decay

__all__ = ["MemoryCache", "SparseDeltaMemory", "SparseDeltaMemoryArgs", "split_weight_decay"]
