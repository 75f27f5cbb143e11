"""Looking into plans, chains and captured graphs.

Files are read without torch, CUDA or the extension: a plan carries its own field table. Names
resolve on first use, so that what needs torch or cuda-python is loaded only when it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker sees of the names below
    from sdm_runtime.inspect.captured.live import bindings as bindings
    from sdm_runtime.inspect.captured.live import graph as graph
    from sdm_runtime.inspect.captured.live import trace as trace
    from sdm_runtime.inspect.reading.files import decode as decode
    from sdm_runtime.inspect.reading.files import load as load
    from sdm_runtime.inspect.reading.model import ChainModel as ChainModel
    from sdm_runtime.inspect.reading.model import FileError as FileError
    from sdm_runtime.inspect.reading.timeline import load_trace as load_trace
    from sdm_runtime.inspect.report import write_report as write_report

_EXPORTS = {
    "ChainModel": "reading.model",
    "FileError": "reading.model",
    "bindings": "captured.live",
    "decode": "reading.files",
    "graph": "captured.live",
    "load": "reading.files",
    "load_trace": "reading.timeline",
    "trace": "captured.live",
    "write_report": "report",
}

__all__ = [*_EXPORTS]


if not TYPE_CHECKING:  # which would believe in any name

    def __getattr__(name: str) -> Any:
        if name in _EXPORTS:
            return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
