"""What torch.compile leaves as it is: its graphs end before and go on after."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")


def untraced(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """As torch.compiler.disable, whose own import takes longer than that of this package."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if torch.compiler.is_compiling():
            run: Callable[_P, _R] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
            return run(*args, **kwargs)
        return function(*args, **kwargs)

    return call
