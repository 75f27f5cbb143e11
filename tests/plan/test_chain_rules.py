"""What a chain and a plan's header refuse: foreign builds, mixed plans, steps they do not cover."""

import pytest
from plan_cases import (
    SHAPE,
    chain_records,
    edited,
    from_bytes,
    plan_bytes,
    reseal,
    sample_chain,
)

from sdm_runtime import PlanError, StepChain, _core
from sdm_runtime.format.plan_format import ChainEntry, ChainHeader, PlanHeader

UUID = bytes(range(16))


def cuda_plan(data, uuid=UUID):
    """A plan as another machine with a GPU would have written it."""
    return edited(
        data,
        PlanHeader,
        0,
        backend=2,
        device_uuid=uuid,
        entry=b"gx_gemm_c64",
        grid=(4, 2, 1),
        block=(128, 1, 1),
        capability_major=9,
        image_hash=bytes(32),
    )


@pytest.fixture(scope="module")
def chain():
    return sample_chain()[0]


@pytest.fixture(scope="module")
def gemm(chain):
    return plan_bytes(chain.plans[1])


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"magic": 1}, r"bad magic: this is not a plan \(byte 0\)"),
        ({"version": 2, "oldest_reader": 2}, r"unknown version 2, this build reads version 1 \(by"),
        ({"version": 2}, r"version 2/1, this build reads 1/1 \(byte 12\)"),
        ({"header_bytes": 312}, r"header of 312 bytes, expected 320 \(byte 16\)"),
        ({"kernel": b"gx_other"}, r"unknown kernel 'gx_other' \(byte 88\)"),
        ({"kernel": b"gx_pa2"}, r"'gx_pa2' are laid out differently in this build .*\(byte 32\)"),
        ({"layout_hash": 1}, r"'gx_gemm' are laid out differently in this build .*\(byte 32\)"),
        ({"param_bytes": 48}, "its tables and parameters take"),
        ({"num_fields": 1 << 31}, "its tables and parameters take"),
        ({"backend": 3}, r"unknown backend 3 \(byte 308\)"),
        ({"flags": 1}, "a host plan names a device, an image, an entry, flags"),
        ({"flags": 8}, r"unknown flags 8 \(byte 292\)"),
        ({"entry": b"gx_gemm"}, "a host plan names a device, an image, an entry"),
        ({"device_uuid": UUID}, "a host plan names a device"),
        ({"capability_major": 9}, "a host plan names a device"),
        ({"grid": (2, 1, 1)}, "a host plan is one block of one thread"),
        ({"block": (1, 1025, 1)}, r"block\[1\] is 1025, expected 1..1024 \(byte 264\)"),
        ({"cluster": (0, 1, 1)}, r"cluster\[0\] is 0, expected 1..16"),
        ({"steps": 0}, r"covers 0 steps, expected 1..2\^31-1 \(byte 288\)"),
        ({"steps": SHAPE.steps + 1}, r"relocation 0 \('d_u'\): step 3 ends at byte 4608"),
        ({"reserved": b"\0\0\1" + bytes(6)}, r"reserved bytes not zero \(byte 311\)"),
        ({"kernel": b"gx_gemm\0x"}, r"kernel name is not zero-padded \(byte 96\)"),
        ({"kernel": bytes(64)}, r"kernel name is empty \(byte 88\)"),
        ({"kernel": b"gx gemm"}, r"not printable ASCII \(byte 90\)"),
    ],
)
def test_headers_that_are_refused(gemm, members, reason):
    padded = {
        name: value.ljust(PlanHeader.SPANS[name][1], b"\0") if isinstance(value, bytes) else value
        for name, value in members.items()
    }
    with pytest.raises(PlanError, match=reason):
        from_bytes(edited(gemm, PlanHeader, 0, **padded))


@pytest.mark.parametrize("steps", [0, -1, 1 << 31, 1 << 40])
def test_step_counts_that_no_chain_has(chain, steps):
    with pytest.raises(ValueError, match=r"steps: expected 1\.\.2\^31-1, got"):
        StepChain(chain.plans, steps)


@pytest.mark.parametrize("steps", [2.0, "2", None])
def test_step_counts_that_are_no_integers(chain, steps):
    with pytest.raises(TypeError):
        StepChain(chain.plans, steps)


def test_a_chain_runs_no_step_that_a_plan_does_not_cover(chain):
    with pytest.raises(PlanError, match=r"plan 0 \(gx_gwr\): expected to cover 4 steps, covers 3"):
        StepChain(chain.plans, SHAPE.steps + 1)
    unbound = [from_bytes(plan_bytes(plan)) for plan in chain.plans]
    with pytest.raises(PlanError, match="expected to cover 4 steps, covers 3"):
        StepChain(unbound, SHAPE.steps + 1)
    assert StepChain(unbound, SHAPE.steps - 1).steps == SHAPE.steps - 1


def test_a_chain_is_not_empty_and_holds_plans_alone(chain):
    with pytest.raises(ValueError, match="at least one plan"):
        StepChain([], 1)
    with pytest.raises(TypeError, match=r"plans\[1\]: expected a Plan, got bytes"):
        StepChain([chain.plans[0], b"plan"], 1)  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"\[chain\] plans: expected a sequence of plans, got Plan"):
        StepChain(chain.plans[0], 1)


def test_a_host_chain_takes_no_stream_and_no_windows(chain):
    with pytest.raises(
        ValueError, match=r"\[chain\] stream: expected None for a host chain, got 1"
    ):
        chain.run(1)
    with pytest.raises(ValueError, match=r"\[chain\] windowed: .*, got a host chain"):
        chain.run(windowed=True)
    chain.run(windowed=False)  # as it runs anyway


@pytest.mark.parametrize("windowed", [1, 0, "yes", 1.0, []])
def test_windowed_is_a_bool(chain, windowed):
    with pytest.raises(TypeError, match=r"\[chain\] windowed: expected True, False or None, got"):
        chain.run(windowed=windowed)


def test_mixed_plans_are_refused(gemm):
    """Bound or not: a chain has one backend and one device."""
    host, cuda = from_bytes(gemm), from_bytes(cuda_plan(gemm))
    other = from_bytes(cuda_plan(gemm, uuid=UUID[::-1]))
    assert cuda.backend == "cuda"
    with pytest.raises(PlanError, match=r"plan 1 .*expected the host backend, got cuda"):
        StepChain([host, cuda], 1)
    with pytest.raises(PlanError, match=r"plan 1 .*expected the device of plan 0"):
        StepChain([cuda, other], 1)
    assert StepChain([cuda, cuda], 1).backend == "cuda"


def test_mixed_plans_in_a_file_are_refused(gemm):
    host, foreign = from_bytes(gemm), bytes(cuda_plan(gemm))
    file = bytearray(_core.encode_chain([host._core, host._core], 1))
    file[-len(foreign) :] = foreign
    with pytest.raises(PlanError, match=r"plan 1 .*expected the host backend, got cuda"):
        _core.decode_chain(bytes(reseal(file)))


def test_a_cuda_plan_takes_no_cpu_tensors(chain, gemm):
    operands = chain.plans[1].tensors
    with pytest.raises(PlanError, match="bind d_u: expected a tensor on a CUDA device, got cpu"):
        from_bytes(cuda_plan(gemm)).bind(**operands)


@pytest.mark.parametrize(
    ("record", "members", "reason"),
    [
        (0, {"magic": 0}, "bad magic: this is not a chain"),
        (0, {"version": 3, "oldest_reader": 3}, "unknown version 3"),
        (0, {"header_bytes": 0}, "header of 0 bytes"),
        (0, {"steps": 0}, "0 steps, expected"),
        (0, {"steps": SHAPE.steps + 1}, r"plan 0 covers 3 steps, the chain has 4 \(byte 40\)"),
        (0, {"num_plans": 0}, "no plan in it"),
        (0, {"num_plans": 1 << 30}, "plans do not fit into"),
        (0, {"num_plans": 3}, "plan 0 lies at"),
        (0, {"order": 2}, "step order 2, expected 0 .last step first. or 1"),
        (1, {"offset": 0}, "plan 0 lies at 0"),
        (2, {"size": 1 << 63}, "plan 1 lies at"),
        (2, {"size": 0}, "plan 1 at byte .*truncated"),
        (4, {"size": 8}, "plan 3 at byte .*truncated: 8 bytes"),
    ],
)
def test_chain_files_that_are_refused(chain, record, members, reason):
    file = _core.encode_chain([plan._core for plan in chain.plans], chain.steps)
    kind, at = chain_records(file)[record]
    assert kind is (ChainEntry if record else ChainHeader)
    with pytest.raises(PlanError, match=reason):
        _core.decode_chain(bytes(edited(file, kind, at, **members)))


def test_a_plan_inside_a_chain_is_named_when_it_is_refused(chain):
    file = bytearray(_core.encode_chain([plan._core for plan in chain.plans], chain.steps))
    entry = ChainEntry.unpack(file, chain_records(file)[3][1])
    file[entry.offset + 100] ^= 1  # inside plan 2
    with pytest.raises(PlanError, match=rf"plan 2 at byte {entry.offset}: plan: damaged: checksum"):
        _core.decode_chain(bytes(reseal(file)))
