"""Random calls of the operation, and their float64 answers from the token recurrence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from op_recurrence import token_recurrence
from torch import Tensor

import sdm_runtime

DIFFERENTIABLE = ("memory", "k_val", "v", "beta", "g", "q_val")


@dataclass(frozen=True)
class Case:
    """Sizes and options; the letters are those of docs/step_chain.md."""

    P: int = 2
    T: int = 50
    S: int = 40
    hd: int = 16
    W: int = 4
    R: int = 5
    C: int = 16
    dtype: torch.dtype = torch.float32
    gate_per_write: bool = False
    repeats: bool = False  # a token may name a slot twice
    picks: str = "uniform"  # or "skewed", "one-hot": as trained models pick slots
    decay: float = 1.0  # g is uniform in [-decay, 0]
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def but(self, **changes: Any) -> Case:
        return replace(self, **changes)


def make_inputs(case: Case) -> dict[str, Tensor]:
    """Arguments of sdm_write_read, [P, T, .], by name."""
    gen = torch.Generator().manual_seed(case.seed)
    lead = (case.P, case.T)
    base = torch.arange(case.P).view(-1, 1, 1) * case.S

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=gen)

    if case.repeats:
        k_idx = torch.randint(0, case.S, (*lead, case.W), generator=gen)
    else:
        k_idx = torch.rand(*lead, case.S, generator=gen).argsort(-1)[..., : case.W]
    gates = case.W if case.gate_per_write else 1
    inputs = {
        "memory": normal(case.P * case.S, case.hd).to(case.dtype),
        "k_idx": (k_idx + base).int(),
        "k_val": normal(*lead, case.W) / case.W**0.5,
        "v": normal(*lead, case.hd),
        "beta": torch.rand(*lead, 1, generator=gen),
        "g": -case.decay * torch.rand(*lead, gates, generator=gen),
        "q_idx": (torch.randint(0, case.S, (*lead, case.R), generator=gen) + base).int(),
        "q_val": normal(*lead, case.R),
    }
    if case.picks == "skewed":
        for name, count in (("k_idx", case.W), ("q_idx", case.R)):
            start = torch.rand(*lead, 1, generator=gen).pow(6).mul(case.S).long()
            inputs[name] = ((start + 7 * torch.arange(count)) % case.S + base).int()
    elif case.picks == "one-hot":  # a sink that every token writes and reads
        sink = base.int()
        k_idx = inputs["k_idx"]
        inputs["k_idx"] = torch.where(k_idx == sink, k_idx[..., :1], k_idx)
        for name in ("k_idx", "q_idx"):
            inputs[name][..., :1] = sink
    return inputs


def make_leaves(
    case: Case, names: Iterable[str] = DIFFERENTIABLE, **others: Tensor
) -> dict[str, Tensor]:
    """The arguments, `others` in place of theirs, with those named as leaves that require grad."""
    inputs = make_inputs(case) | others
    for name in names:
        inputs[name].requires_grad_()
    return inputs


def beside(x: Tensor, heads: int) -> Tensor:
    """x [P, T, D] as [P / heads, T, heads, D], contiguous: heads beside each other."""
    return x.unflatten(0, (-1, heads)).transpose(1, 2).contiguous()


def apart(x: Tensor) -> Tensor:
    """The inverse: [B, T, H, D] as [B*H, T, D]."""
    return x.transpose(1, 2).flatten(0, 1)


def make_grad(case: Case) -> Tensor:
    """A gradient of the readings [P*T, hd], in the bank's dtype."""
    gen = torch.Generator().manual_seed(case.seed + 1000)
    return torch.randn(case.P * case.T, case.hd, generator=gen, dtype=torch.float32).to(case.dtype)


def call(case: Case, inputs: dict[str, Tensor], **options: Any) -> Tensor:
    """Run the operation with the case's sizes and options."""
    given: dict[str, Any] = {**inputs, "chunk_size": case.C}
    given |= {"num_memory_slots": case.S, "num_parallel": case.P}
    return sdm_runtime.sdm_write_read(**(given | case.options | options))


@dataclass
class Outcome:
    readings: Tensor
    advanced: Tensor  # the bank after the forward
    grads: dict[str, Tensor]
    restored: Tensor  # the bank after the backward


def run(case: Case, inputs: dict[str, Tensor] | None = None, **options: Any) -> Outcome:
    """Forward and backward on copies of the inputs, every floating one a leaf."""
    given = make_inputs(case) if inputs is None else inputs
    leaves = {k: x.clone() for k, x in given.items()}
    for name in DIFFERENTIABLE:
        leaves[name].requires_grad_()
    readings = call(case, leaves, **options)
    advanced = leaves["memory"].detach().clone()
    readings.backward(make_grad(case))
    grads = {name: leaves[name].grad for name in DIFFERENTIABLE}
    return Outcome(readings.detach(), advanced, grads, leaves["memory"].detach())


def expected(
    case: Case, inputs: dict[str, Tensor] | None = None, *, rounded: bool = True
) -> Outcome:
    """The same in float64, token by token, on the inputs as the operation rounds them."""
    given = make_inputs(case) if inputs is None else inputs
    exact = {}
    for name, x in given.items():
        if rounded and name in ("k_val", "v", "q_val"):
            x = x.to(case.dtype)
        exact[name] = x if name.endswith("_idx") else x.double().requires_grad_()
    readings, final = token_recurrence(**exact)
    flat = readings.flatten(0, 1)
    leaves = [exact[name] for name in DIFFERENTIABLE]
    grads = torch.autograd.grad(flat, leaves, make_grad(case).double())
    named = dict(zip(DIFFERENTIABLE, grads, strict=True))
    return Outcome(flat.detach(), final.detach(), named, exact["memory"].detach())


def relative_error(given: Tensor, exact: Tensor) -> float:
    """Error by norm; where the exact answer is 0, the norm of what is given."""
    size = exact.double().norm().item()
    return (given.double() - exact.double()).norm().item() / (size or 1.0)


def errors(case: Case, inputs: dict[str, Tensor] | None = None, **options: Any) -> dict[str, float]:
    """Relative error of every output of a forward and backward."""
    given, exact = run(case, inputs, **options), expected(case, inputs)
    out = {
        "readings": relative_error(given.readings, exact.readings),
        "advanced": relative_error(given.advanced, exact.advanced),
    }
    for name in DIFFERENTIABLE:
        out[name] = relative_error(given.grads[name], exact.grads[name])
    return out
