"""Damaged files: every flipped byte and every truncation is a PlanError that names a byte."""

import functools
import re

import pytest
import torch
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from plan_cases import (
    ORDER,
    SHAPE,
    forward_operands,
    forward_plans,
    from_bytes,
    plan_bytes,
    reseal,
    sample_chain,
)

from sdm_runtime import Plan, PlanError, StepChain, _core

# Every bit, one bit low and high, and a byte that reads as a letter.
PATTERNS = (0xFF, 0x01, 0x80, 0x41)
CHAINS = ("chain", "forward")  # the backward's, and the forward's, whose steps ascend


@functools.cache
def samples() -> dict[str, bytes]:
    chain, _ = sample_chain()
    files = {name: bytes(plan_bytes(plan)) for name, plan in zip(ORDER, chain.plans, strict=True)}
    files["chain"] = chain.to_bytes()
    plans = forward_plans(forward_operands())
    files["forward"] = StepChain(plans, SHAPE.steps, order="ascending").to_bytes()
    return files


def decode(name: str, data: bytes) -> None:
    if name in CHAINS:
        _core.decode_chain(data)
    else:
        from_bytes(data)


def refused(name: str, data: bytes) -> str:
    with pytest.raises(PlanError, match=r"\(byte \d+\)") as caught:
        decode(name, data)
    return str(caught.value)


@pytest.mark.parametrize("name", [*ORDER, *CHAINS])
def test_the_undamaged_file_is_read(name):
    decode(name, samples()[name])


@pytest.mark.parametrize("name", [*ORDER, *CHAINS])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_flipped_byte_is_refused(name, pattern):
    data = bytearray(samples()[name])
    for i in range(len(data)):
        data[i] ^= pattern
        refused(name, bytes(data))
        data[i] ^= pattern


@pytest.mark.parametrize("name", [*ORDER, *CHAINS])
def test_every_truncation_and_any_padding_is_refused(name):
    data = samples()[name]
    for size in range(len(data)):
        assert re.search("truncated", refused(name, data[:size]))
    for extra in (1, 7, 8, len(data)):
        refused(name, data + bytes(extra))


@pytest.mark.parametrize("name", [*ORDER, *CHAINS])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_resealed_garbage_never_leaves_as_anything_but_a_plan_error(name, data):
    """The checksum is right again, so each record's own checks are what refuses."""
    file = bytearray(samples()[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=9))
        file[at : at + len(piece)] = piece
    try:
        decode(name, bytes(reseal(file)))
    except PlanError:
        event("refused")


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=700))
@example(data=b"")
@example(data=b"SDMPLAN\n")
@example(data=b"SDMPCHN\n" + bytes(32))
def test_arbitrary_bytes_are_refused(data):
    for name in ("gx_gemm", "chain"):
        with pytest.raises(PlanError):
            decode(name, data)


def test_files_are_refused_like_bytes(tmp_path):
    path = tmp_path / "chain.sdmchain"
    path.write_bytes(samples()["chain"][:-1])
    with pytest.raises(PlanError, match="truncated or padded"):
        StepChain.load(path)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(400, dtype=torch.int8),
        torch.zeros(20, 20, dtype=torch.uint8),
        torch.zeros(800, dtype=torch.uint8)[::2],
        b"bytes",
    ],
)
def test_only_a_flat_uint8_tensor_is_a_plan(tensor):
    with pytest.raises(TypeError, match="expected contiguous uint8"):
        Plan.from_tensor(tensor)
