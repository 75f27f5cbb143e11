"""When gx_gemm may stand in for the BLAS: where it is faster and proven to give the same bits.

Names resolve on first use. The design is in ``verdicts``; the other files are one concern each.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker sees of the names below
    from sdm_runtime.qualify.public import decide as decide
    from sdm_runtime.qualify.public import decide_backward as decide_backward
    from sdm_runtime.qualify.public import matches_blas as matches_blas
    from sdm_runtime.qualify.public import prepare as prepare
    from sdm_runtime.qualify.public import prepare_skipped as prepare_skipped
    from sdm_runtime.qualify.public import reset as reset
    from sdm_runtime.qualify.public import stats as stats
    from sdm_runtime.qualify.verdicts import Decision as Decision
    from sdm_runtime.qualify.verdicts import Qualifier as Qualifier

_EXPORTS = {
    "Decision": "verdicts",
    "Qualifier": "verdicts",
    "decide": "public",
    "decide_backward": "public",
    "matches_blas": "public",
    "prepare": "public",
    "prepare_skipped": "public",
    "reset": "public",
    "stats": "public",
}

__all__ = [*_EXPORTS]


if not TYPE_CHECKING:  # which would believe in any name

    def __getattr__(name: str) -> Any:
        if name in _EXPORTS:
            found = getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
            globals()[name] = found  # the next use finds it without coming here
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
