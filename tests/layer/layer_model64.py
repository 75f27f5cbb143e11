"""The layer as its definition reads, in float64, one token after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from naive_topk import naive_topk
from torch import Tensor
from torch.nn import functional as F

from sdm_runtime.layer import SparseDeltaMemory, SparseDeltaMemoryArgs

Params = Mapping[str, Tensor]


def params64(layer: SparseDeltaMemory) -> dict[str, Tensor]:
    """Float64 leaves with the layer's values."""
    return {n: p.detach().double().requires_grad_() for n, p in layer.named_parameters()}


def run64(
    layer: SparseDeltaMemory, params: Params, x: Tensor, bank: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Output [B, T, dim] and final bank [B*H, S, hd]; slots are selected on the layer's scores."""
    a = layer.args
    batch, tokens, _ = x.shape
    x64 = x if x.dtype == torch.float64 else x.double()
    k_slots, k_val = _select(layer, params, x64, "Wk_write", "key_bn", "write", a.num_writes)
    q_slots, q_val = _select(layer, params, x64, "Wq_read", "query_bn", "read", a.num_reads)
    v = _heads(_linear(params, "Wv_write", x64), a)
    beta = _heads(torch.sigmoid(_linear(params, "b_proj", x64)), a)
    step = F.softplus(_linear(params, "a_proj", x64) + params["dt_bias"])
    g = _heads(-params["A_log"].exp() * step, a)
    g = g * k_val if a.key_weighted_decay else g.expand_as(k_val)
    if bank is None:
        bank = _initial(a, params, batch)
    readings, bank = recurrence(bank, k_slots, k_val, v, beta, g, q_slots, q_val)
    if a.normalize_readings:
        norm = (params["readings_norm.weight"], params["readings_norm.bias"])
        readings = F.layer_norm(readings, (a.head_dim,), *norm, a.norm_eps)
    merged = readings.view(batch, a.num_heads, tokens, -1).transpose(1, 2).flatten(2)
    if a.output_gate:
        merged = merged * torch.sigmoid(_linear(params, "Wog", x64))
    return _linear(params, "Wo", merged), bank


def recurrence(
    bank: Tensor,
    k_slots: Tensor,
    k_val: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    q_slots: Tensor,
    q_val: Tensor,
) -> tuple[Tensor, Tensor]:
    """The operation: bank [P, S, hd], per-token inputs [P, T, .], slots in a sequence's bank."""
    sequence = torch.arange(bank.shape[0]).unsqueeze(-1)
    readings = []
    for t in range(v.shape[1]):
        k, slots = k_val[:, t], k_slots[:, t]
        rows = bank[sequence, slots] * g[:, t].exp().unsqueeze(-1)
        delta = beta[:, t] * (v[:, t] - (k.unsqueeze(-1) * rows).sum(1))
        rows = rows + k.unsqueeze(-1) * delta.unsqueeze(1)
        bank = bank.index_put((sequence, slots), rows)
        readings.append((q_val[:, t].unsqueeze(-1) * bank[sequence, q_slots[:, t]]).sum(1))
    return torch.stack(readings, 1), bank


def _linear(params: Params, name: str, x: Tensor) -> Tensor:
    return F.linear(x, params[f"{name}.weight"], params[f"{name}.bias"])


def _heads(x: Tensor, a: SparseDeltaMemoryArgs) -> Tensor:
    """[B, T, H*n] to [B*H, T, n]."""
    return x.unflatten(-1, (a.num_heads, -1)).transpose(1, 2).flatten(0, 1)


def _initial(a: SparseDeltaMemoryArgs, params: Params, batch: int) -> Tensor:
    shape = (batch * a.num_heads, a.slots_per_head, a.head_dim)
    if not a.backprop_on_memory:
        return torch.zeros(shape, dtype=torch.float64)
    return params["memory"].expand(batch, -1, -1).reshape(shape)


def _select(
    layer: SparseDeltaMemory,
    params: Params,
    x: Tensor,
    proj: str,
    norm: str,
    kind: str,
    count: int,
) -> tuple[Tensor, Tensor]:
    """Slots [P, T, k] and weights: selected on the layer's float32 scores, weighed in float64."""
    a = layer.args
    scores = _linear(params, proj, x)
    with torch.no_grad():
        own = getattr(layer, proj)(x.to(layer.Wo.weight.dtype))
    if a.query_batchnorm:
        scores, own = (_norm(layer, params, norm, s) for s in (scores, own))
    own, scores = _heads(own.float(), a), _heads(scores, a)
    rows = own.detach().flatten(0, 1)
    found = [naive_topk(row.numpy(), a.factor_dims, count)[0] for row in rows]
    slots = torch.tensor(found).view(*own.shape[:2], count)
    selected = slot_scores(scores, a.factor_dims).gather(-1, slots)
    act = activation(getattr(a, f"{kind}_act"))
    return slots, act(getattr(a, f"{kind}_act_scale") * selected)


def slot_scores(scores: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Every slot's score [..., S] from the factors' scores [..., K]."""
    factors = scores.split(list(dims), dim=-1)
    total = factors[0]
    for factor in factors[1:]:
        total = (total.unsqueeze(-1) + factor.unsqueeze(-2)).flatten(-2)
    return total


def activation(name: str) -> Callable[[Tensor], Tensor]:
    if name == "l2_normalize":
        return lambda s: s / s.norm(dim=-1, keepdim=True)
    if name in ("Softmax", "Softmin", "LogSoftmax"):
        return getattr(torch.nn, name)(dim=-1)
    return getattr(torch.nn, name)()


def _norm(layer: SparseDeltaMemory, params: Params, name: str, scores: Tensor) -> Tensor:
    """The batch norm in the dtype of the scores, leaving the running statistics alone."""
    module = getattr(layer, name)
    weight, bias = (params[f"{name}.{p}"].to(scores.dtype) for p in ("weight", "bias"))
    mean, var = module.running_mean.to(scores.dtype), module.running_var.to(scores.dtype)
    if module.training:
        mean = var = None
    normed = F.batch_norm(
        scores.flatten(0, 1), mean, var, weight, bias, module.training, 0.0, module.eps
    )
    return normed.view_as(scores)
