"""``python -m sdm_runtime.train``: the same as ``sdm-train``, and what torchrun starts."""

from sdm_runtime.commands import train

train()
