"""Whole training steps in one CUDA graph."""

from sdm_runtime.graphs.captured_step import CapturedStep, capture_step

__all__ = ["CapturedStep", "capture_step"]
