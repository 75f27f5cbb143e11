"""Eager runs of a chain: repeats, streams, threads, devices, profiles."""

import threading

import pytest
import torch
from gpu_cases import SMALL, Case

from sdm_runtime import PlanError, StepChain


class BusyStreams:
    """Keeps other streams of the device at work while it is open."""

    def __init__(self, count=3):
        self._streams = [torch.cuda.Stream() for _ in range(count)]
        self._square = torch.randn(1024, 1024, device="cuda")
        torch.cuda.synchronize()

    def push(self):
        for stream in self._streams:
            with torch.cuda.stream(stream):
                for _ in range(4):
                    self._square @ self._square


@pytest.mark.parametrize("way", ["run", "graph"])
def test_a_hundred_repeats_beside_busy_streams(way):
    case = Case(SMALL)
    operands = case.fresh()
    chain = case.chain(operands, pdl=True)
    launch = chain.run if way == "run" else chain.graph().replay
    busy = BusyStreams()
    for repeat in range(100):
        busy.push()
        case.restore(operands)
        launch()
        torch.cuda.current_stream().synchronize()
        assert case.wrong(operands) == [], f"repeat {repeat}"


def test_a_given_stream_runs_the_chain():
    case = Case(SMALL)
    operands = case.fresh()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    case.chain(operands).run(stream)
    stream.synchronize()
    assert case.wrong(operands) == []
    case.restore(operands)
    torch.cuda.synchronize()
    case.chain(operands).run(stream.cuda_stream)  # its address
    stream.synchronize()
    assert case.wrong(operands) == []


def test_threads_run_chains_on_their_own_streams():
    case = Case(SMALL)
    wrong = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            operands = case.fresh()
            chain = case.chain(operands)
            for _ in range(20):
                case.restore(operands)
                chain.run()
            torch.cuda.current_stream().synchronize()
            wrong.append(case.wrong(operands))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [[], [], [], []]


def test_a_saved_chain_runs_in_another_process(tmp_path, in_new_process):
    case = Case(SMALL)
    case.chain(case.fresh()).save(tmp_path / "chain")
    in_new_process(f"""
import torch
from gpu_cases import SMALL, Case
from sdm_runtime import StepChain
case = Case(SMALL)
operands = case.fresh()
bound = {{name: tensor for name, tensor in operands.items() if name != "kpay"}}
StepChain.load({str(tmp_path / "chain")!r}).bind(**bound).run()
torch.cuda.synchronize()
print("ok" if case.wrong(operands) == [] else case.wrong(operands))
""")


def test_host_tensors_do_not_bind():
    case = Case(SMALL)
    operands = case.fresh()
    plan = case.chain(operands).plans[1]
    cpu = {name: operands[name].cpu() for name in ("d_u", "x", "d_dv")}
    with pytest.raises(PlanError, match="expected a tensor on a CUDA device, got cpu"):
        plan.bind(**cpu)


def test_replaced_memory_is_noticed():
    case = Case(SMALL)
    operands = case.fresh()
    chain = case.chain(operands)
    operands["d_dv"].data = torch.zeros_like(operands["d_dv"])
    with pytest.raises(PlanError, match="memory was replaced"):
        chain.run()


def test_a_chain_keeps_its_operands_alive():
    case = Case(SMALL)
    operands = case.fresh()
    chain = case.chain(operands)
    outputs = {name: operands[name] for name in ("grad", "bank", "d_u")}
    kept = StepChain(chain.plans, chain.steps)
    del operands, chain
    torch.cuda.empty_cache()
    noise = [torch.full((1 << 18,), 7.0, device="cuda") for _ in range(64)]
    kept.run()
    torch.cuda.synchronize()
    assert case.wrong(outputs) == []
    del noise


@pytest.mark.parametrize("profile", ["a100", "rtx"])
def test_the_portable_code_gives_the_same_bits(profile, in_new_process):
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("a GPU of the modern profile runs as another one")
    in_new_process(
        f"""
import torch
from gpu_cases import SHAPES, Case
from sdm_runtime.machine.backends import device_profile
assert device_profile(torch.device("cuda", 0)).name == {profile!r}
for shape in SHAPES:
    case = Case(shape)
    operands = case.fresh()
    chain = case.chain(operands, pdl=False)
    chain.run()
    torch.cuda.synchronize()
    assert case.wrong(operands) == [], shape
print("ok")
""",
        SDM_DEVICE_PROFILE=profile,
    )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_a_second_device():
    case = Case(SMALL)
    with torch.cuda.device(1):
        operands = case.fresh()
        chain = case.chain(operands)
    chain.run()  # the current device is another one
    torch.cuda.synchronize(1)
    assert case.wrong(operands) == []
    with pytest.raises(ValueError, match="expected a stream of cuda:1"):
        chain.run(torch.cuda.Stream(0))
    with pytest.raises(PlanError, match="expected operands on the plan's device"):
        chain.bind(**{name: x for name, x in case.fresh().items() if name != "kpay"})
