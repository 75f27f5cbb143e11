"""What inexact snapshots cost: what the rows that they restore differ by, and nothing beside."""

from __future__ import annotations

import pytest
import torch
from op_cases import (
    DIFFERENTIABLE,
    Case,
    call,
    expected,
    make_grad,
    make_inputs,
    relative_error,
    run,
)

from sdm_runtime.ops.call.quant import decode, encode, snapshot_format

_F32, _BF16 = torch.float32, torch.bfloat16


def _product(factor, row, restored):
    """factor * row, whose gradient of the factor takes the restored row in the row's place."""
    return factor.detach() * row + (factor - factor.detach()) * restored.detach()


def _bank_before(case, inputs, t):
    """The bank as the operation has it before token t: to the bit, for rounding has steps."""
    given = {n: x if n == "memory" else x[:, :t] for n, x in inputs.items()}
    given["memory"] = inputs["memory"].clone()
    if t > 0:
        call(case.but(T=t), given)
    return given["memory"]


def _gradients_by_restored_rows(case, inputs):
    """The token recurrence's gradients in float64, where the backward reads what it restored.

    Chunk by chunk, last to first, a backward overwrites the chunk's written rows by their decoded
    snapshots. So a row reads exactly until a chunk writes it, and decoded in that chunk and in all
    before it. What tokens of the same chunk wrote is added to it exactly.
    """
    form = snapshot_format(case.options["snapshot_quant"], case.dtype, case.hd)
    leaves = {}
    for name, x in inputs.items():
        if name in ("k_val", "v", "q_val"):
            x = x.to(case.dtype)
        leaves[name] = x.long() if name.endswith("_idx") else x.double().requires_grad_()
    k_idx, q_idx = leaves["k_idx"], leaves["q_idx"]
    bank, readings = leaves["memory"], []
    for t in range(case.T):
        if t % case.C == 0:
            restored = bank.detach().clone()
            rows = k_idx[:, t:].unique()
            stored = encode(_bank_before(case, inputs, t)[rows], form)
            restored[rows] = decode(*stored, form, case.dtype).double()
        k, slots = leaves["k_val"][:, t].unsqueeze(2), k_idx[:, t]
        decay = leaves["g"][:, t].expand(-1, case.W).exp().unsqueeze(2)
        row = _product(decay, bank[slots], restored[slots])
        row_restored = decay.detach() * restored[slots]
        read = _product(k, row, row_restored).sum(1)
        write = k * (leaves["beta"][:, t] * (leaves["v"][:, t] - read)).unsqueeze(1)
        bank = bank.index_put((slots,), row + write)
        restored = restored.index_put((slots,), row_restored + write.detach())
        q, slots = leaves["q_val"][:, t].unsqueeze(2), q_idx[:, t]
        readings.append(_product(q, bank[slots], restored[slots]).sum(1))
    flat = torch.stack(readings, 1).flatten(0, 1)
    wanted = [leaves[name] for name in DIFFERENTIABLE]
    grads = torch.autograd.grad(flat, wanted, make_grad(case).double())
    return dict(zip(DIFFERENTIABLE, grads, strict=True))


_SHAPES = {
    "plain": Case(hd=36),
    "gate per write": Case(hd=36, gate_per_write=True),
    "one-slot bank": Case(S=1, W=1, R=2, T=40),
    "every slot written": Case(S=6, W=6, T=70),
    "ragged by one": Case(T=33, P=3),
    "three slices": Case(T=40, hd=300),
    "strong decay": Case(S=8, decay=5.0),
}


@pytest.mark.parametrize("name", _SHAPES)
@pytest.mark.parametrize("quant", ["bf16", "fp8", "int4"])
def test_nothing_is_lost_beside_the_restored_rows(quant, name):
    case = _SHAPES[name].but(options={"snapshot_quant": quant})
    inputs = make_inputs(case)
    found = run(case, inputs).grads
    by_restored, exact = _gradients_by_restored_rows(case, inputs), expected(case, inputs).grads
    for name in DIFFERENTIABLE:
        assert relative_error(found[name], by_restored[name]) < 6e-7, name
    # The control: the rows' rounding alone is far above that.
    rounding = [relative_error(by_restored[n], exact[n]) for n in ("k_val", "g", "q_val")]
    assert max(rounding) > 3e-4, rounding


def _hot_slots(case):
    """Data of a layer in use: 8 hot slots a sequence, softmax weights, sigmoid strengths."""
    gen = torch.Generator().manual_seed(case.seed)
    lead, inputs = (case.P, case.T), make_inputs(case)

    def normal(*shape):
        return torch.randn(*shape, generator=gen)

    def slots(count):
        chosen = torch.rand(*lead, 8, generator=gen).argsort(-1)[..., :count]
        return (chosen + torch.arange(case.P).view(-1, 1, 1) * case.S).int()

    return inputs | {
        "memory": (0.5 * normal(case.P * case.S, case.hd)).to(case.dtype),
        "k_idx": slots(case.W),
        "k_val": normal(*lead, case.W).softmax(-1),
        "beta": normal(*lead, 1).sigmoid(),
        "g": -torch.nn.functional.softplus(normal(*lead, 1) - 1.3),
        "q_idx": slots(case.R),
        "q_val": normal(*lead, case.R).softmax(-1),
    }


_ROW_TYPES = [
    # bank, snapshot_quant, grad_bank_fp32, limit of g and q_val
    (_F32, "none", False, 5e-7),
    (_F32, "bf16", False, 9e-4),
    (_F32, "fp8", False, 1.5e-2),
    (_F32, "int4", False, 5.5e-2),
    (_BF16, "none", False, 2e-3),
    (_BF16, "none", True, 2e-3),
    (_BF16, "fp8", False, 1.5e-2),
    (_BF16, "fp8", True, 1.5e-2),
    (_BF16, "int4", False, 5.5e-2),
    (_BF16, "int4", True, 5.5e-2),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("bank", "quant", "wide", "limit"), _ROW_TYPES)
def test_as_exact_as_known(bank, quant, wide, limit, seed):
    options = {"snapshot_quant": quant, "grad_bank_fp32": wide}
    case = Case(P=8, T=128, S=64, hd=64, C=64, dtype=bank, seed=seed, options=options)
    inputs = _hot_slots(case)
    given, exact = run(case, inputs), expected(case, inputs)
    plain = 5e-7 if bank == _F32 else 2e-3
    found = {"readings": relative_error(given.readings, exact.readings)}
    found |= {n: relative_error(given.grads[n], x) for n, x in exact.grads.items()}
    # k_val passes through the snapshot only in part.
    limits = {"readings": plain, "k_val": max(plain, limit / 5), "g": limit, "q_val": limit}
    for name, error in found.items():
        assert error < limits.get(name, plain), (name, found)
