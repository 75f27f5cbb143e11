"""The part of the extension that only tests use: ``_core.testing`` (csrc/bindings/testing)."""

from __future__ import annotations

from types import ModuleType

import pytest

from sdm_runtime import _core

MISSING = (
    "sdm_runtime._core.testing: not in this build (an editable install has it, another one with "
    "SKBUILD_CMAKE_DEFINE=SDM_TESTING=ON: tests/README.md)"
)


def core_testing() -> ModuleType:
    """The module; the test that asks for it is skipped, with its name, in a build without it."""
    part: ModuleType | None = getattr(_core, "testing", None)
    if part is None:
        pytest.skip(MISSING)
    return part
