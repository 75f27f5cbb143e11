"""The operation token by token, out of place, for autograd in float64: the op tests' oracle."""

from __future__ import annotations

import torch
from torch import Tensor


def token_recurrence(
    memory: Tensor,
    k_idx: Tensor,
    k_val: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    q_idx: Tensor,
    q_val: Tensor,
) -> tuple[Tensor, Tensor]:
    """Readings [P, T, hd] and the final bank, of inputs [P, T, .] and memory [rows, hd].

    A slot named twice by one token is decayed and written by both of its entries.
    """
    bank = memory
    gates = g.expand(*k_idx.shape)
    readings = []
    for t in range(k_idx.shape[1]):
        slots = k_idx[:, t].reshape(-1).long()
        log_decay = bank.new_zeros(bank.shape[0]).index_add(0, slots, gates[:, t].reshape(-1))
        touched = torch.zeros(bank.shape[0], dtype=torch.bool)
        touched[slots] = True
        # Rows that nobody writes must keep a NaN or an infinity as it is, in both directions.
        bank = torch.where(touched.unsqueeze(1), bank * log_decay.exp().unsqueeze(1), bank)
        r = (k_val[:, t].unsqueeze(2) * bank[k_idx[:, t].long()]).sum(1)
        u = beta[:, t] * (v[:, t] - r)
        writes = k_val[:, t].unsqueeze(2) * u.unsqueeze(1)
        bank = bank.index_add(0, slots, writes.flatten(0, 1))
        readings.append((q_val[:, t].unsqueeze(2) * bank[q_idx[:, t].long()]).sum(1))
    return torch.stack(readings, 1), bank
