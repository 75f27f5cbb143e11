"""Which plans of two chains are compared: same kernels in order, found in about linear time."""

import random
import sys
from itertools import pairwise

import pytest
from inspect_cases import chain_file, cuda_plans

from sdm_runtime.inspect.commands.diff import diff
from sdm_runtime.inspect.commands.pairing import pair_in_order
from sdm_runtime.inspect.reading.files import decode

CYCLE = ["gx_gwr", "gx_gemm", "gx_pa2", "gx_gds"]


def pairs_of(a, b):
    """The pairs, which are in order and of equal names."""
    pairs = pair_in_order(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    for (i, j), (i_next, j_next) in pairwise(pairs):
        assert i < i_next
        assert j < j_next
    return pairs


def most_in_common(a, b):
    """The length of a longest common subsequence."""
    best = [0] * (len(b) + 1)
    for x in a:
        row = [0]
        for j, y in enumerate(b):
            row.append(best[j] + 1 if x == y else max(best[j + 1], row[j]))
        best = row
    return best[-1]


def test_what_is_left_out_or_put_in_moves_no_other_pair():
    whole = CYCLE * 5
    for a, b in [(whole, whole), (whole, whole[1:]), (whole[:-1], whole), (["gx_gemm"], whole)]:
        assert len(pairs_of(a, b)) == min(len(a), len(b))
    changed = ["gx_gemm", *whole[:9], "gx_gds", *whole[10:], "gx_pa2", "gx_pa2"]
    pairs = pairs_of(whole, changed)
    assert [i for i, _ in pairs] == [*range(9), *range(10, 20)]
    assert {j - i for i, j in pairs} == {1}
    assert pairs_of(whole, []) == pairs_of([], whole) == pairs_of(["x"], ["y"]) == []


def test_nothing_that_can_be_paired_is_left_over():
    random.seed(5)
    for _ in range(300):
        a, b = (random.choices(CYCLE, k=random.randrange(20)) for _ in range(2))
        assert len(pairs_of(a, b)) == most_in_common(a, b)


def test_of_many_differences_most_is_paired():
    random.seed(6)
    whole = CYCLE * 60
    for _ in range(5):
        a, b = ([name for name in whole if random.random() < 0.6] for _ in range(2))
        assert len(pairs_of(a, b)) > 0.9 * most_in_common(a, b)


def lines_run(work):
    """How many lines of Python it runs: what it takes, whatever else the machine does."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def shuffled(names):
    return random.Random(3).sample(names, len(names))


CHAINS = {
    "one kernel": lambda n: ([0] * n, [0] * (n - 1)),
    "one kernel, after another": lambda n: ([0] * n + [1], [2] + [0] * n),
    "in another order": lambda n: ([0, 1, 2, 3] * (n // 4), shuffled([0, 1, 2, 3] * (n // 4))),
    "in turns": lambda n: ([0, 1] * (n // 2), [1, 0, 0] * (n // 3)),
    "nothing in common": lambda n: ([0] * n, [1] * n),
}


@pytest.mark.parametrize("kinds", CHAINS.values(), ids=CHAINS)
def test_four_times_the_plans_take_about_four_times_the_work(kinds):
    plans = cuda_plans()
    work = []
    for count in (240, 960):
        a, b = (decode(chain_file([plans[kind] for kind in of])) for of in kinds(count))
        work.append(lines_run(lambda a=a, b=b: diff(a, b)))
    assert work[1] < 6 * work[0]  # comparing every two of them: 16 times


def test_the_count_of_lines_tells_a_square():
    def square(n):
        for _ in range(n):
            for _ in range(n):
                pass

    assert lines_run(lambda: square(400)) > 12 * lines_run(lambda: square(100))
