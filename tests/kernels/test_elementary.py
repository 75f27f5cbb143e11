"""exp, log1p, sigmoid and softplus as the kernels compute them, against float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_library import needs_compiler, small_library

pytestmark = needs_compiler

NAMES = ("exponential", "log_1_plus", "sigmoid", "softplus")
SOURCE = '#include "kernels/common/math/elementary.h"\n' + "".join(
    f'extern "C" void {name}(const float* x, float* y, long n) {{\n'
    f"  for (long i = 0; i < n; ++i) y[i] = sdm::{name}(x[i]);\n}}\n"
    for name in NAMES
)
Floats = np.ndarray[Any, np.dtype[np.float32]]


def exact_sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def exact_softplus(x: Any) -> Any:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


# The function in float64, and units in the last place that the kernels' may be off.
EXACT: dict[str, tuple[Callable[[Any], Any], float]] = {
    "exponential": (np.exp, 1.1),
    "log_1_plus": (np.log1p, 2.0),
    "sigmoid": (exact_sigmoid, 3.0),
    "softplus": (exact_softplus, 3.0),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return small_library(tmp_path_factory.mktemp("elementary"), SOURCE)


def compute(library: ctypes.CDLL, name: str, x: Floats) -> Floats:
    y = np.empty_like(x)
    getattr(library, name)(
        x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(x.size)
    )
    return y


def units_off(got: Floats, exact: Any) -> float:
    """The largest distance in units in the last place of the float32 that the exact value is."""
    nearest = exact.astype(np.float32)
    unit = np.spacing(np.abs(np.where(np.isinf(nearest), np.float32(1), nearest)))
    off = np.where(got == nearest, 0.0, np.abs(got.astype(np.float64) - exact) / unit)
    return float(off.max())


def every_97th_float() -> Floats:
    x = np.arange(0, 1 << 32, 97, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return x[~np.isnan(x)]


@pytest.mark.parametrize("name", NAMES)
def test_accuracy(library: ctypes.CDLL, name: str) -> None:
    exact, allowed = EXACT[name]
    x = every_97th_float()
    x = x[(x >= 0) & (x <= 1)] if name == "log_1_plus" else x
    with np.errstate(over="ignore", under="ignore"):
        expected = exact(x.astype(np.float64))
        assert 0 < units_off(compute(library, name, x), expected) <= allowed
        # The control: values a little off are found.
        assert units_off(compute(library, name, x) * np.float32(1 + 1e-6), expected) > allowed


@pytest.mark.parametrize("name", NAMES)
def test_nan_and_infinities(library: ctypes.CDLL, name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], dtype=np.float32)
    y = compute(library, name, x)
    assert np.isnan(y[0])
    if name != "log_1_plus":  # defined on [0, 1]
        expected = {"exponential": (np.inf, 0), "sigmoid": (1, 0), "softplus": (np.inf, 0)}[name]
        assert (y[1], y[2]) == expected
    at_zero = {"exponential": 1, "log_1_plus": 0, "sigmoid": 0.5, "softplus": np.log(2)}[name]
    assert y[3] == y[4] == np.float32(at_zero)
