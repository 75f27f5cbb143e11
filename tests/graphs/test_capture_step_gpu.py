"""capture_step: whole training steps replayed with new inputs."""

import threading
from types import SimpleNamespace

import pytest
import torch

from sdm_runtime import last_dispatch, sdm_write_read
from sdm_runtime.graphs import capture_step
from sdm_runtime.train.trainer.capture import put_back

P, T, S, HD, W = 2, 128, 256, 64, 4


class Memory(torch.nn.Module):
    """Some parameters around the operation."""

    def __init__(self):
        super().__init__()
        self.value = torch.nn.Linear(HD, HD)
        self.gate = torch.nn.Linear(HD, 2)

    def forward(self, x, k_idx, q_idx, weights):
        bank = torch.zeros(P * S, HD, dtype=torch.bfloat16, device=x.device)
        gates = self.gate(x)
        return sdm_write_read(
            bank,
            k_idx,
            weights,
            self.value(x),
            gates[..., :1].sigmoid(),
            -gates[..., 1:].exp(),
            q_idx,
            weights,
            num_memory_slots=S,
            num_parallel=P,
        )


def draw_inputs(generator):
    def slots():
        picks = torch.rand(P, T, S, generator=generator).argsort(-1)[..., :W]
        return (picks + torch.arange(P)[:, None, None] * S).cuda()

    x = torch.randn(P, T, HD, generator=generator).cuda()
    weights = torch.rand(P, T, W, generator=generator).cuda()
    return x, slots(), slots(), weights


def make_step(seed=0):
    torch.manual_seed(seed)
    model = Memory().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True, capturable=True)

    def step(x, k_idx, q_idx, weights):
        optimizer.zero_grad(set_to_none=True)
        readings = model(x, k_idx, q_idx, weights).float()
        loss = (readings - x.reshape(readings.shape)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def test_captured_losses_are_the_eager_ones():
    generator = torch.Generator().manual_seed(1)
    batches = [draw_inputs(generator) for _ in range(6)]
    _, _, eager = make_step()
    expected = [float(eager(*batch)) for batch in batches]

    model, optimizer, step = make_step()
    with put_back(model, optimizer):
        captured = capture_step(step, *batches[0])
    losses = [float(captured(*batch)) for batch in batches]
    assert losses == expected
    assert len(set(losses)) == len(losses)
    assert last_dispatch()["route"] == "chain"


WHOLE_CALL = """
import torch
from sdm_runtime import last_dispatch, sdm_write_read
from sdm_runtime.graphs import capture_step
from sdm_runtime.ops.backward import operands as chain_operands
chain_operands._LARGE_BYTES = LARGE_BYTES
P, T, S, W = 2, 200, 512, 4
gen = torch.Generator("cuda").manual_seed(3)
def normal(*shape):
    return torch.randn(*shape, device="cuda", generator=gen)
def slots():
    picks = torch.rand(P, T, S, device="cuda", generator=gen).argsort(-1)[..., :W]
    return picks + torch.arange(P, device="cuda")[:, None, None] * S
bank = normal(P * S, HD).bfloat16().requires_grad_()
leaves = [bank, normal(P, T, W).requires_grad_(), normal(P, T, HD).requires_grad_()]
leaves += [normal(P, T, 1).sigmoid().requires_grad_(), normal(P, T, 1).requires_grad_()]
leaves.append(normal(P, T, W).requires_grad_())
k_idx, q_idx, grad = slots(), slots(), normal(P * T, HD).bfloat16()
def step(grad):
    bank, k_val, v, beta, g, q_val = leaves
    readings = sdm_write_read(bank.clone(), k_idx, k_val, v, beta, -g.exp(), q_idx, q_val,
                              num_memory_slots=S, num_parallel=P)
    return torch.autograd.grad(readings, leaves, grad)
"""


@pytest.mark.parametrize("warmup", [1, 2])
@pytest.mark.parametrize("hd", [128, 256])
def test_one_warm_up_prepares_all_that_a_capture_needs(in_new_process, warmup, hd):
    # Rows of 256 columns, and a bank that counts as large, have work on a second stream.
    in_new_process(
        f"HD, LARGE_BYTES = {hd}, {0 if hd > 128 else 1 << 62}\n"
        + WHOLE_CALL
        + f"""
captured = capture_step(step, grad, warmup={warmup})
choice = last_dispatch()["gemm"], last_dispatch()["gemm_reason"]
for _ in range(2):
    replayed = captured(grad)
eager = step(grad)
assert (last_dispatch()["gemm"], last_dispatch()["gemm_reason"]) == choice, choice
wrong = [i for i, (a, b) in enumerate(zip(replayed, eager, strict=True)) if not torch.equal(a, b)]
print("ok" if not wrong else wrong)
"""
    )


def test_an_autograd_graph_of_another_stream_is_named():
    weight = torch.ones(8, device="cuda", requires_grad=True)

    def step(x):
        return torch.autograd.grad((weight * x).sum(), weight)[0]

    x = torch.arange(8.0, device="cuda")
    held = (weight * x).sum()  # keeps the leaf's node, on the default stream
    with pytest.raises(RuntimeError, match="drop what that call returned"):
        capture_step(step, x, warmup=1)
    del held
    assert torch.equal(capture_step(step, x, warmup=1)(x), x)


def test_outputs_are_copies_in_the_functions_structure():
    def step(x):
        return {"double": x * 2, "parts": (x + 1, [x - 1]), "name": "kept"}

    x = torch.arange(4.0, device="cuda")
    captured = capture_step(step, x, warmup=1)
    first = captured(x)
    second = captured(x + 10)
    assert torch.equal(first["double"], x * 2)
    assert torch.equal(second["parts"][1][0], x + 9)
    assert second["name"] == "kept"


CHANGED = [
    (
        lambda x: (x[:4], 2),
        ValueError,
        r"input 0: expected float32 \[8\] on cuda:0, got float32 \[4\]",
    ),
    (lambda x: (x.double(), 2), ValueError, r"got float64 \[8\]"),
    (lambda x: (x.cpu(), 2), ValueError, r"got float32 \[8\] on cpu"),
    (lambda x: (x,), TypeError, "expected the 2 inputs it was captured with, got 1"),
    (lambda x: (x, 3), ValueError, "input 1: expected the captured value 2, got 3"),
    (lambda x: (7, 2), TypeError, "input 0: expected a tensor, got int"),
]


@pytest.mark.parametrize(("change", "kind", "message"), CHANGED)
def test_changed_inputs_are_refused_before_anything_runs(change, kind, message):
    x = torch.ones(8, device="cuda")
    total = torch.zeros((), device="cuda")
    captured = capture_step(lambda x, times: total.add_(x.sum() * times), x, 2)
    before = float(total)
    with pytest.raises(kind, match=message):
        captured(*change(x))
    assert float(total) == before


def test_a_step_that_reads_back_is_refused_and_the_device_stays_usable():
    x = torch.ones(8, device="cuda")
    with pytest.raises(RuntimeError, match="must not wait for the device"):
        capture_step(lambda x: x * float(x.sum()), x)
    assert float(x.sum()) == 8
    assert torch.rand(4, device="cuda").isfinite().all()  # torch's generator left the capture too


def test_wrong_examples_are_refused():
    x = torch.ones(2, device="cuda")
    with pytest.raises(ValueError, match="input 1: expected a tensor on a CUDA device, got cpu"):
        capture_step(lambda *_: None, x, x.cpu())
    with pytest.raises(TypeError, match=r"input 0: .* a SimpleNamespace that holds tensors"):
        capture_step(lambda *_: None, SimpleNamespace(x=x))
    with pytest.raises(TypeError, match=r"fn: .* a SimpleNamespace that holds tensors"):
        capture_step(lambda x: SimpleNamespace(x=x * 2), x)
    with pytest.raises(ValueError, match="warmup: expected at least 1, got 0"):
        capture_step(lambda *_: None, x, warmup=0)


class CopyingThread(threading.Thread):
    """Does what a data loader's thread does, while another thread captures: new pinned memory,
    copies from it on a stream of its own, and asking and waiting until they are done."""

    def __init__(self, began):
        super().__init__()
        self._began, self.done = began, threading.Event()
        self.failure, self.right = None, []

    def run(self):
        try:
            assert self._began.wait(60)
            with torch.cuda.stream(torch.cuda.Stream()):
                for power in range(10, 20):  # of other sizes: none is taken from a cache
                    source = torch.arange(1 << power, dtype=torch.float32).pin_memory()
                    target = source.to("cuda", non_blocking=True)
                    copied = torch.cuda.Event()
                    copied.record()
                    copied.query()
                    copied.synchronize()
                    self.right.append(torch.equal(target.cpu(), source))
        except Exception as error:
            self.failure = error
        finally:
            self.done.set()


def capture_beside_copies():
    """Captures a training step while the other thread copies; whether both came out right."""
    generator = torch.Generator().manual_seed(2)
    batch = draw_inputs(generator)
    _, _, eager = make_step()
    expected = float(eager(*batch))
    model, optimizer, step = make_step()
    began = threading.Event()
    copies = CopyingThread(began)
    copies.start()

    def step_that_lets_it_copy(*inputs):
        loss = step(*inputs)
        if torch.cuda.is_current_stream_capturing():
            began.set()
            assert copies.done.wait(60)
        return loss

    try:
        with put_back(model, optimizer):
            captured = capture_step(step_that_lets_it_copy, *batch)
    finally:
        began.set()
        copies.join()
    assert copies.failure is None, copies.failure
    return copies.right == [True] * 10 and float(captured(*batch)) == expected


def test_a_thread_copies_from_pinned_memory_while_a_step_is_captured():
    assert capture_beside_copies()


def test_the_control_of_a_capture_that_forbids_it_to_every_thread(in_new_process):
    in_new_process("""
from sdm_runtime.graphs import captured_step
from test_capture_step_gpu import capture_beside_copies
captured_step._ERROR_MODE = "global"
try:
    print("it was not in the way", capture_beside_copies())
except (RuntimeError, AssertionError) as error:
    print(error)
    print("ok")
""")
