"""The verdict cache on a made-up process: what it keeps, what it declines, what it counts."""

import threading

import pytest
import torch
from fake_process import FakeSide, FakeSource, operands

from sdm_runtime.qualify import Qualifier
from sdm_runtime.qualify.libraries import KeyUnreadableError
from sdm_runtime.qualify.operand_shapes import Sizes, step_shape


class World:
    def __init__(self):
        self.source, self.side = FakeSource(), FakeSide()
        self.qualifier = Qualifier(self.source, self.side)
        self.tensors = operands()

    def ask(self, tensors=None, sequences=2):
        d_u, x, d_dv = tensors or self.tensors
        return self.qualifier.decide(d_u, x, d_dv, sequences)

    def counts(self, *names):
        stats = self.qualifier.stats()
        return tuple(stats[name] for name in names)


@pytest.fixture
def world():
    return World()


def test_a_backwards_own_operands_take_the_verdict_of_checked_ones(world):
    shape = step_shape(Sizes(2, 16, 64))
    assert world.ask().matches
    decision = world.qualifier.decide_checked(world.tensors, shape)
    assert decision.matches
    assert world.counts("lookups", "probes", "hits") == (2, 1, 1)
    other = world.qualifier.decide_checked(world.tensors, step_shape(Sizes(1, 16, 64)))
    assert other.probe_us > 0


def test_a_miss_probes_and_a_hit_does_not(world):
    first, second = world.ask(), world.ask()
    assert first.matches
    assert second.matches
    assert first.probe_us > 0
    assert second.probe_us == 0
    assert len(world.side.probes) == 1
    assert world.counts("lookups", "probes", "equal", "hits") == (2, 1, 1, 1)
    assert min(world.counts("lookup_us", "probe_us")) > 0


def test_a_difference_is_kept_and_named(world):
    world.side.answer = ("large", "order")
    for _ in range(2):
        decision = world.ask()
        assert not decision.matches
        assert "large, order" in decision.reason
    assert world.counts("probes", "differ", "equal") == (1, 1, 0)


CHANGES = {
    "facts": (1, "Device", 9, 0, 132, "other"),
    "versions": ("2.11", "13.0", "/lib/libcublas.so.13", 130200, "image"),
    "variables": (("CUBLAS_WORKSPACE_CONFIG", ":16:8"),),
    "switches": (True, "highest"),
    "native": (0, 0, 0, 66, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("part", CHANGES)
def test_another_process_state_needs_another_verdict(world, part):
    assert world.ask().matches
    before = getattr(world.source, part)
    setattr(world.source, part, CHANGES[part])
    world.side.answer = ("order",)
    assert not world.ask().matches
    setattr(world.source, part, before)
    assert world.ask().matches
    assert len(world.side.probes) == 2


def test_other_shapes_and_alignments_need_other_verdicts(world):
    for tensors, sequences in (
        (world.tensors, 2),
        (world.tensors, 3),
        (operands(chunk=32), 2),
        (operands(residues=(16, 0, 0)), 2),
    ):
        assert world.ask(tensors, sequences).matches
    assert len(world.side.probes) == 4
    assert world.side.probes[3][1] == ((16, 0, 0),)
    d_u, x, d_dv = operands(steps=7)
    for same_calls in ((d_u, x, d_dv), (d_u, x, d_dv.view_as(d_u))):
        assert world.ask(same_calls).matches
    assert len(world.side.probes) == 4


@pytest.mark.parametrize("part", CHANGES)
def test_a_change_during_the_probe_gives_no_verdict(world, part):
    before = getattr(world.source, part)
    world.side.during = lambda: setattr(world.source, part, CHANGES[part])
    assert not world.ask().matches
    assert world.counts("changed", "equal") == (1, 0)
    world.side.during = None
    setattr(world.source, part, before)
    assert world.ask().matches
    assert len(world.side.probes) == 2, "a verdict was kept"


def test_a_probe_that_fails_is_tried_three_times(world):
    world.side.answer = RuntimeError("on purpose")
    for _ in range(5):
        decision = world.ask()
        assert not decision.matches
        assert "RuntimeError: on purpose" in decision.reason
    assert world.counts("errors", "probes", "hits") == (3, 3, 2)
    world.side.answer = ()
    assert not world.ask().matches
    world.qualifier.reset()
    assert world.ask().matches


def test_a_probe_may_fail_twice(world):
    world.side.answer = RuntimeError("on purpose")
    world.ask()
    world.ask()
    world.side.answer = ()
    assert world.ask().matches
    assert world.ask().matches
    assert world.counts("errors", "equal", "hits") == (2, 1, 1)


def test_reading_the_key_may_fail_three_times(world):
    world.source.failure = OSError("on purpose")
    for _ in range(5):
        assert not world.ask().matches
    assert world.source.reads == 3
    assert world.counts("errors", "probes") == (3, 0)
    world.source.failure = None
    assert not world.ask().matches
    assert world.ask(operands(chunk=32)).matches


def test_an_unreadable_key_declines_until_it_can_be_read(world):
    world.source.failure = KeyUnreadableError("two libraries")
    for _ in range(5):
        assert "two libraries" in world.ask().reason
    world.source.failure = None
    assert world.ask().matches
    assert world.counts("declined_keys", "errors", "equal") == (5, 0, 1)


def test_a_capture_neither_probes_nor_reads_nor_keeps(world):
    world.side.captured = True
    assert "prepare" in world.ask().reason
    assert world.source.reads == 0
    assert world.side.probes == []
    world.side.captured = False
    assert world.ask().matches
    assert world.counts("capture_skips", "probes", "equal") == (1, 1, 1)


def test_a_capture_takes_a_verdict_that_is_there(world):
    world.ask()
    world.side.captured = True
    assert world.ask().matches
    assert not world.ask(operands(chunk=32)).matches
    assert len(world.side.probes) == 1
    skipped = world.qualifier.take_skipped(torch.device("cpu"))
    assert [(s.sizes.chunk, s.steps) for s in skipped] == [(32, 3)]
    assert world.qualifier.take_skipped(torch.device("cpu")) == []


def test_what_fails_inside_a_capture_does_not_count(world):
    world.ask()
    world.side.captured, world.source.failure = True, OSError("on purpose")
    for _ in range(5):
        assert "prepare" in world.ask().reason
    world.side.captured, world.source.failure = False, None
    assert world.ask().matches
    assert world.counts("errors", "capture_skips") == (0, 5)


def test_a_capture_does_not_wait_for_another_threads_probe(world):
    inside, leave = threading.Event(), threading.Event()

    def during():
        inside.set()
        leave.wait(30)

    world.side.during = during
    prober = threading.Thread(target=world.ask)
    prober.start()
    assert inside.wait(30)
    world.side.captured = True
    assert not world.ask().matches
    leave.set()
    prober.join()
    assert world.ask().matches


def test_threads_share_one_probe(world):
    gate = threading.Barrier(8)
    world.side.during = lambda: threading.Event().wait(0.05)
    decisions = []

    def work():
        gate.wait()
        decisions.append(world.ask())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [d.matches for d in decisions] == [True] * 8
    assert len(world.side.probes) == 1
    assert world.counts("lookups", "probes", "equal", "hits") == (8, 1, 1, 7)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("asked_before", [False, True])
def test_where_torch_prefers_another_library_nothing_is_taken(world, captured, asked_before):
    """What gx_gemm would be proven against is not what runs where it is declined."""
    if asked_before:
        assert world.ask().matches  # the control
    probes = len(world.side.probes)
    world.source.other, world.side.captured = "Cublaslt", captured
    decision = world.ask()
    assert not decision.matches
    assert "torch prefers Cublaslt" in decision.reason
    assert len(world.side.probes) == probes
    assert world.counts("declined_library", "capture_skips") == (1, 0)
    world.source.other, world.side.captured = None, False
    assert world.ask().matches


def test_a_slow_shape_is_declined_before_anything_else(world):
    assert "as fast" in world.ask(operands(hd=5)).reason
    assert world.source.reads == 0
    assert world.counts("declined_shapes", "probes") == (1, 0)


WRONG = [
    (lambda d_u, x, d_dv: (d_u.double(), x, d_dv), "d_u: expected float32, got torch.float64"),
    (
        lambda d_u, x, d_dv: (d_u, x.transpose(1, 2), d_dv),
        "x: expected a contiguous tensor",
    ),
    (lambda d_u, x, d_dv: (d_u, x[1:], d_dv), r"x: expected \[6, 16, 16\], got \[5, 16, 16\]"),
    (lambda d_u, x, d_dv: (d_u, x, d_dv[1:]), r"d_dv: expected \[96, 64\] or \[6, 16, 64\], got"),
    (lambda d_u, x, d_dv: (d_u.view(-1, 64), x, d_dv), r"d_u: expected \[N, C, hd\], got"),
    (lambda d_u, x, d_dv: (d_u, x.to("meta"), d_dv), "x: expected a tensor on cpu, got meta"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_operands_are_refused(world, change, message):
    with pytest.raises(ValueError, match=message):
        world.ask(change(*world.tensors))
    assert world.counts("lookups") == (0,)


def test_sequences_that_do_not_divide_the_chunks_are_refused(world):
    with pytest.raises(ValueError, match="num_parallel: expected a divisor of N = 6, got 4"):
        world.ask(sequences=4)


def test_the_public_functions_want_a_cuda_device():
    from sdm_runtime import qualify

    with pytest.raises(ValueError, match=r"matches_blas.*CUDA device, got cpu"):
        qualify.matches_blas(*operands(), 2)
    with pytest.raises(ValueError, match=r"prepare.*CUDA device, got cpu"):
        qualify.prepare(num_parallel=2, chunk_size=16, head_dim=64, device="cpu")
    assert set(qualify.stats()) >= {"lookups", "probes", "equal", "differ", "errors"}
