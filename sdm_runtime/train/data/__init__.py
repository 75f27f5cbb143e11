"""Bytes to learn from, and the sequences drawn from them."""
