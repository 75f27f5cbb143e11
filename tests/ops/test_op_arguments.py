"""Bad arguments, one by one: the error names the argument, and nothing has been touched."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from op_cases import Case, call, make_inputs

from sdm_runtime import CudaError
from sdm_runtime.ops.autograd import eager
from sdm_runtime.ops.call import checks
from sdm_runtime.ops.call.staging import Inputs

CASE = Case(P=2, T=20, S=8, hd=6, W=3, R=4)

_BAD_INPUTS = [
    # argument, what replaces it, error, what the message says
    ("memory", lambda x: x.numpy(), TypeError, "torch.Tensor"),
    ("memory", lambda x: x.half(), TypeError, "bfloat16 or float32, got float16"),
    ("memory", lambda x: x.double(), TypeError, "bfloat16 or float32, got float64"),
    ("memory", lambda x: x.view(-1), ValueError, r"\[rows, 1\.\.1048576\]"),
    ("memory", lambda x: x[:, :0], ValueError, r"\[rows, 1\.\.1048576\]"),
    ("memory", lambda x: x[:0], ValueError, "rows"),
    ("memory", lambda x: x.t().contiguous().t(), ValueError, "contiguous"),
    ("memory", lambda x: x[:1].expand(16, -1), ValueError, "contiguous"),
    ("memory", lambda x: x[:-1], ValueError, "16 rows"),
    ("memory", lambda x: torch.empty(x.shape, device="meta"), ValueError, "CPU or CUDA"),
    ("k_idx", lambda x: x.float(), TypeError, "int32 or int64, got float32"),
    ("k_idx", lambda x: x.short(), TypeError, "int32 or int64, got int16"),
    ("k_idx", lambda x: x[0, 0], ValueError, r"\[P, T, \.\] or"),
    ("k_idx", lambda x: x[:1], ValueError, r"P = num_parallel = 2"),
    ("k_idx", lambda x: x.view(40, 3)[:39], ValueError, r"\[P\*T, \.\]"),
    ("k_idx", lambda x: x[:, :0], ValueError, "at least one token"),
    ("k_idx", lambda x: x[..., :0], ValueError, r"1\.\.256"),
    ("k_idx", lambda x: x.repeat(1, 1, 90), ValueError, r"1\.\.256.* got int32 \[2, 20, 270\]"),
    ("q_idx", lambda x: x.bool(), TypeError, "int32 or int64"),
    ("q_idx", lambda x: x[..., :0], ValueError, r"1\.\.256"),
    ("q_idx", lambda x: x.repeat(1, 1, 90), ValueError, r"1\.\.256"),
    ("q_idx", lambda x: x[:, :-1], ValueError, r"\[2, 20, 1\.\.256\]"),
    ("k_val", lambda x: x.int(), TypeError, "floating"),
    ("k_val", lambda x: x.to(torch.complex64), TypeError, "floating"),
    ("k_val", lambda x: x[..., :-1], ValueError, r"\[2, 20, 3\]"),
    ("k_val", lambda x: x.to_sparse(), TypeError, "dense"),
    ("v", lambda x: x[..., :-1], ValueError, r"\[2, 20, 6\]"),
    ("v", lambda x: x.unsqueeze(2)[:1], ValueError, r"\[B, 20, H, 6\] with B \* H = .* = 2"),
    (
        "v",
        lambda x: x.view(2, 20, 1, 6)[:, 1:],
        ValueError,
        r"\[B, 20, H, 6\] with .*\[2, 19, 1, 6\]",
    ),
    ("v", lambda x: x.view(2, 20, 2, 3), ValueError, r"\[B, 20, H, 6\] with"),
    ("v", lambda x: x.view(2, 20, 6, 1), ValueError, r"\[B, 20, H, 6\] with"),
    ("v", lambda x: x.view(2, 20, 6, 1, 1), ValueError, r"\[2, 20, 6\]"),
    ("v", lambda x: x.new_zeros(0, 20, 2, 6), ValueError, r"\[B, 20, H, 6\] with"),
    ("k_val", lambda x: x.unsqueeze(2), ValueError, r"\[2, 20, 3\]"),
    ("v", lambda x: x.long(), TypeError, "floating"),
    ("v", lambda x: x.to("meta"), ValueError, "memory's device cpu, got meta"),
    ("beta", lambda x: x.squeeze(-1), ValueError, r"\[2, 20, 1\]"),
    ("beta", lambda x: x.expand(-1, -1, 3), ValueError, r"\[2, 20, 1\]"),
    ("g", lambda x: x.expand(-1, -1, 2), ValueError, r"1 or 3"),
    ("g", lambda x: x[0], ValueError, r"1 or 3"),
    ("q_val", lambda x: x[..., :-1], ValueError, r"\[2, 20, 4\]"),
    ("q_val", lambda x: None, TypeError, "NoneType"),
]

_BAD_OPTIONS = [
    ("chunk_size", 15, ValueError, r"16\.\.256, got 15"),
    ("chunk_size", 257, ValueError, r"16\.\.256, got 257"),
    ("chunk_size", 64.0, TypeError, "an int"),
    ("chunk_size", True, TypeError, "an int"),
    ("num_parallel", 0, ValueError, "at least 1"),
    ("num_parallel", "2", TypeError, "an int"),
    ("num_memory_slots", -1, ValueError, "at least 0"),
    ("num_memory_slots", 0, ValueError, "shared_bank=True"),
    ("num_memory_slots", 7, ValueError, "14 rows"),
    ("snapshot_quant", "fp4", ValueError, "none, bf16, fp8, int4, got 'fp4'"),
    ("snapshot_quant", None, ValueError, "got None"),
    ("grad_bank_fp32", 1, TypeError, "a bool"),
    ("shared_bank", "no", TypeError, "a bool"),
    ("shared_bank", True, ValueError, "False with num_memory_slots = 8, got True"),
    ("gemm", "cublas", ValueError, "auto, fixed, blas"),
    ("gemm", "blas", ValueError, "no BLAS step"),
]


def _check_untouched(inputs, call_it, error, name, message):
    before = {k: x.clone() for k, x in inputs.items() if isinstance(x, torch.Tensor)}
    with pytest.raises(error, match=rf"^\[sdm_write_read\] \w+: .*{message}") as caught:
        call_it()
    # Where one wrong size makes two arguments disagree, either may be named.
    assert str(caught.value).startswith(f"[sdm_write_read] {name}") or "rows" in message
    for key, x in before.items():
        if x.device.type == "cpu" and not x.is_sparse:
            assert torch.equal(inputs[key], x), key


@pytest.mark.parametrize(("name", "change", "error", "message"), _BAD_INPUTS)
def test_a_wrong_input_is_named_and_nothing_changed(name, change, error, message):
    inputs = make_inputs(CASE)
    inputs[name] = change(inputs[name])
    _check_untouched(inputs, lambda: call(CASE, inputs), error, name, message)


@pytest.mark.parametrize(("name", "value", "error", "message"), _BAD_OPTIONS)
def test_a_wrong_option_is_named_and_nothing_changed(name, value, error, message):
    inputs = make_inputs(CASE)
    _check_untouched(inputs, lambda: call(CASE, inputs, **{name: value}), error, name, message)


def test_the_case_itself_is_good():
    call(CASE, make_inputs(CASE))


def test_int4_needs_an_even_head_dim():
    case = CASE.but(hd=7)
    with pytest.raises(ValueError, match="snapshot_quant: expected an even head_dim"):
        call(case, make_inputs(case), snapshot_quant="int4")


@pytest.mark.parametrize("word", ["1", "true", "yes", "ON"])
def test_foreign_slots_are_found_whatever_the_word_for_it(word, monkeypatch):
    inputs = make_inputs(CASE)
    inputs["k_idx"][0, 3, 1] = 8
    monkeypatch.setenv("SDM_CHECK_INDICES", word)
    with pytest.raises(ValueError, match=r"k_idx: expected rows 0\.\.7 in sequence 0, got 8"):
        call(CASE, inputs)


@pytest.mark.parametrize("word", ["", "0", "false", "no", "off"])
def test_a_device_is_not_waited_for_unless_that_is_asked_for(word, monkeypatch):
    """Its slots are looked at by the kernels alone; the CPU's always before them."""
    monkeypatch.setenv("SDM_CHECK_INDICES", word)
    monkeypatch.setattr(checks, "_find_outside", lambda *_: pytest.fail("asked for"))
    monkeypatch.setattr(checks, "report_outside_slots", lambda device: None)
    inputs = make_inputs(CASE)
    inputs["k_idx"][0, 3, 1] = 8
    memory = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 0))
    given = Inputs(**{k: x for k, x in inputs.items() if k != "memory"})
    checks._check_indices(cast(torch.Tensor, memory), given, 8)
    with pytest.raises(ValueError, match=r"k_idx: expected rows 0\.\.7 in sequence 0, got 8"):
        call(CASE, inputs)


def test_a_device_is_not_waited_for_in_a_capture(monkeypatch):
    monkeypatch.setenv("SDM_CHECK_INDICES", "1")
    asked = []
    monkeypatch.setattr(checks, "_find_outside", lambda *_: asked.append(1))
    monkeypatch.setattr(checks, "report_outside_slots", lambda device: None)
    memory = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 0))
    given = Inputs(**{k: x for k, x in make_inputs(CASE).items() if k != "memory"})
    for capturing, count in ((True, 0), (False, 1)):
        monkeypatch.setattr(checks, "capturing", lambda device, now=capturing: now)
        checks._check_indices(cast(torch.Tensor, memory), given, 8)
        assert len(asked) == count


def test_a_word_that_is_no_switch_is_refused_at_the_call(monkeypatch):
    inputs = make_inputs(CASE)
    bank = inputs["memory"].clone()
    monkeypatch.setenv("SDM_CHECK_INDICES", "please")
    with pytest.raises(ValueError, match=r"SDM_CHECK_INDICES: expected .*, got 'please'"):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], bank)


def test_a_profile_that_there_is_not_is_refused_on_the_cpu_too(monkeypatch):
    inputs = make_inputs(CASE)
    bank = inputs["memory"].clone()
    monkeypatch.setenv("SDM_DEVICE_PROFILE", "modren")
    message = "SDM_DEVICE_PROFILE: expected modern, a100 or rtx, got 'modren'"
    with pytest.raises(ValueError, match=message):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], bank)
    monkeypatch.setenv("SDM_DEVICE_PROFILE", "a100")
    call(CASE, inputs)
    assert not torch.equal(inputs["memory"], bank)


@pytest.mark.parametrize("name", ["k_idx", "q_idx"])
@pytest.mark.parametrize(("value", "sequence"), [(-1, 0), (8, 0), (7, 1), (16, 1)])
def test_foreign_slots_are_found_on_request(name, value, sequence, monkeypatch):
    inputs = make_inputs(CASE)
    inputs[name][sequence, 3, 1] = value
    monkeypatch.setenv("SDM_CHECK_INDICES", "1")
    low = sequence * 8
    message = f"{name}: expected rows {low}..{low + 7} in sequence {sequence}, got {value}"
    bank = inputs["memory"].clone()
    with pytest.raises(ValueError, match=message):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], bank)


def test_good_slots_pass_the_check(monkeypatch):
    monkeypatch.setenv("SDM_CHECK_INDICES", "1")
    call(CASE, make_inputs(CASE))
    shared = make_inputs(CASE)
    call(CASE, shared, num_memory_slots=0, shared_bank=True)


def test_inference_tensors_are_refused_where_a_gradient_is_asked_for():
    with torch.inference_mode():
        inputs = make_inputs(CASE)
    bank = inputs["memory"].clone()
    inputs["v"] = inputs["v"].clone().requires_grad_()
    with pytest.raises(ValueError, match="inference tensor"):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], bank)


def test_a_device_without_kernels_is_refused(monkeypatch):
    memory = SimpleNamespace(is_cuda=True, device="cuda:0")  # no such tensor can be made here
    monkeypatch.setattr(checks, "backends", lambda: {"host": True, "cuda": "a host-only build"})
    message = r"^\[sdm_write_read\] memory: expected a CPU tensor.*\(a host-only build\).*cuda:0$"
    with pytest.raises(CudaError, match=message):
        checks.check_backend(cast(torch.Tensor, memory))
    monkeypatch.setattr(checks, "backends", lambda: {"host": True, "cuda": True})
    checks.check_backend(cast(torch.Tensor, memory))


@pytest.mark.parametrize("saving", [False, True])
def test_kernels_are_asked_for_before_the_bank_advances(saving, monkeypatch):
    def refuse(memory):
        raise CudaError("none here")

    monkeypatch.setattr(eager, "check_backend", refuse)
    inputs = make_inputs(CASE)
    inputs["v"].requires_grad_(saving)
    bank, version = inputs["memory"].clone(), inputs["memory"]._version
    with pytest.raises(CudaError, match="none here"):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], bank)
    assert inputs["memory"]._version == version
