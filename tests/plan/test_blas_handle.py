"""torch's BLAS handle, where torch has no memory for it."""

import contextlib

import pytest
import torch

from sdm_runtime import CudaError, CudaOutOfMemoryError
from sdm_runtime.plan.blas_step import blas_handle


def raising(error):
    def call():
        raise error

    return call


@pytest.fixture(autouse=True)
def no_device(monkeypatch):
    for name in ("device", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda _: contextlib.nullcontext())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 MiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_no_memory_for_a_handle_is_the_same_error_as_elsewhere(monkeypatch, error):
    monkeypatch.setattr(torch.cuda, "current_blas_handle", raising(error))
    with pytest.raises(CudaOutOfMemoryError, match="cuBLAS handle of cuda:1: CUDA") as raised:
        blas_handle(torch.device("cuda", 1))
    assert isinstance(raised.value, CudaError)
    assert isinstance(raised.value, torch.OutOfMemoryError)
    assert raised.value.issued == 0  # so a backward leaves its call as it was
    assert raised.value.__cause__ is error


def test_other_errors_of_a_handle_stay_as_they_are(monkeypatch):
    error = RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED")
    monkeypatch.setattr(torch.cuda, "current_blas_handle", raising(error))
    with pytest.raises(RuntimeError) as raised:
        blas_handle(torch.device("cuda", 1))
    assert raised.value is error
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: 7)
    assert blas_handle(torch.device("cuda", 1)) == 7
