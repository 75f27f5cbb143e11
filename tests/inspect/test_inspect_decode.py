"""Files to models: equal to what the core reads, and a named reason for every damage."""

import itertools
import re

import inspect_cases as cases
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import from_bytes, reseal, sample_chain
from run_edited_plans import param_edits, record_edits

from sdm_runtime import PlanError, _core
from sdm_runtime.format.plan_format import Backend, Dtype
from sdm_runtime.format.records import word
from sdm_runtime.inspect import FileError, decode, load
from sdm_runtime.inspect.commands.cli import show_command
from sdm_runtime.inspect.reading.spans import file_spans
from sdm_runtime.inspect.reading.words import DTYPE_BYTES, type_text, value_text
from sdm_runtime.tensor.dtypes import DTYPE_CODES


def test_a_model_says_what_the_plan_object_says(tmp_path):
    chain, _ = sample_chain(cases.SHAPE)
    chain.save(tmp_path / "chain")
    model = load(tmp_path / "chain")
    assert (model.kind, model.steps, model.launches) == ("chain", chain.steps, chain.launches)
    for read, plan in zip(model.plans, chain.plans, strict=True):
        assert (read.kernel, read.steps, word(read.backend)) == (
            plan.kernel, plan.steps, plan.backend)  # fmt: skip
        assert [(f.name, f.offset, f.size) for f in read.fields] == [
            (f.name, f.offset, f.size) for f in plan.fields
        ]
        assert [(p.field, word(p.kind), p.base, p.stride, p.lowest, p.highest)
                for p in read.patches] == [
            (p.field, p.kind, p.base, p.stride, p.lowest, p.highest) for p in plan.patches
        ]  # fmt: skip
        assert [(o.name, o.field, word(o.access), o.align, o.offset, o.extent, o.step_stride,
                 o.step_bytes) for o in read.operands] == [
            (o.name, o.field, o.access, o.align, o.offset, o.extent, o.step_stride, o.step_bytes)
            for o in plan.operands
        ]  # fmt: skip


def test_fields_have_their_values_and_types():
    gemm = decode(cases.host_file()).plans[cases.GEMM]
    values = {field.name: field.value for field in gemm.fields}
    assert values == {
        "d_u": None, "x": None, "d_dv": None,
        "step": 4, "num_parallel": 2, "chunk_size": 4, "hd": 64,
    }  # fmt: skip
    assert {type_text(field) for field in gemm.fields} == {"pointer", "int32"}


def test_a_single_plan_is_read_as_a_chain_of_itself(tmp_path):
    (tmp_path / "plan").write_bytes(cases.cuda_plans()[cases.PA2])
    model = load(tmp_path / "plan")
    assert (model.kind, len(model.plans), model.steps) == ("plan", 1, cases.SHAPE.steps)
    assert model.backend is Backend.CUDA
    assert model.plans[0].programmatic


def test_regions_follow_the_steps():
    gemm = decode(cases.host_file()).plans[cases.GEMM]
    d_u, grad = gemm.operands[0], decode(cases.host_file()).plans[cases.GWR].operands[0]
    assert [gemm.region(d_u, ti).start for ti in range(5)] == [0, 2048, 4096, 6144, 8192]
    assert gemm.region(d_u, 4).end == d_u.extent == 10240
    assert gemm.region(d_u, 0).exact
    whole = decode(cases.host_file()).plans[cases.GWR].region(grad, 3)
    assert (whole.start, whole.end, whole.exact) == (0, grad.extent, False)


def test_dtype_sizes_are_torch_s():
    assert {
        dtype: torch_dtype.itemsize for torch_dtype, dtype in DTYPE_CODES.items()
    } == DTYPE_BYTES
    assert set(DTYPE_BYTES) == set(Dtype)


@pytest.mark.parametrize("make", [cases.host_file, cases.cuda_file, lambda: cases.host_plans()[2]])
def test_spans_tile_the_file(make):
    data = make()
    spans = file_spans(decode(data))
    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == len(data)
    assert all(span.size > 0 for span in spans)


def refused(data: bytes) -> FileError:
    with pytest.raises(FileError) as caught:
        decode(data)
    assert re.search(r"\(byte \d+\)$", str(caught.value))
    assert 0 <= caught.value.byte <= len(data)
    return caught.value


@pytest.mark.parametrize("pattern", [0xFF, 0x01, 0x80])
def test_every_flipped_byte_has_a_reason(pattern):
    data = bytearray(cases.host_file())
    reasons = set()
    for i in range(len(data)):
        data[i] ^= pattern
        reasons.add(re.sub(r"[\d'].*", "", refused(bytes(data)).reason))
        data[i] ^= pattern
    assert len(reasons) >= 4  # magic, version, size, checksum


def test_every_truncation_has_a_reason():
    data = cases.host_file()
    for size in range(len(data)):
        assert "truncated" in refused(data[:size]).reason
    for extra in (1, 8, 100):
        assert "padded" in refused(data + bytes(extra)).reason


def test_every_damaged_file_ends_the_command_with_status_two(tmp_path, capsys):
    """Every byte flipped and every truncation, through the command itself."""
    good = cases.chain_file([cases.host_plans()[cases.GEMM]])
    path = tmp_path / "damaged"
    flips = (good[:i] + bytes([good[i] ^ 0x55]) + good[i + 1 :] for i in range(len(good)))
    for count, data in enumerate(itertools.chain(flips, (good[:n] for n in range(len(good))))):
        path.write_bytes(data)
        with pytest.raises(typer.Exit) as caught:
            show_command(path)
        assert caught.value.exit_code == 2
        if count % 500 == 0:
            out, err = capsys.readouterr()
            assert out == ""
            assert err.startswith("sdm-plan: ")
            assert "(byte " in err
            assert "Traceback" not in err


# What only the core knows: the kernel, and its numbers. verify() finds these, decode() does not.
LEFT_TO_VERIFY = re.compile(
    r"unknown kernel|laid out differently|is not this build's|has no host twin|library call"
    r"|plan: \[gx_\w+\]|has no operand|is a pointer|grid\[|block|cluster\[|a host plan"
    r"|its elements take|past 2\^62|ends at byte|clamp leaves int32|leaves int64"
)


@pytest.mark.parametrize("index", range(4))
def test_decode_and_the_core_refuse_the_same_edited_plans(index):
    """Never stricter than the core, and more lenient only where the core knows the kernel."""
    data = cases.host_plans()[index]
    lenient = 0
    for _, edit, changed in itertools.chain(record_edits(data), param_edits(data)):
        sealed = bytes(reseal(changed))
        core = refusal(from_bytes, sealed)
        read = refusal(decode, sealed)
        assert read is None or core is not None, f"{edit}: only decode says {read}"
        if read is None and core is not None:
            lenient += 1
            assert LEFT_TO_VERIFY.search(core), f"{edit}: {core}"
    assert lenient > 100


def refusal(read, data: bytes) -> str | None:
    """Why ``read`` refuses the data; None when it does not."""
    try:
        read(data)
    except PlanError as error:
        return str(error)
    return None


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_resealed_garbage_is_read_or_refused(data):
    """And what the core reads, decode reads."""
    file = bytearray(cases.host_file())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(file) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=12))
        file[at : at + len(piece)] = piece
    sealed = bytes(reseal(file))
    try:
        decode(sealed)
    except FileError:
        with pytest.raises(PlanError):
            _core.decode_chain(sealed)


@given(data=st.binary(max_size=500))
def test_arbitrary_bytes_are_refused(data):
    refused(data)


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        load(tmp_path / "none")
    with pytest.raises(OSError, match="not a regular file"):
        load(tmp_path)
    with pytest.raises(OSError, match="not a regular file"):
        load("/dev/zero")  # endless


def test_many_opaque_bytes_of_zeros_are_one_word():
    assert value_text(bytes(17)) == "zeros"
    assert value_text(bytes(16)) == " ".join(["00"] * 16)
    assert value_text(bytes(16) + b"\1") == " ".join(["00"] * 16 + ["01"])
