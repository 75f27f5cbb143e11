"""The real launchers and the Python classes on top of them, on a device that is not there."""

import os
from pathlib import Path

import pytest
import torch
from conftest import FakeDriver
from core_testing import core_testing

import sdm_runtime
from sdm_runtime import CudaError, StepChain, _core, kernels
from sdm_runtime.kernels import planes
from sdm_runtime.kernels.steps import step_tables
from sdm_runtime.plan import chain, plan, unread
from sdm_runtime.tensor import arguments, written
from sdm_runtime.tensor.refs import tensor_ref

STEPS, P, C, W, R = 4, 2, 16, 8, 4
N = STEPS * P
PROGRAMMATIC = "6"


@pytest.fixture(scope="module")
def built():
    """A driver that knows the functions of this build's own images."""
    driver = FakeDriver(Path(os.environ["SDM_FAKE_DRIVER"]))
    for name, _kernel, param_bytes, _waits in core_testing().device_entries():
        driver.declare(name, param_bytes)
    return driver


@pytest.fixture
def on_device(built, monkeypatch):
    """Makes CPU tensors pass for tensors of a fake device; returns the driver."""

    def use(index):
        core_device = _core.Device(cuda=True, index=index)

        def ref(name, tensor):
            tensor_ref(name, tensor)  # its checks
            code = {torch.float32: 1, torch.bfloat16: 2, torch.int32: 3}[tensor.dtype]
            shape, strides = tensor.shape, tensor.stride()
            return _core.TensorRef(tensor.data_ptr(), code, core_device, shape, strides)

        for module in (planes, unread, arguments, plan):
            monkeypatch.setattr(module, "tensor_ref", ref)
        built.log()
        return built

    return use


def aligned(*shape, dtype=torch.float32):
    """A tensor on a 256-byte boundary, as the framework's GPU allocator gives them."""
    count = max(1, int(torch.Size(shape).numel()))
    spare = torch.zeros(count + 256, dtype=dtype)
    start = -spare.data_ptr() % 256 // spare.element_size()
    return spare[start : start + count].view(shape)


def step_operands(hd, dtype):
    rows = P * 32
    nsl = kernels.num_slices(hd)
    return {
        "grad": aligned(rows, hd, dtype=dtype),
        "bank": aligned(rows, hd, dtype=dtype),
        "snap": aligned(N * C * W, hd, dtype=dtype),
        "delta": aligned(N * C, hd),
        "pd": aligned(N * C, W),
        "slots": aligned(N * C, W, dtype=torch.int32),
        "d_dv": aligned(N * C, hd),
        "dpd": aligned(nsl, N * C * W),
        "d_u": aligned(N, C, hd),
        "x": aligned(N, C, C),
        "beta": aligned(N * C),
        "kpay": aligned(N, C * W, dtype=torch.int32),
        "rec": aligned(N, C * W, 4, dtype=torch.int32),
        "out_eff": aligned(nsl, N * C * W),
        "out_g": aligned(nsl, N * C * W),
        "bpre": aligned(N, (C * W + 31) // 32 + 1, dtype=torch.int32),
        "gy": aligned(N * C, hd),
        "qrec": aligned(N, C * R, 4, dtype=torch.int32),
        "dq": aligned(nsl, N * C * R),
    }


def forward_operands(hd, dtype):
    rows, words = aligned(P * 32, hd, dtype=dtype), torch.int32
    return {
        "bank": rows,
        "v": aligned(N, C, hd, dtype=dtype),
        "row_weights": aligned(N * C, W + R, 2, dtype=words),
        "residual": aligned(N, C, hd),
        "reading": aligned(N, C, hd),
        "x": aligned(N, C, C),
        "delta": aligned(N, C, hd),
        "updates": aligned(N, C * W, 4, dtype=words),
        "snap": aligned(N * C * W, hd, dtype=dtype),
        "bpre": aligned(N, (C * W + 31) // 32 + 1, dtype=words),
    }


def make_forward_plans(t, pdl, keep=True):
    common = {"steps": STEPS, "num_parallel": P, "pdl": pdl}
    sizes = {**common, "chunk_size": C, "num_writes": W}
    answers = [t[name] for name in ("bank", "v", "row_weights", "residual", "reading")]
    kept = {name: t[name] for name in ("snap", "bpre") if keep}
    return [
        kernels.plan_fx_read(*answers, **sizes, num_tokens=STEPS * C),
        kernels.plan_gx_gemm(t["delta"], t["x"], t["residual"], **common),
        kernels.plan_fx_write(t["bank"], t["delta"], t["updates"], **kept, **sizes),
    ]


def make_plans(t, pdl):
    def pick(*names):
        return {name: t[name] for name in names}

    common = {"steps": STEPS, "num_parallel": P, "pdl": pdl}
    sizes = {**common, "chunk_size": C}
    gwr = pick("grad", "delta", "pd", "slots", "d_dv", "dpd")
    pa2 = pick("grad", "bank", "snap", "d_u", "beta", "kpay", "rec", "out_eff", "out_g", "bpre")
    gds = pick("grad", "bank", "gy", "qrec", "dq")
    return [
        kernels.plan_gx_gwr(**gwr, **sizes, num_tokens=STEPS * C),
        kernels.plan_gx_gemm(**pick("d_u", "x", "d_dv"), **common),
        kernels.plan_gx_pa2(**pa2, **sizes, num_writes=W),
        kernels.plan_gx_gds(**gds, **sizes, num_reads=R),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("hd", [12, 128, 1024])
def test_the_chain_of_four_kernels_runs_and_replays(on_device, hd, dtype):
    driver = on_device(0)
    steps = StepChain(make_plans(step_operands(hd, dtype), pdl=True), STEPS)
    assert steps.backend == "cuda"
    assert steps.launches == 4 * STEPS
    steps.run(driver.stream())
    launches = driver.log("launch")
    kinds = [launch["entry"].rsplit("gx_")[1].split("_")[0] for launch in launches]
    assert kinds == ["gwr", "gemm", "pa2", "gds"] * STEPS
    assert [PROGRAMMATIC in entry["attributes"] for entry in launches] == [False] + [True] * 15
    graph = steps.graph()
    assert graph.nodes == 16
    assert graph.programmatic_edges == 15
    graph.replay(driver.stream())
    assert [e["params"] for e in driver.log("node")] == [e["params"] for e in launches]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("hd", [12, 128, 1024])
@pytest.mark.parametrize("keep", [True, False])
def test_the_forwards_chain_runs_and_replays(on_device, hd, dtype, keep):
    driver = on_device(0)
    plans_of_step = make_forward_plans(forward_operands(hd, dtype), pdl=True, keep=keep)
    steps = StepChain(plans_of_step, STEPS, order="ascending")
    assert steps.launches == 3 * STEPS
    steps.run(driver.stream())
    launches = driver.log("launch")
    kinds = ["_".join(launch["entry"].split("_")[:2]) for launch in launches]
    assert kinds == ["fx_read", "gx_gemm", "fx_write"] * STEPS
    assert [PROGRAMMATIC in entry["attributes"] for entry in launches] == [False] + [True] * 11
    graph = steps.graph()
    assert (graph.nodes, graph.programmatic_edges) == (12, 11)
    graph.replay(driver.stream())
    assert [e["params"] for e in driver.log("node")] == [e["params"] for e in launches]


@pytest.mark.parametrize("kernel", sorted(step_tables()))
def test_every_instance_of_a_step_kernel_waits(kernel):
    entries = [entry for entry in core_testing().device_entries() if entry[1] == kernel]
    assert entries
    assert all(waits for *_, waits in entries)


def test_pdl_is_refused_where_the_device_has_none(on_device):
    on_device(2)
    with pytest.raises(ValueError, match=r"\[gx_gwr\] pdl: expected False on this device"):
        make_plans(step_operands(128, torch.bfloat16), pdl=True)
    make_plans(step_operands(128, torch.bfloat16), pdl=False)


def test_a_saved_chain_is_bound_to_other_tensors(on_device, tmp_path):
    driver = on_device(0)
    recorded = step_operands(128, torch.bfloat16)
    StepChain(make_plans(recorded, pdl=True), STEPS).save(tmp_path / "chain")
    loaded = StepChain.load(tmp_path / "chain")
    operands = step_operands(128, torch.bfloat16)
    loaded.bind(**operands).run(driver.stream())
    assert len(driver.log("launch")) == 4 * STEPS


def test_rebind_replaces_the_operands_it_is_given(on_device):
    driver = on_device(0)
    operands = step_operands(128, torch.bfloat16)
    graph = StepChain(make_plans(operands, pdl=True), STEPS).graph()
    other = aligned(P * 32, 128, dtype=torch.bfloat16)
    graph.rebind(grad=other, kpay=operands["kpay"])  # which no launch reads
    graph.replay(driver.stream())
    operands["grad"] = other
    expected = StepChain(make_plans(operands, pdl=True), STEPS)
    replayed = driver.log("node")
    expected.run(driver.stream())
    assert [e["params"] for e in replayed] == [e["params"] for e in driver.log("launch")]
    with pytest.raises(sdm_runtime.PlanError, match=r"expected one of .* got grid"):
        graph.rebind(grid=other)


def test_the_blas_step_takes_the_place_of_gx_gemm(on_device, monkeypatch):
    driver = on_device(0)
    asked = []

    def handle(device, stream=None):
        asked.append(stream)
        return driver.blas_handle()

    monkeypatch.setattr(chain, "blas_handle", handle)
    operands = step_operands(128, torch.bfloat16)
    order = make_plans(operands, pdl=True)
    gemm = {name: operands[name] for name in ("d_u", "x", "d_dv")}
    order[1] = sdm_runtime.BlasGemmStep(**gemm, steps=STEPS, num_parallel=P)
    StepChain(order, STEPS).run(driver.stream())
    launches = driver.log("launch")
    assert asked == [driver.stream()]
    assert [e["entry"] for e in launches].count("cublasSgemmStridedBatched") == STEPS
    # gwr follows gds, and gds pa2; pa2 follows the library.
    early = [PROGRAMMATIC in entry["attributes"] for entry in launches]
    assert early == [False, False, False, True] + [True, False, False, True] * (STEPS - 1)


def test_one_launch_at_once(on_device, monkeypatch):
    driver = on_device(0)
    monkeypatch.setattr(written, "current_stream", lambda device: driver.stream())
    operands = step_operands(128, torch.bfloat16)
    gemm = {name: operands[name] for name in ("d_u", "x", "d_dv")}
    kernels.gx_gemm(**gemm, ti=2, num_parallel=P)
    (launch,) = driver.log("launch")
    assert launch["entry"].startswith("gx_gemm_")
    driver.fail("cuLaunchKernelEx", 700)
    with pytest.raises(CudaError, match=r"\[gx_gemm\] gx_gemm_\S+: cuLaunchKernelEx: .*\(700\)"):
        kernels.gx_gemm(**gemm, ti=2, num_parallel=P)
