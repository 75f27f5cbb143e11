"""One factor, every slot written and read: the gated delta rule with a dense state."""

from __future__ import annotations

import pytest
import torch
from layer_cases import error, gradients, make_input
from torch import Tensor
from torch.nn import functional as F

from sdm_runtime.layer import SparseDeltaMemory, SparseDeltaMemoryArgs

KEY_DIM, HEADS, DIM = 24, 2, 16


def dense_layer() -> SparseDeltaMemory:
    torch.manual_seed(0)
    args = SparseDeltaMemoryArgs(
        DIM,
        num_heads=HEADS,
        slots_per_head=KEY_DIM,
        num_writes=KEY_DIM,
        num_reads=KEY_DIM,
        product_key_factor_dims=(KEY_DIM,),
        read_act="l2_normalize",
        write_act="l2_normalize",
        backprop_on_memory=False,
        chunk_size=16,
    )
    return SparseDeltaMemory(args)


def gated_delta_rule(p: dict[str, Tensor], x: Tensor) -> Tensor:
    """S <- exp(g) S + beta k (v - exp(g) S^T k)^T,  y = S^T q, head by head."""

    def project(name: str) -> Tensor:
        out = F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])
        return out.unflatten(-1, (HEADS, -1))

    q, k, v = (project(name) for name in ("Wq_read", "Wk_write", "Wv_write"))
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    beta = project("b_proj").sigmoid()
    decay = (-p["A_log"].exp() * F.softplus(project("a_proj").squeeze(-1) + p["dt_bias"])).exp()
    state = x.new_zeros(x.shape[0], HEADS, KEY_DIM, DIM // HEADS)
    outputs = []
    for t in range(x.shape[1]):
        state = state * decay[:, t, :, None, None]
        error = v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], beta[:, t] * error)
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]).flatten(1))
    return F.linear(torch.stack(outputs, 1), p["Wo.weight"], p["Wo.bias"])


@pytest.mark.parametrize("tokens", [1, 16, 50])
def test_equals_the_gated_delta_rule(tokens: int) -> None:
    layer = dense_layer()
    x = make_input(layer, tokens=tokens)
    given = gradients(layer, x)

    p = {n: q.detach().double().requires_grad_() for n, q in layer.named_parameters()}
    x64 = x.double().requires_grad_()
    y = gated_delta_rule(p, x64)
    assert error(layer(x)[0], y.detach()) < 1e-6
    torch.manual_seed(11)
    (y * torch.randn(y.shape)).sum().backward()
    scale = max(float(q.grad.norm()) for q in p.values())
    for name, grad in given.items():
        expected = x64.grad if name == "x" else p[name].grad
        assert float((grad.double() - expected).norm()) < 1e-6 * scale, name


def test_the_decay_matters() -> None:
    layer = dense_layer()
    x = make_input(layer)
    p = {n: q.detach().double() for n, q in layer.named_parameters()}
    p["dt_bias"] = p["dt_bias"] + 0.1
    assert error(layer(x)[0], gated_delta_rule(p, x.double())) > 1e-5
