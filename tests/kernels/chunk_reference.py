"""What the chunk kernels compute, as dense float64 matrices over entries; X to the bit.

The formulas are those of docs/step_chain.md, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from chunk_cases import ChunkCase, Tensors
from kernel_reference import ZERO, fma


@dataclass
class Entries:
    """One kind of a chunk's non-padding entries, in staged order."""

    slot: torch.Tensor
    token: torch.Tensor
    index: torch.Tensor
    weight: torch.Tensor  # float64 leaf


@dataclass
class Chunk:
    """A chunk's entries, gates and log sums."""

    writes: Entries
    reads: Entries
    g: torch.Tensor  # float64 leaf [tokens, gates]
    tokens: slice  # of its sequence
    sequence: int
    write_log: torch.Tensor
    total: torch.Tensor
    read_log: torch.Tensor
    a: torch.Tensor
    qk: torch.Tensor


def _entries(slots: torch.Tensor, weights: torch.Tensor, bf16: bool) -> Entries:
    tokens, width = slots.shape
    exact = (weights.bfloat16() if bf16 else weights).double().flatten()
    return Entries(
        slots.flatten().long(),
        torch.arange(tokens).repeat_interleave(width),
        torch.arange(width).repeat(tokens),
        exact.requires_grad_(),
    )


def _pairs(later: Entries, log: torch.Tensor, writes: Entries, write_log: torch.Tensor, mask, size):
    """Every pair's weights and decay, added into its cell."""
    difference = log.unsqueeze(1) - write_log.unsqueeze(0)
    decay = torch.where(mask, difference, -torch.inf).exp()
    values = later.weight.unsqueeze(1) * writes.weight.unsqueeze(0) * decay
    at = torch.eye(size, dtype=torch.float64)
    return at[later.token].T @ values @ at[writes.token]


def chunk(case: ChunkCase, inputs: Tensors, number: int) -> Chunk:
    """Staged chunk ``number`` of a case."""
    step, sequence = case.first_step + number // case.P, number % case.P
    tokens = slice(step * case.C, min((step + 1) * case.C, case.T))
    part = {name: x[sequence, tokens] for name, x in inputs.items()}
    writes = _entries(part["k_idx"], part["k_val"], case.bf16_weights)
    reads = _entries(part["q_idx"], part["q_val"], case.bf16_weights)
    g = part["g"].double().requires_grad_()
    gates = g.expand(-1, case.W).flatten()

    same = writes.slot.unsqueeze(1) == writes.slot
    read_same = reads.slot.unsqueeze(1) == writes.slot
    past = writes.token.unsqueeze(1) >= writes.token
    read_past = reads.token.unsqueeze(1) >= writes.token
    write_log = (same & past).double() @ gates
    read_log = (read_same & read_past).double() @ gates
    before = same & (writes.token.unsqueeze(1) > writes.token)
    return Chunk(
        writes,
        reads,
        g,
        tokens,
        sequence,
        write_log,
        same.double() @ gates,
        read_log,
        _pairs(writes, write_log, writes, write_log, before, case.C),
        _pairs(reads, read_log, writes, write_log, read_same & read_past, case.C),
    )


def chain_values(of: Chunk) -> Tensors:
    """keff, pd, cpe and qeff of the entries."""
    k, q = of.writes.weight, of.reads.weight
    return {
        "keff": k * of.write_log.exp(),
        "pd": k * (of.total - of.write_log).exp(),
        "cpe": of.total.exp(),
        "qeff": q * of.read_log.exp(),
    }


def gradients(of: Chunk, d_a, d_qk, dots: Tensors) -> Tensors:
    """By autograd; dots of the entries, d_total the same for all writes of a slot."""
    values = chain_values(of)
    loss = (d_a * of.a).sum() + (d_qk * of.qk).sum()
    for dot, value in (("dpd", "pd"), ("dkeff", "keff"), ("dqeff", "qeff")):
        loss = loss + (dots[dot].double() * values[value]).sum()
    sharing = (of.writes.slot.unsqueeze(1) == of.writes.slot).sum(1)
    loss = loss + (dots["d_total"].double() * of.total / sharing).sum()
    leaves = (of.writes.weight, of.reads.weight, of.g)
    return dict(zip(("dk", "dq", "dg"), torch.autograd.grad(loss, leaves), strict=True))


def inverse(system, qk, beta) -> Tensors:
    """X, QX and X diag(beta) transposed of one chunk, scalar by scalar in the contract's order."""
    chunk = system.shape[0]
    system, qk, beta = system.numpy(), qk.numpy(), beta.numpy()
    x, qx, scaled = (np.zeros((chunk, chunk), np.float32) for _ in range(3))
    for c in range(chunk):
        x[c, c] = 1
        for i in range(c + 1, chunk):
            total = ZERO
            for j in range(c + 1, i):
                total = fma(-system[i, j], x[j, c], total)
            x[i, c] = total - system[i, c]
        for i in range(c, chunk):
            total = ZERO
            for j in range(c + 1, i + 1):
                total = fma(qk[i, j], x[j, c], total)
            qx[i, c] = total + qk[i, c]
            scaled[c, i] = beta[c] * x[i, c]
    return {k: torch.from_numpy(m) for k, m in (("x", x), ("qx", qx), ("scaled", scaled))}


def readings(reading, qk, delta) -> torch.Tensor:
    """One chunk's readings in float32, scalar by scalar in the contract's order."""
    tokens, hd = reading.shape
    reading, qk, delta = reading.numpy(), qk.numpy(), delta.numpy()
    found = np.zeros((tokens, hd), np.float32)
    for t in range(tokens):
        for c in range(hd):
            total = ZERO
            for j in range(t + 1):
                total = fma(qk[t, j], delta[j, c], total)
            found[t, c] = reading[t, c] + total
    return torch.from_numpy(found)
