"""Qualification on a GPU: the probe's verdict, captures, threads, failures, and whole backwards."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_checks import as_bits

from sdm_runtime import kernels, last_dispatch, qualify, sdm_write_read
from sdm_runtime.graphs import capture_step
from sdm_runtime.ops.backward import chain as chain_run
from sdm_runtime.ops.routes.step_chain import GemmChoice
from sdm_runtime.qualify import Qualifier, probe
from sdm_runtime.qualify.device_side import CudaSide
from sdm_runtime.qualify.key import ProcessSource, read_key
from sdm_runtime.qualify.native_state import ABSENT, GETTERS
from sdm_runtime.qualify.operand_shapes import Sizes, checked_shape, facts
from sdm_runtime.qualify.patterns import PATTERNS, GemmInputs

SIZES = Sizes(2, 16, 64)
STEPS = 3


@pytest.fixture(autouse=True)
def _fresh():
    qualify.reset()
    yield
    qualify.reset()


def operands(sizes=SIZES, residues=(0, 0, 0)) -> GemmInputs:
    made = probe.placed(sizes, residues, torch.device("cuda", torch.cuda.current_device()), STEPS)
    for tensor in made:
        tensor.normal_()
    return made


def counts(*names):
    stats = qualify.stats()
    return tuple(stats[name] for name in names)


def test_the_key_can_be_read():
    tensors = operands()
    shape = checked_shape(*map(facts, tensors), SIZES.sequences)
    key = read_key(ProcessSource(), tensors, shape)
    assert key.device[1] == torch.cuda.get_device_name()
    assert len(key.handle) == len(GETTERS)
    known = dict(zip(GETTERS, key.handle, strict=True))
    for name in ("cublasGetMathMode", "cublasGetAtomicsMode", "cublasGetPointerMode_v2"):
        assert known[name] != ABSENT, name
    assert ABSENT not in key.versions
    assert key.residues == ((0, 0, 0),)
    assert read_key(ProcessSource(), operands(), shape) == key


def test_a_verdict_is_found_once_and_kept():
    first = qualify.decide(*operands(), SIZES.sequences)
    again = qualify.decide(*operands(), SIZES.sequences)
    assert "failed" not in first.reason
    assert "no key" not in first.reason
    assert first.probe_us > 0
    assert again.probe_us == 0
    assert first.matches == again.matches
    assert counts("lookups", "probes", "hits", "errors") == (2, 1, 1, 0)


@pytest.mark.parametrize("sizes", [(2, 16, 64), (2, 64, 1024), (8, 64, 128)])
@pytest.mark.parametrize("residues", [(0, 0, 0), (4, 4, 4), (16, 16, 16)])
def test_where_it_matches_the_bits_are_equal(sizes, residues):
    sizes = Sizes(*sizes)
    mine = operands(sizes, residues)
    start = mine.d_u.clone()
    if not qualify.matches_blas(*mine, sizes.sequences):
        pytest.skip("this library gives other bits here, so it is kept")
    theirs = probe.placed(sizes, residues, start.device, STEPS).d_u.copy_(start)
    for ti in reversed(range(STEPS)):
        part = slice(ti * sizes.sequences, (ti + 1) * sizes.sequences)
        kernels.gx_gemm(*mine, ti=ti, num_parallel=sizes.sequences)
        probe.library_gemm(theirs[part], mine.x[part], mine.d_dv[part])
    assert torch.equal(as_bits(mine.d_u), as_bits(theirs))


def downward(d_u, x, d_dv):
    probe.fixed_gemm(d_u, x.flip(1), d_dv.flip(1))


class DownwardSide(CudaSide):
    """A build whose chain runs j downward."""

    def prove(self, sizes, classes, device):
        return probe.differing_patterns(sizes, classes, device, fixed=downward)


def test_a_downward_chain_is_caught_on_every_pattern():
    device = torch.device("cuda", torch.cuda.current_device())
    found = probe.differing_patterns(
        SIZES, ((0, 0, 0),), device, library=probe.fixed_gemm, fixed=downward
    )
    assert found == (*PATTERNS, "order")
    decision = Qualifier(ProcessSource(), DownwardSide()).decide(*operands(), SIZES.sequences)
    assert not decision.matches
    assert "other bits" in decision.reason


class FailingSide(CudaSide):
    def prove(self, sizes, classes, device):
        raise RuntimeError("on purpose")


def test_failures_decline_three_times_and_stick():
    qualifier = Qualifier(ProcessSource(), FailingSide())
    for _ in range(5):
        assert "on purpose" in qualifier.decide(*operands(), SIZES.sequences).reason
    assert (qualifier.stats()["errors"], qualifier.stats()["probes"]) == (3, 3)


def test_a_switch_flipped_during_the_probe_gives_no_verdict():
    before = torch.backends.cuda.matmul.allow_tf32

    class Flipping(CudaSide):
        def prove(self, sizes, classes, device):
            found = super().prove(sizes, classes, device)
            torch.backends.cuda.matmul.allow_tf32 = not before
            return found

    try:
        qualifier = Qualifier(ProcessSource(), Flipping())
        assert "changed" in qualifier.decide(*operands(), SIZES.sequences).reason
        assert qualifier.stats()["equal"] == qualifier.stats()["differ"] == 0
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_tf32_is_another_key_and_its_bits_are_never_ours():
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        assert not qualify.matches_blas(*operands(Sizes(2, 64, 128)), 2)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_where_torch_prefers_another_library_the_step_is_taken():
    """Its bits are cuBLAS's, whatever torch.baddbmm calls."""
    before = torch.backends.cuda.preferred_blas_library()
    try:
        torch.backends.cuda.preferred_blas_library("cublaslt")
        assert not qualify.matches_blas(*operands(), SIZES.sequences)
        grads, dispatch = backward("auto")
        expected, _ = backward("blas")
    finally:
        torch.backends.cuda.preferred_blas_library(before)
    assert (dispatch["gemm"], counts("probes", "declined_library")) == ("blas", (0, 2))
    assert "torch prefers Cublaslt" in dispatch["gemm_reason"]
    for given, wanted in zip(grads, expected, strict=True):
        assert torch.equal(as_bits(given), as_bits(wanted))
    qualify.matches_blas(*operands(), SIZES.sequences)
    assert counts("probes") == (1,)  # the control


@pytest.mark.parametrize("way", ["current", "side", "thread"])
def test_a_first_call_in_a_capture_leaves_everything_as_it_was(way):
    tensors = operands()
    torch.cuda.synchronize()
    held: list[Any] = []

    def capture():
        stream = torch.cuda.Stream() if way != "current" else None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            held.append(qualify.decide(*tensors, SIZES.sequences))
            kernels.gx_gemm(*tensors, ti=0, num_parallel=SIZES.sequences)
        held.append(graph)

    if way == "thread":
        worker = threading.Thread(target=capture)
        worker.start()
        worker.join()
    else:
        capture()
    decision, graph = held
    assert not decision.matches
    assert counts("capture_skips", "probes") == (1, 0)
    before = tensors.d_u.clone()
    graph.replay()
    torch.cuda.synchronize()
    assert not torch.equal(before, tensors.d_u), "the capture was not valid"
    assert qualify.decide(*tensors, SIZES.sequences).probe_us > 0


@pytest.mark.parametrize("way", ["current", "side", "thread"])
def test_after_prepare_a_capture_has_its_verdict(way):
    matches = qualify.prepare(
        num_parallel=SIZES.sequences, chunk_size=SIZES.chunk, head_dim=SIZES.head_dim, steps=STEPS
    )
    tensors = operands()
    torch.cuda.synchronize()
    graphs, decisions = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()], []

    def capture():
        stream = torch.cuda.Stream() if way != "current" else None
        for graph in graphs:
            with torch.cuda.graph(graph, stream=stream):
                decisions.append(qualify.decide(*tensors, SIZES.sequences))
                kernels.gx_gemm(*tensors, ti=0, num_parallel=SIZES.sequences)

    if way == "thread":
        worker = threading.Thread(target=capture)
        worker.start()
        worker.join()
    else:
        capture()
    assert [d.matches for d in decisions] == [matches] * 2
    assert counts("capture_skips", "probes") == (0, 1)
    graphs[0].reset()
    before = tensors.d_u.clone()
    graphs[1].replay()
    torch.cuda.synchronize()
    assert not torch.equal(before, tensors.d_u)


def test_prepare_is_refused_in_a_capture():
    x = torch.ones(1, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.clone()  # torch warns of an empty graph
        with pytest.raises(RuntimeError, match="before the capture"):
            qualify.prepare(num_parallel=2, chunk_size=16, head_dim=64)
    torch.cuda.synchronize()


def test_a_probe_spares_another_threads_capture():
    tensors, found = operands(), []
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.gx_gemm(*tensors, ti=0, num_parallel=SIZES.sequences)

        def work():
            with torch.cuda.stream(torch.cuda.Stream()):
                found.append(qualify.decide(*tensors, SIZES.sequences))

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        kernels.gx_gemm(*tensors, ti=1, num_parallel=SIZES.sequences)
    graph.replay()
    torch.cuda.synchronize()
    assert "failed" not in found[0].reason, found


def test_threads_share_a_verdict():
    tensors, found = operands(), []
    torch.cuda.synchronize()
    threads = [
        threading.Thread(target=lambda: found.append(qualify.matches_blas(*tensors, 2)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert counts("lookups", "probes") == (4, 1)


P, T, S, HD, W = 2, 70, 64, 64, 4


def backward(gemm):
    generator = torch.Generator().manual_seed(3)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator).cuda()

    def slots():
        picks = torch.rand(P, T, S, generator=generator).argsort(-1)[..., :W]
        return (picks + torch.arange(P)[:, None, None] * S).cuda()

    bank = torch.zeros(P * S, HD, device="cuda")
    leaves = [uniform(P, T, W), uniform(P, T, HD), uniform(P, T, 1), -uniform(P, T, 1)]
    reads = uniform(P, T, W)
    for leaf in (*leaves, reads):
        leaf.requires_grad_()
    k_val, v, beta, g = leaves
    out = sdm_write_read(
        bank, slots(), k_val, v, beta, g, slots(), reads,
        chunk_size=16, num_memory_slots=S, num_parallel=P, gemm=gemm,
    )  # fmt: skip
    (out * uniform(*out.shape)).sum().backward()
    return [leaf.grad for leaf in (*leaves, reads)], last_dispatch()


class LoopOverBaddbmm:
    """Stands for a backward's chain: step by step, its product by torch."""

    gemm, plan_us = GemmChoice("blas", "torch's own call"), 0.0
    chain = SimpleNamespace(launches=0)

    def __init__(self, operands, call):
        self.geometry = call.geometry
        named = operands.tensors() | operands.dots.operands() | operands.records.operands()
        self.o = SimpleNamespace(**named)

    def run(self, _):
        o, g = self.o, self.geometry
        chunk = {"num_parallel": g.sequences, "chunk_size": g.chunk}
        for ti in reversed(range(g.steps)):
            part = slice(ti * g.sequences, (ti + 1) * g.sequences)
            gwr = (o.grad, o.delta, o.pd, o.slots, o.d_dv, o.dpd)
            kernels.gx_gwr(*gwr, ti=ti, num_tokens=g.tokens, **chunk)
            probe.library_gemm(o.d_u[part], o.x[part], o.d_dv[part])
            pa2 = (o.grad, o.bank, o.snap, o.d_u, o.beta, None, o.rec, o.out_eff, o.out_g)
            rows = g.snapshot_rows
            kernels.gx_pa2(
                *pa2, ti=ti, num_writes=g.writes, bpre=o.bpre, snap_chunk_rows=rows, **chunk
            )
            kernels.gx_gds(o.grad, o.bank, o.gy, o.qrec, o.dq, ti=ti, num_reads=g.reads, **chunk)


@pytest.mark.parametrize("taken", [True, False])
def test_auto_gives_the_bits_of_a_backward_over_baddbmm(taken, monkeypatch):
    if not taken:
        declined = qualify.Decision(False, "declined by the test")
        monkeypatch.setattr(qualify, "decide_backward", lambda *_: declined, raising=False)
    grads, dispatch = backward("auto")
    if taken and dispatch["gemm"] != "gx_gemm":
        pytest.skip(f"not taken here: {dispatch['gemm_reason']}")
    assert dispatch["gemm"] == ("gx_gemm" if taken else "blas")
    monkeypatch.setattr(chain_run, "build_chain", LoopOverBaddbmm)
    expected, _ = backward("auto")
    assert [torch.equal(as_bits(a), as_bits(b)) for a, b in zip(grads, expected, strict=True)] == [
        True
    ] * len(grads)
    assert all(bool((grad != 0).any()) for grad in grads)


def test_a_miss_is_reported():
    _, first = backward("auto")
    _, second = backward("auto")
    assert first["gemm_probe_us"] > 0
    assert second["gemm_probe_us"] == 0
    assert first["gemm"] == second["gemm"]
    _, fixed = backward("fixed")
    assert (fixed["gemm"], fixed["gemm_reason"]) == ("gx_gemm", "asked for")


def test_prepare_qualifies_what_a_backward_asks_for():
    matches = qualify.prepare(num_parallel=P, chunk_size=16, head_dim=HD, steps=-(-T // 16))
    _, dispatch = backward("auto")
    assert counts("probes", "hits") == (1, 1)
    assert dispatch["gemm"] == ("gx_gemm" if matches else "blas")


def test_capture_step_qualifies_what_an_earlier_capture_missed():
    tensors = operands()
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        tensors.d_u.clone()  # torch warns of an empty graph
        qualify.decide(*tensors, SIZES.sequences)
    assert counts("capture_skips", "probes") == (1, 0)
    capture_step(lambda x: x + 1, torch.ones(4, device="cuda"), warmup=1)
    assert counts("probes") == (1,)
    assert qualify.decide(*tensors, SIZES.sequences).probe_us == 0
