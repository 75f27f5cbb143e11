"""inspect.graph on the captured training step of sdm-train, whole and broken on purpose."""

import pytest
import torch

from sdm_runtime import inspect
from sdm_runtime.dispatch import keep_last_chain, last_chain
from sdm_runtime.kernels.steps import plan_step
from sdm_runtime.machine.backends import supports_pdl
from sdm_runtime.ops.routes import bound_chains, step_chain
from sdm_runtime.train.config import DEFAULTS
from sdm_runtime.train.tasks.recall import RecallTask
from sdm_runtime.train.trainer.capture import captured
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.loop import Trainer
from sdm_runtime.train.trainer.model import ByteModel
from sdm_runtime.train.trainer.step import make_step

CONFIG = DEFAULTS["recall"].replaced({"batch_size": 4, "recall.gap": 200})
STEPS = -(-CONFIG.recall.length // CONFIG.model.chunk_size)


@pytest.fixture(autouse=True)
def with_cuda_python():
    pytest.importorskip("cuda.bindings.driver", reason="needs cuda-python")


def capture_training_step():
    """The captured step, with its graph kept, and the chain of its backward."""
    device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(0)
    model = ByteModel(CONFIG.model)
    trainer = Trainer(CONFIG, model, RecallTask(CONFIG), World(0, 1, device))
    step = make_step(trainer.model, trainer.optimizer, CONFIG.optim.clip_norm)
    operands = trainer._operands(trainer.task.next_batch())
    keep_last_chain()
    try:
        replay = captured(step, trainer.model, trainer.optimizer, operands, keep_graph=True)
        return replay, last_chain(), operands
    finally:
        keep_last_chain(False)


def test_a_captured_training_step_holds_the_chain():
    replay, chain, operands = capture_training_step()
    report = inspect.graph(replay.graph, chain, measure_memory=True)
    assert report.faithful, str(report)

    # Every launch of the chain is a node, in the chain's order, and there are others.
    (run,) = report.match.runs
    order = [(step, plan) for step in reversed(range(STEPS)) for plan in range(4)]
    assert [(node.launch.step, node.launch.index) for node in run.matched] == order
    assert len(report.graph.nodes) > len(order)

    # Each follows the one ahead by one edge, early where the device can.
    early = len(order) - 1 if supports_pdl(operands[0].device) else 0
    assert (run.programmatic_edges, run.full_edges) == (early, len(order) - 1 - early)
    assert report.graph.programmatic_edges >= early

    # About 3 KiB a node; the driver takes it in blocks of megabytes.
    assert report.graph.memory_bytes is not None
    assert report.graph.memory_per_node < 3072 + (8 << 20) / len(report.graph.nodes)
    assert f"{len(order)} nodes are steps {STEPS - 1}..0 of this chain" in str(report)
    assert torch.isfinite(replay(*operands))


def test_a_capture_without_pdl_for_one_kernel_is_reported_as_exactly_that(monkeypatch):
    if not supports_pdl(torch.device("cuda", torch.cuda.current_device())):
        pytest.skip("no programmatic launch here")
    _, chain, _ = capture_training_step()
    plan = plan_step
    # Calls of this kind have been recorded: record this one anew, and keep it from later calls.
    monkeypatch.setattr(bound_chains, "_templates", {})

    def without_pdl_for_pa2(kernel, given):
        return plan(kernel, given | {"pdl": False} if kernel == "gx_pa2" else given)

    monkeypatch.setattr(step_chain, "plan_step", without_pdl_for_pa2)
    broken, own, _ = capture_training_step()
    report = inspect.graph(broken.graph, chain)
    assert not report.faithful
    assert report.match.differences == (
        f"gx_pa2: {STEPS} launches of it (first step {STEPS - 1} plan 2 (gx_pa2)) have full edges "
        "where the chain asks for programmatic ones: PDL is off for it",
    )
    (run,) = report.match.runs
    assert (run.complete, run.full_edges) == (True, STEPS)
    # The control: it is what its own chain asks for.
    assert inspect.graph(broken.graph, own).faithful
