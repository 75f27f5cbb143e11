"""Two libraries of the BLAS's name in one process: nothing says which one torch calls."""

import ctypes
import shutil

import pytest
from forged import STEPS, P, gemm_tensors, operands

from sdm_runtime import CudaError, _core


def test_two_loaded_libraries_are_refused(driver, tmp_path):
    second = tmp_path / "libcublas.so.98"
    shutil.copy(driver.libraries / "libcublas.so.99", second)
    ctypes.CDLL(str(second))
    refs = dict(operands(gemm_tensors()))
    plan = _core.plan_blas_gemm(refs["d_u"], refs["x"], refs["d_dv"], P, STEPS)
    with pytest.raises(CudaError, match="two libraries of this name are loaded"):
        _core.Chain([plan], STEPS).run(driver.stream(), driver.blas_handle())
