"""Checkpoints: written whole, checked before they are used."""
