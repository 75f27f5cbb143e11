"""Plans across processes and threads, and the memory they run on."""

import gc
import hashlib
import threading
import weakref

import pytest
import torch
from child_process import run_python
from core_testing import core_testing
from plan_cases import SHAPE, sample_chain
from testing_plans import walk_plan

from sdm_runtime import PlanError, StepChain

WRITTEN = ("grad", "bank", "d_u", "d_dv", "dpd", "out_eff", "out_g", "dq")


def digest(operands) -> str:
    raw = b"".join(operands[n].contiguous().view(torch.uint8).numpy().tobytes() for n in WRITTEN)
    return hashlib.sha256(raw).hexdigest()


def test_a_saved_chain_runs_in_another_process_with_the_same_bits(tmp_path):
    chain, operands = sample_chain()
    path = tmp_path / "chain.sdmchain"
    chain.save(path)
    before = digest(operands)
    program = (
        "import sys\n"
        "from plan_cases import chain_operands, without\n"
        "from test_plan_lifetime import digest\n"
        "from sdm_runtime import StepChain\n"
        "operands = without(chain_operands(), 'kpay')\n"
        "StepChain.load(sys.argv[1]).bind(**operands).run()\n"
        "print(digest(operands))\n"
    )
    done = run_python("-c", program, str(path))
    assert done.returncode == 0, done.stderr
    chain.run()
    assert done.stdout.strip() == digest(operands) != before


def test_a_loaded_plan_runs_like_the_recorded_one(tmp_path):
    recorded, first = sample_chain()
    recorded.save(tmp_path / "chain")
    _, second = sample_chain()
    StepChain.load(tmp_path / "chain").bind(**second).run()
    recorded.run()
    assert digest(first) == digest(second)


def test_a_plan_keeps_its_operands_alive():
    chain, operands = sample_chain()
    watched = weakref.ref(operands["grad"])
    expected = {name: tensor.clone() for name, tensor in operands.items()}
    bound_again = StepChain([p.bind(**{k: expected[k] for k in p.tensors}) for p in chain.plans], 3)
    del operands
    gc.collect()
    assert watched() is not None
    torch.randn(1 << 16)  # would reuse freed memory
    chain.run()
    bound_again.run()
    assert torch.equal(watched(), expected["grad"])
    del chain
    gc.collect()
    assert watched() is None  # and no longer than that


def test_a_chain_keeps_its_plans_alive():
    out = torch.zeros(4)
    plan = walk_plan(out, value_line=(3, 0, 3, 3), steps=2)
    chain = StepChain([plan], 2)
    del plan
    gc.collect()
    chain.run()
    assert out[0] == 3


@pytest.mark.parametrize(
    "replace",
    [
        lambda x: setattr(x, "data", torch.zeros_like(x)),
        lambda x: x.untyped_storage().resize_(0),
        lambda x: x.set_(torch.zeros_like(x)),
        lambda x: x.resize_(1 << 12),
    ],
    ids=["data", "storage-resize", "set_", "resize_"],
)
def test_a_run_on_replaced_memory_is_an_error(replace):
    out = torch.zeros(64)
    chain = StepChain([walk_plan(out, value_line=(3, 0, 3, 3))], 1)
    chain.run()
    replace(out)
    with pytest.raises(
        PlanError, match=r"\[testing_walk\] out: expected the memory that it was bound with"
    ):
        chain.run()


STEPS, COUNT = 200, 64


def walking_chain(out):
    """Step ti adds ti + 1 to its own share of ``out``: any mixing of two runs shows."""
    size = 4 * COUNT
    plan = walk_plan(
        out,
        bytes_line=(0, size, 0, size * (STEPS - 1)),
        value_line=(1, 1, 1, STEPS),
        count=COUNT,
        steps=STEPS,
        add=True,
    )
    return StepChain([plan], STEPS)


def expected_after(runs):
    return runs * torch.arange(1, STEPS + 1, dtype=torch.float32).repeat_interleave(COUNT)


def run_in_threads(*runs, repeats=1):
    barrier = threading.Barrier(len(runs))
    errors = []

    def body(run):
        barrier.wait()
        try:
            for _ in range(repeats):
                run()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_two_threads_may_run_one_chain():
    """Every run patches its own copy of the parameters."""
    out = torch.zeros(STEPS * COUNT)
    chain = walking_chain(out)
    run_in_threads(chain.run, chain.run, repeats=4)
    assert torch.equal(out, expected_after(8))


def test_runs_that_share_their_parameters_are_noticed():
    """The control: an executor that patches one shared copy fails the test above."""
    out = torch.zeros(STEPS * COUNT)
    shared = core_testing().SharedRun(walking_chain(out)._core)
    run_in_threads(shared.run, shared.run, repeats=4)
    assert not torch.equal(out, expected_after(8))


def test_two_threads_run_one_chain_on_separate_operands():
    chain, first = sample_chain()
    _, second = sample_chain()
    other = StepChain([p.bind(**{k: second[k] for k in p.tensors}) for p in chain.plans], 3)
    run_in_threads(chain.run, other.run)
    assert digest(first) == digest(second)


def test_threads_may_record_at_once():
    """Each recording has its own sink."""
    done = []

    def record():
        for _ in range(40):
            done.append(sample_chain(SHAPE)[0].plans[2].tensor)

    run_in_threads(record, record)
    assert len(done) == 80
    assert all(torch.equal(tensor, done[0]) for tensor in done)
