"""The exceptions: which is caught as what."""

import subprocess
import sys

import pytest
import torch

from sdm_runtime import CudaError, CudaOutOfMemoryError


def test_out_of_memory_is_torchs_and_ours():
    for kind in (torch.OutOfMemoryError, CudaError, RuntimeError):
        with pytest.raises(kind, match="no room"):
            raise CudaOutOfMemoryError("no room")
    assert not issubclass(CudaError, torch.OutOfMemoryError)


def test_the_other_errors_need_no_torch():
    code = "import sdm_runtime.errors, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    control = code.replace("errors", "memory_error")
    assert subprocess.run([sys.executable, "-c", control], stderr=subprocess.PIPE).returncode == 1
