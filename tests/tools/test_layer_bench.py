"""The benchmark of the whole layer: its figures, targets, slots and parts."""

from __future__ import annotations

import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import layer
import layer_profile
import layer_timing
import pytest
import torch
from figures import Figure, Report, read_report
from layer_calls import Decoding, selection_step, training_step
from layer_operands import SHAPES, TINY, Shape, best_slots, make_layer, normal, sink_column
from layer_operands import largest_groups as groups_of
from layer_timing import CALLS, Budget, time_calls
from torch.autograd import DeviceType

CPU = torch.device("cpu")
SCRIPT = Path(layer.__file__)
QUICK = ["--device", "cpu", "--shapes", "tiny", "--rounds", "1", "--round-ms", "0"]
TIMED = {"train": "ms", "prefill": "ms", "selection": "ms", "rows of 8 batch 1": "us"}
TIMED |= {f"{what} batch {batch}": "us" for what in ("decode", "layers") for batch in (1, 2)}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What a run of all parts writes."""
    out = tmp_path_factory.mktemp("layer") / "layer.json"
    command = [sys.executable, str(SCRIPT), *QUICK, "--batches", "1", "2", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert ["layers", "tiny", "uniform"] in [line.split() for line in done.stdout.splitlines()]
    return read_report(out)


def named(report: Report) -> dict[str, Figure]:
    return {each.name.removeprefix("tiny uniform "): each for each in report.figures}


def test_a_run_on_the_cpu_writes_every_figure(report: Report) -> None:
    figures = named(report)
    timed = {name: each.unit for name, each in figures.items() if name.endswith(" eager")}
    assert timed == {f"{name} eager": unit for name, unit in TIMED.items()}
    assert figures["train kernels"].unit == figures["decode kernels"].unit == "count"
    parts = {name for name in figures if " part " in name}
    for call, some in (
        ("train", {"operation, other", "projections", "copies"}),
        ("decode", {"projections", "other"}),
    ):
        assert {f"{call} part {part}" for part in some} <= parts
    assert len(figures) == len(timed) + len(parts) + 2
    assert all(each.figure > 0 for each in figures.values())
    assert report.bench == "layer"


def test_a_run_says_what_was_dispatched(report: Report) -> None:
    figures = named(report)
    for name, op, tokens in (
        ("prefill eager", "sdm_write_read.forward", TINY.tokens),
        ("decode batch 2 eager", "SparseDeltaMemory.decode", 1),
    ):
        dispatch = figures[name].details["dispatch"]
        assert dispatch["op"] == op
        assert dispatch["geometry"]["T"] == tokens
    assert figures["layers batch 1 eager"].details == {"layers": layer.LAYERS}


def test_targets_are_of_figures_that_are_measured(report: Report) -> None:
    measured = set(named(report)) | {f"{name} graph" for name in TIMED}
    measured |= {name.replace("batch 2", "batch 32") for name in measured}
    assert set(layer.TARGETS) <= measured
    assert {"decode batch 32 grapf"} - measured
    assert all(len(targets) == len(SHAPES) for targets in layer.TARGETS.values())
    assert layer.target_of("train graph", SHAPES[1]) == 25
    assert layer.target_of("selection graph", SHAPES[1]) is None
    assert layer.target_of("train graph", TINY) is None


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run the command here; the names in what it writes."""

    def run(*options: str) -> list[str]:
        out = tmp_path / "out.json"
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *QUICK, "--json", str(out), *options])
        layer.main()
        return [figure.name for figure in read_report(out).figures]

    return run


def test_parts_shapes_and_slots_can_be_chosen(run) -> None:
    assert run("--parts", "prefill,rows", "--slots", "one-hot", "uniform") == [
        f"tiny {picks} {name} eager"
        for picks in ("one-hot", "uniform")
        for name in ("prefill", "rows of 8 batch 1")
    ]
    assert run("--parts", "selection", "train") == [
        f"tiny uniform {name} eager" for name in ("train", "selection")
    ]


def test_an_unknown_part_is_refused(run, capsys) -> None:
    with pytest.raises(SystemExit) as error:
        run("--parts", "train", "prefil,rows")
    assert error.value.code == 2
    assert "parts: expected train, prefill, " in capsys.readouterr().err


def test_a_part_that_fails_costs_no_other(run, monkeypatch, tmp_path, capsys) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("no graph")

    monkeypatch.setitem(layer.PARTS, "prefill", fail)
    with pytest.raises(SystemExit, match=r"layer: failed: tiny uniform prefill$"):
        run("--parts", "train,prefill,rows")
    names = [each.name for each in read_report(tmp_path / "out.json").figures]
    assert names == ["tiny uniform train eager", "tiny uniform rows of 8 batch 1 eager"]
    assert "RuntimeError: no graph" in capsys.readouterr().err


def test_a_target_stands_beside_its_figure(capsys) -> None:
    options = Namespace(device="cpu", rounds=1, round_ms=0)
    bench = layer.Bench(replace(TINY, name="s_hd64"), "uniform", options)
    bench.add("train graph", "ms", [9.0, 9.0])
    bench.add("rows of 8 batch 1 graph", "us", [9.0, 9.0])
    with_target, without = capsys.readouterr().out.splitlines()
    assert with_target.endswith("9.00 +- 0.00    ms     target 4.5, 2.00 of it")
    assert "target" not in without
    layer.print_tables(bench.figures, ["train", "decode", "rows"])
    lines = [line.split("  ")[0] + line[-16:] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if ", " in line] == [
        "train graph, ms   9.00 (<= 4.5)",
        "rows of 8 batch 1 graph, us            9.00",
    ]


MIDDLE = Shape("middle", 128, 2, 4096, 16, 1, 256)


@pytest.mark.parametrize(
    ("picks", "least", "most"), [("uniform", 2, 6), ("skewed", 12, 30), ("one-hot", 60, 64)]
)
def test_tokens_pick_slots_as_asked(picks: str, least: int, most: int) -> None:
    torch.manual_seed(0)
    made = make_layer(MIDDLE, picks, CPU)
    x = normal(1, MIDDLE.tokens, MIDDLE.dim, device=CPU)
    for projection in (made.Wk_write, made.Wq_read):
        scores = projection(x).float().view(-1, 64, MIDDLE.heads, 2, MIDDLE.width)
        by_head = scores.transpose(1, 2).flatten(0, 1)
        groups = groups_of(by_head, MIDDLE.entries)
        assert least <= groups.mean() <= most
        sink = sink_column(MIDDLE) * (MIDDLE.width + 1)
        named_by = (best_slots(by_head, MIDDLE.entries)[1] == sink).any(-1).float().mean()
        assert (named_by > 0.95) == (picks == "one-hot")


def test_other_picks_are_refused() -> None:
    with pytest.raises(ValueError, match="expected uniform, skewed or one-hot, got even"):
        make_layer(TINY, "even", CPU)


def test_a_training_step_gives_new_gradients() -> None:
    made = make_layer(TINY, "uniform", CPU)
    x = normal(2, 70, TINY.dim, device=CPU)
    step = training_step(made, x)
    step()
    first = x.grad
    step()
    assert x.grad is not first
    assert torch.equal(x.grad, first)
    assert made.memory.grad.any()


def test_decoding_goes_on_with_one_bank() -> None:
    layers = [make_layer(TINY, "uniform", CPU, learned_bank=False) for _ in range(2)]
    inputs = [[normal(3, 1, TINY.dim, device=CPU) for _ in layers] for _ in range(4)]
    steps = Decoding(layers, inputs)
    before = steps.caches[:]
    banks = [cache.bank for cache in before]
    copies = [bank.clone() for bank in banks]
    steps()
    steps()
    assert [cache.tokens for cache in steps.caches] == [1 + 2 * 4] * 2
    for old, new, bank, copy in zip(before, steps.caches, banks, copies, strict=True):
        assert new.bank.data_ptr() == bank.data_ptr()
        assert not torch.equal(new.bank, copy)
        with pytest.raises(RuntimeError, match="handed to a later call"):
            _ = old.bank


def test_a_build_that_selects_in_another_way_is_passed_over(monkeypatch, capsys) -> None:
    made = make_layer(TINY, "uniform", CPU)
    x = normal(1, 70, TINY.dim, device=CPU)
    assert selection_step(made, x) is not None
    monkeypatch.setattr(type(made), "forward", lambda self, x: (x, None))  # no _select in it
    assert selection_step(made, x) is None
    monkeypatch.delattr(type(made), "_select")
    assert selection_step(made, x) is None
    options = Namespace(device="cpu", rounds=1, round_ms=0)
    bench = layer.Bench(TINY, "uniform", options)
    layer.time_selection(bench)
    assert bench.figures == []
    assert "it is not known here" in capsys.readouterr().out


def test_times_are_of_one_call() -> None:
    calls = []

    def work() -> None:
        calls.append(1)
        time.sleep(2e-3)

    samples = time_calls(work, CPU, Budget(4, 0.0))
    assert len(samples) == 4
    assert len(calls) > 4 * CALLS[0]
    assert all(2e3 <= us < 100e3 for us in samples)
    before = len(calls)
    time_calls(work, CPU, Budget(1, 100.0))
    assert len(calls) - before > 2 * CALLS[0]


def test_a_graph_is_timed_by_its_replays(monkeypatch) -> None:
    done: list[str] = []

    def capture_step(work: Any) -> Any:
        assert work() is None
        return SimpleNamespace(graph=SimpleNamespace(replay=lambda: done.append("replay")))

    monkeypatch.setattr(layer_timing, "capture_step", capture_step)
    replay = layer_timing.captured(lambda: done.append("call"))
    replay()
    replay()
    assert done == ["call", "replay", "replay"]


def test_figures_of_a_gpu_are_of_both_ways(monkeypatch, capsys) -> None:
    monkeypatch.setattr(layer, "captured", lambda work: lambda: "graph")
    monkeypatch.setattr(layer, "time_calls", lambda work, *_: [2e3 if work() else 6e3] * 2)
    bench = layer.Bench(TINY, "uniform", Namespace(device="cpu", rounds=1, round_ms=0))
    bench.time("train", "ms", lambda: None)
    bench.device = torch.device("cuda")
    bench.time("rows", "us", lambda: None, 20, layers=3)
    assert [(each.name, each.unit, each.figure, each.details) for each in bench.figures] == [
        ("tiny uniform train eager", "ms", 6.0, {}),
        ("tiny uniform rows eager", "us", 300.0, {"layers": 3}),
        ("tiny uniform rows graph", "us", 100.0, {"layers": 3}),
    ]


def test_no_more_layers_than_fit(monkeypatch) -> None:
    large = SHAPES[1]
    free = 140 << 30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, free))
    fitting = {
        batch: layer.layers_that_fit(large, batch, torch.device("cuda"))
        for batch in (1, 8, 32, 999)
    }
    assert fitting == {1: 20, 8: 20, 32: 12, 999: 1}
    assert 12 * large.layer_bytes(32) <= 0.7 * free < 13 * large.layer_bytes(32)
    # What a bank and the weights of a layer are by hand.
    assert large.layer_bytes(1) == 2 * (2 * 65536 * 1024 + 2048 * (2 * 1024 + 2 * 2048))


EVALUATE = "autograd::engine::evaluate_function: "


@pytest.mark.parametrize(
    ("name", "operators", "part"),
    [
        ("gx_gwr_bf16_c8", [], "operation's chain"),
        ("pair_matrices", ["WriteRead"], "chunk kernels"),
        ("plane_reduce_x4", ["WriteReadBackward"], "chunk kernels"),
        ("bf16_linear_16", ["sdm::bf16_linear"], "projections"),
        ("nvjet_tst", ["aten::addmm", "aten::linear"], "projections"),
        ("nvjet_tst", ["aten::mm", f"{EVALUATE}AddmmBackward0"], "projections"),
        ("nvjet_tst", ["aten::bmm", "WriteReadBackward"], "operation, other"),
        ("sort", ["aten::topk", "_ProductKeyTopK"], "selection"),
        ("copy", ["aten::copy_", f"{EVALUATE}_ProductKeyTopKBackward"], "selection"),
        ("copy", ["aten::copy_", "aten::clone"], "copies"),
        ("Memcpy DtoD (Device -> Device)", [], "copies"),
        ("softmax", ["aten::softmax"], "other"),
        ("elementwise", [], "other"),
    ],
)
def test_a_kernel_belongs_to_a_part(name: str, operators: list[str], part: str) -> None:
    assert layer_profile.part_of(name, operators) == part


def test_our_kernels_are_known_by_their_folders(tmp_path: Path, monkeypatch) -> None:
    for folder in ("step/gx_a", "linear/lin", "layer/gates", "layer/gates_grad", "layer/select_x"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "common/math").mkdir(parents=True)
    (tmp_path / "layer/operands.h").touch()
    monkeypatch.setattr(layer_profile, "SOURCES", tmp_path)
    found = layer_profile.own_kernels.__wrapped__()
    assert found == {
        "gx_a": "operation's chain",
        "lin": "projections",
        "gates": "gates",
        "gates_grad": "gates_grad",
        "select_x": "selection",
    }
    assert list(found).index("gates_grad") < list(found).index("gates")


def event(name: str, *, host: bool = False, us: float = 1.0, **details: Any) -> SimpleNamespace:
    """What torch's profiler says of something."""
    kind = DeviceType.CPU if host else DeviceType.CUDA
    span = SimpleNamespace(elapsed_us=lambda: us)
    said = {"kernels": [], "cpu_parent": None, "is_user_annotation": False, **details}
    return SimpleNamespace(name=name, device_type=kind, time_range=span, **said)


def test_kernels_are_what_the_device_ran() -> None:
    top = event("_ProductKeyTopK", host=True)
    launched = [SimpleNamespace(name="sort", duration=5.0)]
    events: list[Any] = [
        top,
        event("aten::topk", host=True, cpu_parent=top, kernels=launched),
        event("sort", us=5.0),
        event("sort", us=7.0),
        event("gx_gemm_64x64", us=3.0),
        event("Memset (Device)", us=0.5),
        event("WriteRead", us=100.0, is_user_annotation=True),
    ]
    found = layer_profile.device_kernels(events)
    assert [(each.name, each.part, each.us, each.is_copy) for each in found] == [
        ("sort", "selection", 5.0, False),
        ("sort", "other", 7.0, False),
        ("gx_gemm_64x64", "operation's chain", 3.0, False),
        ("Memset (Device)", "copies", 0.5, True),
    ]
    assert layer_profile.by_part(found) == {
        "other": 7.0,
        "selection": 5.0,
        "operation's chain": 3.0,
        "copies": 0.5,
    }


def test_a_profile_sees_the_operation_without_gradients() -> None:
    made = make_layer(TINY, "uniform", CPU)
    x = normal(1, TINY.tokens, TINY.dim, device=CPU)
    inner = vars(layer_profile.layer_module())["sdm_write_read"]

    def prefill() -> None:
        with torch.no_grad():
            made(x)

    found = layer_profile.profiled(prefill, CPU)
    assert vars(layer_profile.layer_module())["sdm_write_read"] is inner
    assert {"projections", "operation, other"} <= set(layer_profile.by_part(found))
    assert "operation, other" not in {
        each.part for each in layer_profile.profiled(lambda: made.Wo(x), CPU)
    }
