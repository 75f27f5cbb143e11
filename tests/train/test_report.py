"""The files that a run leaves: JSON, the last chain."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sdm_runtime import StepChain, sdm_write_read
from sdm_runtime.dispatch import keep_last_chain, last_chain
from sdm_runtime.train.report.report import describe_run, save_last_chain, write_json

from .conftest import SMALL


def test_json_is_json(tmp_path: Path, alone) -> None:
    path = tmp_path / "made" / "report.json"
    write_json(path, describe_run(SMALL, alone, captured=False))
    content = json.loads(path.read_text())
    assert content["config"] == SMALL.to_dict()
    assert content["environment"]["torch"] == torch.__version__
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": math.nan})
    assert json.loads(path.read_text()) == content


def backward_once() -> None:
    bank = torch.zeros(16, 8)
    index = torch.tensor([[[0, 1]] * 20], dtype=torch.int32)
    weight = torch.full((1, 20, 2), 0.5)
    v = torch.randn(1, 20, 8, requires_grad=True)
    gate = torch.full((1, 20, 1), 0.5)
    options: dict[str, Any] = {"chunk_size": 16, "num_memory_slots": 16}
    sdm_write_read(bank, index, weight, v, gate, -gate, index, weight, **options).sum().backward()


def test_the_last_chain_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "made" / "last.chain"
    keep_last_chain()
    try:
        assert not save_last_chain(path)
        backward_once()
        assert save_last_chain(path)
        assert "gx_pa2" in path.with_suffix(".html").read_text()
        loaded = StepChain.load(path)
        assert [plan.kernel for plan in loaded.plans] == ["gx_gwr", "gx_gemm", "gx_pa2", "gx_gds"]
        assert loaded.steps == 2
        assert not any(plan.bound for plan in last_chain().plans)
    finally:
        keep_last_chain(False)
    backward_once()
    assert last_chain() is None
