"""Every output against the float64 token recurrence."""

from __future__ import annotations

import pytest
import torch
from op_cases import Case, errors, relative_error, run

from sdm_runtime.ops.call import geometry

# By the norm. Known implementations reach 5e-7 and 3e-3 here.
_LIMIT = {torch.float32: 6e-7, torch.bfloat16: 4e-3}

_SHAPES = {
    "plain": Case(),
    "one chunk": Case(T=16),
    "shorter than a chunk": Case(T=11, C=64),
    "one token": Case(T=1, P=16),
    "ragged by one": Case(T=33),
    "one write, one read": Case(W=1, R=1),
    "more reads than writes": Case(W=2, R=9),
    "more writes than reads": Case(W=9, R=2),
    "every slot written": Case(S=6, W=6, T=70),
    "one-slot bank": Case(S=1, W=1, R=1, T=40),
    "one-slot bank, read twice": Case(S=1, W=1, R=2, T=40),
    "repeats in a token": Case(S=5, W=8, R=8, repeats=True),
    "one sequence": Case(P=1),
    "seven sequences": Case(P=7, T=20),
    "gate per write": Case(gate_per_write=True),
    "gate per write, repeats": Case(S=5, W=8, gate_per_write=True, repeats=True),
    "no decay": Case(decay=0.0),
    "strong decay": Case(decay=30.0, S=8),
    "long chunk": Case(T=300, C=256, S=64),
    "odd chunk": Case(T=100, C=37),
    "skewed slots": Case(S=512, W=16, R=16, T=150, C=64, picks="skewed"),
    "one slot in every token": Case(S=512, W=8, R=8, T=150, C=64, picks="one-hot"),
    "wide": Case(W=64, R=64, S=100, T=40, hd=8),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", _SHAPES)
def test_matches_the_recurrence(name, dtype):
    found = errors(_SHAPES[name].but(dtype=dtype))
    assert max(found.values()) < _LIMIT[dtype], found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("hd", [1, 30, 36, 77, 128, 130, 300])
def test_any_head_dim(hd, dtype):
    found = errors(Case(hd=hd, T=40, dtype=dtype, gate_per_write=True))
    assert max(found.values()) < _LIMIT[dtype], found


@pytest.mark.parametrize("quant", ["none", "bf16"])
def test_segments_of_one_step(quant, monkeypatch):
    case = Case(T=70, hd=130, gate_per_write=True, options={"snapshot_quant": quant})
    whole = run(case)
    monkeypatch.setattr(geometry, "_SEGMENT_BYTES_HOST", 1)
    parts = run(case)
    assert torch.equal(parts.restored, whole.restored)
    for name, x in whole.grads.items():
        assert relative_error(parts.grads[name], x) < 6e-7, name
    if quant == "none":
        assert max(errors(case).values()) < _LIMIT[torch.float32]
