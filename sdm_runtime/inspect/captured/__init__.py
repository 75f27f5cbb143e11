"""Captured CUDA graphs and live chains, matched to their plans. Needs torch or cuda-python."""
