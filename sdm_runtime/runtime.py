"""What this build can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdm_runtime import _core

if TYPE_CHECKING:
    import torch


def backends() -> dict[str, bool | str]:
    """``{"host": True, "cuda": True or the reason why not}``. Asks the driver on first use."""
    reason = _core.cuda_unavailable()
    return {"host": True, "cuda": reason if reason else True}


def supports_pdl(device: torch.device) -> bool:
    """Whether kernels on ``device`` may ask for programmatic dependent launch."""
    return device.type == "cuda" and bool(_core.supports_pdl(device.index or 0))
