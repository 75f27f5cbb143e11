"""What this build can run."""

from __future__ import annotations

from sdm_runtime import _core


def backends() -> dict[str, bool | str]:
    """``{"host": True, "cuda": True or the reason why not}``. Asks the driver on first use."""
    reason = _core.cuda_unavailable()
    return {"host": True, "cuda": reason if reason else True}
