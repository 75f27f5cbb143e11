"""A device without free memory."""

FULL_DEVICE = """
import torch
from gpu_cases import SMALL, Case
from kernel_checks import differing
from sdm_runtime import StepChain

def fill_memory():
    held = []
    for size in (1 << 30, 1 << 26, 1 << 20):  # the allocator asks the driver for 2 MiB at least
        while True:
            try:
                held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                break
    return held

case = Case(SMALL)
made = [case.fresh() for _ in range(2)]
# A step of 4096 launches: a window of as many nodes, several MiB of them.
one, other = (StepChain(list(case.chain(x).plans) * 1024, SMALL.steps) for x in made)
runs = 3
for _ in range(runs):
    other.run(windowed=False)
one.run()
torch.cuda.synchronize()
held = fill_memory()
assert len(held) > 10
for _ in range(runs - 1):
    one.run()  # the second long run of a recording makes a window, if it can
torch.cuda.synchronize()
held.clear()
results = [{name: x.cpu() for name, x in operands.items()} for operands in made]
assert differing(*results) == []
assert differing(case.start, results[0]) != []  # the control: something was written
print("ok")
"""


def test_a_run_needs_no_memory_for_a_window(in_new_process):
    in_new_process(FULL_DEVICE)
