"""What docs/frameworks.md shows is run, in one session from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sdm_runtime import SparseDeltaMemory

PAGE = (Path(__file__).parents[2] / "docs/frameworks.md").read_text()


def test_the_page_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(blocks) == PAGE.count("```python") == 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/frameworks.md", "exec"), names)
    layer = names["layer"]
    assert isinstance(layer, SparseDeltaMemory)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(3.0)
    kept: Any = layer.A_log
    kept._is_hf_initialized = True
    names["_init_weights"](nn.Module(), layer)
    assert (kept == 3).all()
    assert not layer.memory.any()
    assert not (layer.Wv_write.weight == 3).any()
