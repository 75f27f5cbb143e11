"""Many chunks at once on a GPU: their order and their gradients, in parts and as on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from chunk_cases import (
    BF16,
    F32,
    ORDER_CASES,
    OUTSIDE,
    ChunkCase,
    Tensors,
    chain_outputs,
    chunk_inputs,
    chunk_order,
    gradient_inputs,
    gradient_outputs,
    outside_of,
    poisoned,
    prepare_outputs,
)
from gpu import on_cpu, on_gpu
from kernel_checks import differing

from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.chunks import chunk_kernels
from sdm_runtime.ops.chunks.records import ChainRecords

SEQUENCES, STEPS = 16, 40  # more chunks than two for every SM
CASES = {
    "alone": ChunkCase(W=8, R=8, S=4096),
    "hot": ChunkCase(W=4, R=5, S=6, repeats=True),
    "one slot": ChunkCase(W=3, R=3, S=1, repeats=True),
    "a gate a write": ChunkCase(W=8, R=4, S=100, gates=8, values=BF16),
    "one write": ChunkCase(W=1, R=1, S=40),
}


def _many(case: ChunkCase) -> ChunkCase:
    return replace(case, P=SEQUENCES, T=STEPS * case.C - 5)


def _operands(case: ChunkCase) -> Tensors:
    """Of weight_gradients, from the host twins."""
    inputs, chain = chunk_inputs(case), chain_outputs(case)
    events = prepare_outputs(case)["events"]
    chunk_kernels.prepare_chunks(
        Inputs(**inputs, v=torch.empty(0)),
        _geometry(case),
        Segment(0, case.steps),
        chunk_kernels.EventOrder(**chunk_order(case, inputs)),
        BF16 if case.bf16_weights else F32,
        ChainRecords(events=events, **chain),
    )
    return gradient_inputs(case) | {"events": events, "beta": chain["beta"]}


def _geometry(case: ChunkCase) -> Geometry:
    slots = 0 if case.shared else case.S
    return Geometry(case.P, case.T, case.C, case.W, case.R, 8, case.P * case.S, slots)


def _gradients(case: ChunkCase, operands: Tensors, part: int) -> Tensors:
    """By calls for `part` steps each."""
    device = operands["events"].device
    out = {k: x.to(device) for k, x in gradient_outputs(case).items()}
    scratch = {k: out.pop(k) for k in ("terms", "gates") if k in out}
    for first in range(0, case.steps, part):
        segment = Segment(first, min(first + part, case.steps))
        chunks = slice(segment.first * case.P, segment.last * case.P)
        rows = slice(chunks.start * case.C, chunks.stop * case.C)
        gates = scratch["gates"][rows] if "gates" in scratch else None
        chunk_kernels.weight_gradients(
            operands["events"][chunks],
            _geometry(case),
            segment,
            operands["beta"][rows],
            operands["d_m"][chunks],
            operands["d_qk"][chunks],
            chunk_kernels.RowDots(*(operands[k][rows] for k in chunk_kernels.RowDots._fields)),
            chunk_kernels.WeightGradients(out["dk"], out["dq"], out["dg"]),
            chunk_kernels.WeightTerms(scratch["terms"][chunks], gates),
        )
    return out


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_whole_chunks(name: str) -> None:
    case = _many(CASES[name])
    operands = _operands(case)
    wanted = _gradients(case, operands, case.steps)
    given = on_gpu(operands)
    whole = on_cpu(_gradients(case, given, case.steps))
    assert differing(on_cpu(_gradients(case, given, 2)), whole) == []
    # Exponentials differ in their last bits.
    limit = 1e-6 if case.values == F32 else 8e-3
    for key, exact in wanted.items():
        scale = exact.double().abs().max()
        assert (whole[key].double() - exact.double()).abs().max() <= limit * scale, key


@pytest.mark.parametrize("hd", [30, 128, 260])
@pytest.mark.parametrize("values", [F32, BF16])
@pytest.mark.parametrize("heads", [1, 2, 6])
def test_token_gradients_have_the_twins_bits(heads: int, values: torch.dtype, hd: int) -> None:
    case = ChunkCase(P=6, T=117, first_step=1)
    gen = torch.Generator().manual_seed(hd)
    shape = (case.chunks, case.C)
    given = {name: torch.randn(*shape, hd, generator=gen) for name in ("d_u", "innovation")}
    given |= {"beta": torch.randn(shape, generator=gen)}
    out = {"d_v": poisoned((6 // heads, 117, heads, hd), values)}
    out |= {"d_beta": poisoned((6, 117, 1), values)}
    after, segment = on_gpu(out), Segment(case.first_step, case.steps)
    chunk_kernels.token_gradients(segment, **given, **out)
    chunk_kernels.token_gradients(segment, **on_gpu(given), **after)
    assert differing(on_cpu(after), out) == []
    assert not out["d_v"][:, case.C :].isnan().any()


# Every device function, at the shapes it is for.
ORDERS = {
    "b6": ChunkCase(P=16, T=64 * 20 - 5, C=64, W=16, R=16, S=4096),
    "b7": ChunkCase(P=16, T=64 * 20 - 5, C=64, W=32, R=32, S=16384, indices=torch.int64),
    "b8": ChunkCase(P=2, T=64 * 20 - 5, C=64, W=64, R=64, S=65536),
    "hot": ChunkCase(P=2, T=64 * 20 - 5, C=64, W=64, R=64, S=3, repeats=True),
    "wide": ChunkCase(P=1, T=250, C=64, W=33, R=64, S=2**19 + 1),
    "global": ChunkCase(P=2, T=500, C=256, W=128, R=127, S=4000, shared=True),
    "largest": ChunkCase(P=1, T=500, C=256, W=256, R=256, S=70000),
    "one token": ChunkCase(P=32, T=1, W=32, R=32, S=16384),
    "outside, b6": ChunkCase(P=16, T=64 * 20 - 5, C=64, W=16, R=16, S=4096, outside=0.1),
    "outside, b8": ChunkCase(P=2, T=640, C=64, W=64, R=64, S=65536, outside=0.1),
    "outside, wide": ChunkCase(
        P=1, T=250, C=64, W=33, R=64, S=2**19 + 1, outside=0.1, indices=torch.int64
    ),
    "outside, global": ChunkCase(P=2, T=500, C=256, W=128, R=127, S=4000, outside=0.1),
}
ORDERS |= ORDER_CASES | OUTSIDE


def _order(case: ChunkCase, inputs: Tensors) -> Tensors:
    given = Inputs(**inputs, v=torch.empty(0))
    found = chunk_kernels.event_order(given, _geometry(case), Segment(case.first_step, case.steps))
    return found._asdict()


@pytest.mark.parametrize("name", ORDERS)
def test_event_order_on_a_gpu_and_in_a_graph(name: str) -> None:
    case = ORDERS[name]
    inputs = chunk_inputs(case)
    wanted = _order(case, inputs)
    assert differing(wanted, chunk_order(case, inputs)) == []
    given = on_gpu(inputs)
    assert differing(on_cpu(_order(case, given)), wanted) == []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = _order(case, given)
    # Replays sort what the inputs hold then.
    other = chunk_inputs(replace(case, seed=1))
    for key, x in other.items():
        given[key].copy_(x)
    for x in found.values():
        x.fill_(-7)
    graph.replay()
    assert differing(on_cpu(found), _order(case, other)) == []


def _prepared(case: ChunkCase, inputs: Tensors) -> Tensors:
    """All that chunk_prepare writes, by order and weights on the device of the inputs."""
    device = inputs["k_idx"].device
    chain, out = (
        {k: x.to(device) for k, x in made.items()}
        for made in (chain_outputs(case), prepare_outputs(case))
    )
    events, steps = chunk_kernels.prepare_chunks(
        Inputs(**inputs, v=torch.empty(0)),
        _geometry(case),
        Segment(case.first_step, case.steps),
        chunk_kernels.EventOrder(**_order(case, inputs)),
        BF16 if case.bf16_weights else F32,
        ChainRecords(events=out["events"], **chain),
    )
    return chain | events._asdict() | steps._asdict()


@pytest.mark.parametrize("name", [name for name, c in OUTSIDE.items() if not c.first_step])
def test_records_and_gradients_of_entries_outside(name: str) -> None:
    """Words, rows and places are the twin's, and what has no slot weighs the same zeros."""
    case = OUTSIDE[name]
    inputs = chunk_inputs(case)
    wanted, found = _prepared(case, inputs), on_cpu(_prepared(case, on_gpu(inputs)))
    whole = ("slots", "bpre", "places", "beta")
    assert differing({k: found[k] for k in whole}, {k: wanted[k] for k in whole}) == []
    for key in ("rec", "qrec", "updates"):
        assert torch.equal(found[key][..., :2], wanted[key][..., :2]), key
        none = (wanted[key][..., 0] & 1 << 17) != 0
        assert none.any()
        assert torch.equal(found[key][none], wanted[key][none]), key
    none = wanted["row_weights"][..., 0] == -1
    assert torch.equal(found["row_weights"][none], wanted["row_weights"][none])
    none = wanted["slots"] == -1
    assert torch.equal(found["pd"][none].view(torch.int32), wanted["pd"][none].view(torch.int32))

    given = on_gpu(gradient_inputs(case) | {k: wanted[k] for k in ("events", "beta")})
    gradients = on_cpu(_gradients(case, given, case.steps))
    assert not any(x.isnan().any() for x in gradients.values())
    for key, index in (("dk", "k_idx"), ("dq", "q_idx")):
        assert not gradients[key][outside_of(case, inputs[index])].any(), key
