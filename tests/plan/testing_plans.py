"""Plans of the test kernels (csrc/testing), wrapped as users' plans are."""

from __future__ import annotations

import torch
from core_testing import core_testing

from sdm_runtime import Plan
from sdm_runtime.tensor.refs import tensor_ref

ODD_VALUES = 9
FIXED = (0, 0, 0, 0)  # a patch that always gives 0


def register() -> None:
    """Test kernels are unknown to a process that never asks for them."""
    core_testing().register_kernels()


def odd_layout_plan(out: torch.Tensor, *values, steps: int) -> Plan:
    """``values``: small, (a, b, c), byte, scale, tail, wide, last."""
    register()
    bound = core_testing().plan_odd_layout(tensor_ref("out", out), *values, steps)
    return Plan._recorded(bound, {"out": out})


def walk_plan(
    out: torch.Tensor,
    *,
    bytes_line=FIXED,
    value_line=FIXED,
    first_line=FIXED,
    count: int = 1,
    steps: int = 1,
    add: bool = False,
    empty: bool = False,
) -> Plan:
    """Each line is a patch: (base, stride, lowest, highest)."""
    register()
    bound = core_testing().plan_walk(
        tensor_ref("out", out), bytes_line, value_line, first_line, count, steps, add, empty
    )
    return Plan._recorded(bound, {"out": out})


def faulty(name: str, out: torch.Tensor):
    register()
    return getattr(core_testing(), f"plan_{name}")(tensor_ref("out", out))
