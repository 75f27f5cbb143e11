"""capture_step where there is no CUDA device: a refusal, not a fallback."""

import pytest
import torch

from sdm_runtime.graphs import capture_step


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_is_refused():
    calls = []
    with pytest.raises(ValueError, match="expected a CUDA device, got none here: call the step"):
        capture_step(calls.append, torch.ones(2))
    assert calls == []
