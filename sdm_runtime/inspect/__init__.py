"""Looking into plans, chains and captured graphs.

Files are read without torch, CUDA or the extension: a plan carries its own field table. Names
resolve on first use, so that what needs torch or cuda-python is loaded only when it is called.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "ChainModel": "model",
    "FileError": "model",
    "bindings": "live",
    "decode": "files",
    "graph": "live",
    "load": "files",
    "load_trace": "timeline",
    "trace": "live",
    "write_report": "report",
}

__all__ = [*_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
