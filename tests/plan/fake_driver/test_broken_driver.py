"""A driver that lacks a function: one clear reason, the same on every call."""

import pytest
from forged import gemm_tensors, operands

from sdm_runtime import CudaError, _core, backends


def test_a_driver_without_a_function_is_unavailable(driver):
    driver.fail("cuGetProcAddress", 500, working=3)
    reason = str(backends()["cuda"])
    assert "the CUDA driver has no cuDeviceGetCount of version 2000" in reason
    assert backends()["cuda"] == reason
    refs = dict(operands(gemm_tensors()))
    with pytest.raises(CudaError, match="has no cuDeviceGetCount"):
        _core.plan_blas_gemm(refs["d_u"], refs["x"], refs["d_dv"], 2, 3)
