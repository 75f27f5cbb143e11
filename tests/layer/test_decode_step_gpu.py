"""The decoding step on a GPU: its host twin's bits, at once, as a plan and in a graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from decode_cases import BF16, F32, DecodeCase, Tensors, copied, decode_inputs, decoded, every_case
from kernel_checks import differing

from sdm_runtime import StepChain, sdm_write_read
from sdm_runtime.layer.decode_step import decode_step, plan_decode_step

# Every case at one token; with several, tokens that read what the ones before them wrote.
NAMED = dict(every_case()) | {f"tokens: {n}": c for n, c in every_case(tokens=6)}
LARGE = {
    "batch 1": DecodeCase(H=2, W=64, R=64, S=4096, hd=1024, bank=BF16),
    "batch 32": DecodeCase(B=32, H=2, W=64, R=64, S=1024, hd=1024, bank=BF16, strided=True),
    "heads": DecodeCase(B=32, H=16, W=32, R=32, S=512, hd=128, bank=BF16, T=2),
    "float rows": DecodeCase(B=16, H=8, W=48, R=80, S=256, hd=256, T=3, repeats=True),
    "all entries": DecodeCase(B=24, H=6, W=256, R=256, S=300, hd=64, T=2),
    "drafts": DecodeCase(B=4, H=4, W=32, R=32, S=40, hd=136, bank=BF16, T=64),
    "odd rows": DecodeCase(B=3, H=4, W=32, R=32, S=90, hd=1001, bank=BF16, T=5),
}


def on_gpu(inputs: Tensors) -> Tensors:
    """Copies with the same strides."""

    def move(x: torch.Tensor) -> torch.Tensor:
        if x.is_contiguous():
            return x.cuda()
        whole = x.new_empty(x.untyped_storage().nbytes() // x.element_size())
        whole.untyped_storage().copy_(x.untyped_storage())
        return whole.cuda().as_strided(x.shape, x.stride(), x.storage_offset())

    return {name: move(x) for name, x in inputs.items()}


def results(tensors: Tensors) -> Tensors:
    return {name: tensors[name].cpu() for name in ("bank", "readings")}


def assert_same_bits(case: DecodeCase) -> None:
    inputs = decode_inputs(case)
    expected, after = decoded(case, inputs), on_gpu(inputs)
    decode_step(**after, **case.options)
    assert differing(expected, results(after)) == []
    assert not torch.equal(expected["bank"], inputs["bank"])


@pytest.mark.parametrize("name", NAMED)
def test_the_twins_bits(name: str) -> None:
    assert_same_bits(NAMED[name])


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_the_twins_bits_of_many_blocks(case: DecodeCase) -> None:
    assert_same_bits(case)


def test_rows_of_other_sequences() -> None:
    case = DecodeCase(H=3, W=6, R=6, S=9, hd=24, T=2)
    inputs = decode_inputs(case)
    for idx in ("k_idx", "q_idx"):
        inputs[idx][1, :, 0], inputs[idx][1, :, 5] = -(1 << 31), (1 << 31) - 1
        inputs[idx][0, :, 0], inputs[idx][0, :, 5] = -1, case.S
    expected, after = decoded(case, inputs), on_gpu(inputs)
    decode_step(**after, **case.options)
    assert differing(expected, results(after)) == []


@pytest.mark.parametrize("bank", [F32, BF16])
@pytest.mark.parametrize("hd", [64, 128, 1024])
def test_one_token_has_the_operations_bits_on_the_device(bank: torch.dtype, hd: int) -> None:
    case = DecodeCase(B=4, H=4, W=32, R=32, S=64, hd=hd, bank=bank)
    inputs = on_gpu(decode_inputs(case))
    other = inputs["bank"].clone()
    decode_step(**inputs, **case.options)
    readings = sdm_write_read(
        other,
        inputs["k_idx"],
        inputs["k_val"],
        inputs["v"].transpose(1, 2).flatten(0, 1),
        inputs["beta"].unsqueeze(-1),
        inputs["g"],
        inputs["q_idx"],
        inputs["q_val"],
        num_memory_slots=case.S,
        num_parallel=case.P,
    )
    assert torch.equal(other, inputs["bank"])
    per_head = readings.view(case.B, case.H, 1, hd).transpose(1, 2)
    assert torch.equal(per_head, inputs["readings"])


@pytest.mark.parametrize("case", [LARGE["batch 1"], replace(LARGE["drafts"], strided=True)])
@pytest.mark.parametrize("pdl", [False, True])
def test_a_chain_of_steps_and_its_graph(case: DecodeCase, pdl: bool) -> None:
    """Three steps, each on the bank that the one before left; the same graph again and again."""
    inputs = [decode_inputs(replace(case, seed=seed)) for seed in range(3)]
    bank = inputs[0]["bank"]
    host = [x | {"bank": bank.clone()} for x in inputs]
    for step in host:
        step["bank"] = host[0]["bank"]
        decode_step(**step, **case.options)
    device = [on_gpu(x) for x in (copied(decode_inputs(replace(case, seed=s))) for s in range(3))]
    for step in device:
        step["bank"] = device[0]["bank"]
    plans = [plan_decode_step(**step, **case.options, pdl=pdl) for step in device]
    chains = [StepChain([plan], 1) for plan in plans]
    for chain in chains:
        chain.run()
    for found, expected in zip(device, host, strict=True):
        assert differing(results(expected), results(found)) == []

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for step in device:
            decode_step(**step, **case.options)
    for _ in range(20):
        device[0]["bank"].copy_(bank)
        for step in device:
            step["readings"].fill_(torch.nan)
        graph.replay()
        for found, expected in zip(device, host, strict=True):
            assert differing(results(expected), results(found)) == []


def test_the_comparison_can_fail() -> None:
    case = DecodeCase(H=4, W=8, R=8, S=32, hd=128)
    inputs = decode_inputs(case)
    expected, after = decoded(case, inputs), on_gpu(inputs)
    after["beta"][1, 0] = torch.nextafter(after["beta"][1, 0], after["beta"].new_tensor(2.0))
    decode_step(**after, **case.options)
    assert differing(expected, results(after)) == ["bank", "readings"]
