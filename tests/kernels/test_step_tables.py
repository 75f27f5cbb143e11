"""What Python's functions take is what the core's tables say that the kernels take."""

from __future__ import annotations

import inspect

import pytest

from sdm_runtime import kernels
from sdm_runtime.kernels.steps import step_tables
from sdm_runtime.plan.unread import unread_names

KERNELS = sorted(step_tables())


def differences(function, kernel: str, others: set[str]) -> set[str]:
    """Names that only the function or only the table has, and those that one lets be missing."""
    table = step_tables()[kernel]
    wanted = table.operands | table.numbers | dict.fromkeys(others, False)
    wanted |= dict.fromkeys(table.words, True)
    parameters = inspect.signature(function).parameters
    given = {name: p.default is None for name, p in parameters.items()}
    return {name for name in wanted | given if wanted.get(name) != given.get(name)}


def test_every_step_kernel_is_here() -> None:
    assert {f"plan_{kernel}" for kernel in KERNELS} == {
        name for name in kernels.__all__ if name.startswith("plan_")
    }


@pytest.mark.parametrize("kernel", KERNELS)
def test_signatures_follow_the_table(kernel: str) -> None:
    unread = set(unread_names(kernel))
    assert differences(getattr(kernels, kernel), kernel, unread | {"ti"}) == set()
    plan = getattr(kernels, f"plan_{kernel}")
    assert differences(plan, kernel, unread | {"steps", "pdl"}) == set()


def test_a_signature_that_does_not_is_found() -> None:
    def gx_gemm(d_u, x, d_dv=None, *, num_parallel, ti, chunk_size): ...

    assert differences(gx_gemm, "gx_gemm", {"ti"}) == {"d_dv", "chunk_size"}


def test_what_a_launch_writes() -> None:
    written = {kernel: set(table.written) for kernel, table in step_tables().items()}
    assert written == {
        "fx_read": {"residual", "reading"},
        "fx_write": {"bank", "snap"},
        "gx_gds": {"grad", "dq"},
        "gx_gemm": {"d_u"},
        "gx_gwr": {"d_dv", "dpd"},
        "gx_pa2": {"grad", "bank", "out_eff", "out_g"},
    }
