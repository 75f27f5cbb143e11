"""sdm-train on a GPU: the same bits twice, captured or not, in one go or resumed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sdm_runtime.train.checkpoints.checkpoint import load_checkpoint, restore, save_checkpoint
from sdm_runtime.train.config import DEFAULTS
from sdm_runtime.train.data.corpus import Corpus, from_bytes
from sdm_runtime.train.tasks.text import TextTask
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.loop import Trainer
from sdm_runtime.train.trainer.model import ByteModel
from sdm_runtime.train.trainer.progress import SilentProgress
from sdm_runtime.train.trainer.repeatable import RepeatableEmbedding

# The embedding has 32768 symbols a step of width 512, at which torch's own does not repeat.
CONFIG = DEFAULTS["text"].replaced(
    {
        "steps": 6,
        "batch_size": 4,
        "length": 8192,
        "eval_every": 3,
        "model.dim": 512,
        "model.blocks": 2,
        "model.memory_blocks": [1],
        "model.memory_heads": 4,
        "model.slots": 4096,
    }
)


def text(seed: int) -> bytes:
    """Return bytes of uneven frequency, as those of a text are."""
    generator = torch.Generator().manual_seed(seed)
    drawn = (torch.randn(40_000, generator=generator) * 12 + 100).clamp(0, 255)
    return bytes(drawn.to(torch.uint8).tolist())


CORPUS = Corpus(
    train=from_bytes([(f"train {seed}", text(seed)) for seed in range(2)]),
    validation=from_bytes([("validation", text(2)[:5000])]),
)


def new_trainer(*, capture: bool = False, embedding: type[nn.Embedding] | None = None) -> Trainer:
    torch.manual_seed(CONFIG.seed)
    model = ByteModel(CONFIG.model)
    if embedding is not None:
        weights = model.embedding.state_dict()
        table: Any = embedding(*model.embedding.weight.shape)
        table.load_state_dict(weights)
        model.embedding = table
    world = World(0, 1, torch.device("cuda", torch.cuda.current_device()))
    return Trainer(CONFIG, model, TextTask(CORPUS, CONFIG), world, capture=capture)


def run(**options: Any) -> tuple[list[float], list[tuple[int, float]], list[torch.Tensor]]:
    trainer = new_trainer(**options)
    trainer.run(CONFIG.steps, SilentProgress())
    return result(trainer)


def result(trainer: Trainer) -> tuple[list[float], list[tuple[int, float]], list[torch.Tensor]]:
    weights = [p.detach().cpu() for p in trainer.model.parameters()]
    return trainer.history.losses, trainer.history.evaluations, weights


@pytest.fixture(scope="module")
def first():
    losses, evaluations, weights = run()
    assert len(set(losses)) == CONFIG.steps
    return losses, evaluations, weights


def expect_same(got, want) -> None:
    assert got[0] == want[0]
    assert got[1] == want[1]
    assert all(map(torch.equal, got[2], want[2]))


def test_a_run_repeats(first):
    expect_same(run(), first)


def test_a_captured_run_has_the_bits_of_an_uncaptured_one(first):
    expect_same(run(capture=True), first)


@pytest.mark.parametrize("captures", [(False, True), (True, False)], ids=["eager first", "last"])
def test_a_resumed_run_has_the_bits_of_a_whole_one(first, tmp_path, captures):
    part, rest = (new_trainer(capture=capture) for capture in captures)
    part.run(3, SilentProgress())
    save_checkpoint(tmp_path / "c.pt", part, [], "")
    restore(rest, load_checkpoint(tmp_path / "c.pt"))
    rest.run(CONFIG.steps, SilentProgress())
    expect_same(result(rest), first)


def grad_of(weight: torch.Tensor) -> torch.Tensor:
    assert weight.grad is not None
    return weight.grad


def gradients(kind: type[nn.Embedding], count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    symbols = torch.tensor(list(text(0)[: 4 * 8192])).view(4, 8192).cuda()
    grad = torch.randn(4, 8192, 512, generator=generator).cuda()
    table = kind(257, 512).cuda()
    found = []
    for _ in range(count):
        table.weight.grad = None
        table(symbols).backward(grad)
        found.append(grad_of(table.weight).clone())
    return found


def test_the_embeddings_gradient_repeats():
    ours = gradients(RepeatableEmbedding, 20)
    assert all(torch.equal(ours[0], other) for other in ours)
    # The control: torch's own differs here, so the sizes are such that the checks can fail.
    plain = gradients(nn.Embedding, 20)
    torch.testing.assert_close(ours[0], plain[0], rtol=1e-3, atol=1e-3)
    assert not all(torch.equal(plain[0], other) for other in plain)


def test_the_embeddings_gradient_is_captured_with_the_same_bits():
    generator = torch.Generator().manual_seed(0)
    symbols = torch.randint(257, (4, 8192), generator=generator).cuda()
    grad = torch.randn(4, 8192, 512, generator=generator).cuda()
    table = RepeatableEmbedding(257, 512).cuda()

    def backward() -> torch.Tensor:
        (found,) = torch.autograd.grad(table(symbols), table.weight, grad)
        return found

    eager = backward()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = backward()
    symbols.copy_(symbols.flip(1))  # another batch, in place
    grad.copy_(grad.flip(1))
    want = backward()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, want)
    torch.testing.assert_close(captured, eager, rtol=1e-3, atol=1e-3)


def test_no_operation_of_a_step_adds_in_any_order(in_new_process):
    """torch raises where an operation has no algorithm that repeats; also in the backward."""
    in_new_process(
        """
import torch
from test_train_repeats_gpu import CONFIG, new_trainer
from sdm_runtime.train.trainer.progress import SilentProgress

torch.utils.deterministic.fill_uninitialized_memory = False
torch.use_deterministic_algorithms(True, warn_only=False)
trainer = new_trainer()
trainer.run(2, SilentProgress())
assert all(p.grad is not None for p in trainer.model.parameters())

# The control: an operation that torch's documentation lists raises here.
try:
    torch.bincount(torch.arange(9, device="cuda"), weights=torch.ones(9, device="cuda"))
except RuntimeError as error:
    assert "deterministic" in str(error), error
    print("ok")
else:
    print("bincount did not raise")
""",
        CUBLAS_WORKSPACE_CONFIG=":4096:8",
    )
