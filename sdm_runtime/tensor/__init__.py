"""Tensors as the core sees them, and what torch must know of the work done on them."""
