"""The console scripts."""

from sdm_runtime.commands.start import plan, train

__all__ = ["plan", "train"]
