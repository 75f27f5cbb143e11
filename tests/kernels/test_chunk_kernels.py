"""The chunk kernels' host twins against dense float64 formulas and autograd."""

from __future__ import annotations

from pathlib import Path

import chunk_reference as reference
import pytest
import torch
from chunk_cases import (
    BF16,
    CASES,
    F32,
    POISON,
    ChunkCase,
    chain_outputs,
    chunk_inputs,
    chunk_order,
    gradient_inputs,
    gradient_outputs,
    poisoned,
    prepare_outputs,
    sizes,
)

from sdm_runtime import _core
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.chunks import chunk_kernels
from sdm_runtime.ops.chunks.chunk_kernels import EventOrder
from sdm_runtime.ops.chunks.records import ChainRecords

FIRST, LAST, INVALID = 1 << 31, 1 << 30, 1 << 17
_PA2 = torch.load(Path(__file__).parents[1] / "data" / "pa2_steps.pt", weights_only=True)


def sorted_events(case: ChunkCase, inputs: dict) -> EventOrder:
    return EventOrder(**chunk_order(case, inputs))


def prepare(case: ChunkCase, inputs: dict, order: EventOrder | None = None):
    """The events, and the chain's operands."""
    events, chain, _ = prepare_all(case, inputs, order)
    return events, chain


def prepare_all(case: ChunkCase, inputs: dict, order: EventOrder | None = None):
    """The same and the operands of the forward's steps."""
    geometry, segment = sizes(case)
    order = sorted_events(case, inputs) if order is None else order
    chain = chain_outputs(case)
    out = prepare_outputs(case)
    events, steps = chunk_kernels.prepare_chunks(
        Inputs(**inputs, v=torch.empty(0)),
        geometry,
        segment,
        order,
        BF16 if case.bf16_weights else F32,
        ChainRecords(events=out["events"], **chain),
    )
    return events, chain, steps


@pytest.mark.parametrize("name", CASES)
def test_staged_factors_may_be_left_out(name: str) -> None:
    case = CASES[name]
    inputs, order = chunk_inputs(case), sorted_events(case, chunk_inputs(case))
    events, chain = prepare(case, inputs, order)
    without = {**chain_outputs(case), "events": prepare_outputs(case)["events"], "cpe": None}
    given = Inputs(**inputs, v=torch.empty(0)), *sizes(case), order
    dtype = BF16 if case.bf16_weights else F32
    chunk_kernels.prepare_chunks(*given, dtype, ChainRecords(**without))
    wanted = {**chain, "events": events.events}
    for key in wanted.keys() - {"cpe"}:
        assert torch.equal(without[key].view(torch.uint8), wanted[key].view(torch.uint8)), key


@pytest.mark.parametrize("name", CASES)
def test_operands_of_the_forwards_steps(name: str) -> None:
    """Rows, -keff, qeff, pd and cpe, with the chain's records and without."""
    case = CASES[name]
    inputs, order = chunk_inputs(case), sorted_events(case, chunk_inputs(case))
    _, chain, steps = prepare_all(case, inputs, order)
    dtype = BF16 if case.bf16_weights else F32
    given = Inputs(**inputs, v=torch.empty(0)), *sizes(case), order
    alone = chunk_kernels.prepare_chunks(*given, dtype)[1]
    assert all(torch.equal(x, y) for x, y in zip(alone, steps, strict=True))
    assert torch.equal(steps.updates[..., [0, 1, 3]], chain["rec"][..., [0, 1, 3]])
    for n in range(case.chunks):
        of = reference.chunk(case, inputs, n)
        values = {k: x.detach() for k, x in reference.chain_values(of).items()}
        entries = steps.row_weights[n * case.C : (n + 1) * case.C]
        slots, weights = entries[..., 0], entries[..., 1].contiguous().view(F32)
        for part, kind, exact in (
            (slice(None, case.W), of.writes, -values["keff"]),
            (slice(case.W, None), of.reads, values["qeff"]),
        ):
            valid = kind.slot.numel()
            assert torch.equal(slots[:, part].flatten()[:valid].long(), kind.slot)
            assert close(weights[:, part].flatten()[:valid], exact)
            assert (slots[:, part].flatten()[valid:] == -1).all()
            nothing = weights[:, part].flatten()[valid:]
            assert not nothing.any()
            assert nothing.signbit().all()
        words = steps.updates[n, :, 0]
        place = (words >> 9 & 0xFF) * case.W + (words & 0xFF)
        pd = chain["pd"].view(case.chunks, -1)[n]
        assert torch.equal(steps.updates[n, :, 2].contiguous().view(F32), pd[place])


def close(given: torch.Tensor, exact: torch.Tensor, limit: float = 3e-7) -> bool:
    scale = exact.abs().max().item() if exact.numel() else 0.0
    return bool(((given.double() - exact).abs() <= limit * (exact.abs() + scale) + 1e-30).all())


def bits(words: torch.Tensor) -> list[int]:
    return [w & 0xFFFFFFFF for w in words.flatten().tolist()]


def expected_words(entries: reference.Entries, case: ChunkCase, width: int):
    """The sorted entries' (staged place, record word), and whether each opens a group."""
    keys = list(zip(entries.slot, entries.token, entries.index, strict=True))
    order = sorted(range(len(keys)), key=lambda i: tuple(int(x) for x in keys[i]))
    words, opens = [], []
    for place, i in enumerate(order):
        slot, token, index = (int(x) for x in keys[i])
        slots = [int(keys[j][0]) for j in order]
        number = place - slots.index(slot)
        last = number == slots.count(slot) - 1
        word = FIRST * (number == 0) | LAST * last | min(number, 4095) << 18 | token << 9 | index
        words.append((token * width + index, word))
        opens.append(number == 0)
    for token in range(len(keys) // width, case.C):
        for index in range(width):
            word = FIRST | LAST | INVALID | token << 9 | index
            words.append((token * width + index, word))
            opens.append(False)
    return words, opens


@pytest.mark.parametrize("name", CASES)
def test_records_are_those_of_the_reference(name: str) -> None:
    case = CASES[name]
    inputs = chunk_inputs(case)
    _, chain = prepare(case, inputs)
    for n in range(case.chunks):
        of = reference.chunk(case, inputs, n)
        words, opens = expected_words(of.writes, case, case.W)
        assert bits(chain["rec"][n, :, 0]) == [w for _, w in words]
        counts = [sum(opens[: 32 * b]) for b in range(-(-len(opens) // 32) + 1)]
        assert chain["bpre"][n].tolist() == counts
        read_words, _ = expected_words(of.reads, case, case.R)
        assert bits(chain["qrec"][n, :, 0]) == [w for _, w in read_words]
        assert not chain["qrec"][n, :, 3].any()
        check_numbers(case, inputs, chain, n, of, [p for p, _ in words], [p for p, _ in read_words])


def check_numbers(case, inputs, chain, n, of, places, read_places) -> None:
    """Rows, weights and decays, staged and in the records; zeros (cpe: ones) for padding."""
    values = {k: x.detach() for k, x in reference.chain_values(of).items()}
    valid, rows = of.writes.slot.numel(), slice(n * case.C, (n + 1) * case.C)
    tokens = of.tokens.stop - of.tokens.start
    beta = inputs["beta"][of.sequence, of.tokens, 0].double()
    assert close(chain["beta"][rows][:tokens], beta)
    assert not chain["beta"][rows][tokens:].any()
    for key, exact, rest in (("pd", values["pd"], 0), ("cpe", values["cpe"], 1)):
        flat = chain[key][rows].flatten()
        assert close(flat[:valid], exact)
        assert (flat[valid:] == rest).all()
    slots = chain["slots"][rows].flatten()
    assert torch.equal(slots[:valid].long(), of.writes.slot)
    assert (slots[valid:] == -1).all()
    assert chain["pd"][rows].flatten()[valid:].signbit().all()
    rec, qrec = chain["rec"][n], chain["qrec"][n]
    at = torch.tensor(places[:valid], dtype=torch.int64)
    assert torch.equal(rec[:valid, 1].long(), of.writes.slot[at])
    scale = -beta[of.writes.token] * values["keff"]
    assert close(rec[:valid, 2].contiguous().view(F32), scale[at])
    assert close(rec[:valid, 3].contiguous().view(F32), values["cpe"][at])
    padding = rec[valid:, 1:]
    assert not padding[:, :2].any()
    assert (padding[:, 2].contiguous().view(F32) == 1).all()
    reads = of.reads.slot.numel()
    at = torch.tensor(read_places[:reads], dtype=torch.int64)
    assert torch.equal(qrec[:reads, 1].long(), of.reads.slot[at])
    assert close(qrec[:reads, 2].contiguous().view(F32), values["qeff"][at])
    assert not qrec[reads:, 1:].any()


@pytest.mark.parametrize("name", CASES)
def test_pair_matrices_are_those_of_the_reference(name: str) -> None:
    case = CASES[name]
    inputs = chunk_inputs(case)
    events, _ = prepare(case, inputs)
    pairs = chunk_kernels.pair_matrices(events, sizes(case)[0], with_a=True)
    assert pairs.a is not None
    for n in range(case.chunks):
        of = reference.chunk(case, inputs, n)
        assert close(pairs.a[n], of.a.detach())
        assert close(pairs.qk[n], of.qk.detach())
    assert torch.equal(pairs.system, events.beta.view(case.chunks, -1, 1) * pairs.a)
    without = chunk_kernels.pair_matrices(events, sizes(case)[0], with_a=False)
    assert without.a is None
    assert torch.equal(without.system, pairs.system)
    assert torch.equal(without.qk, pairs.qk)


@pytest.mark.parametrize("name", CASES)
def test_places_mark_the_events_that_look_for_partners(name: str) -> None:
    """An event does if a token wrote its slot before, and it stands first of its token's."""
    case = CASES[name]
    inputs = chunk_inputs(case)
    events, _ = prepare(case, inputs)
    paired = events.places >= 0
    places = torch.where(paired, events.places, ~events.places)
    order = chunk_order(case, inputs)["order"].long()
    assert torch.equal(places.long().gather(1, order), torch.arange(case.events).expand_as(order))
    for n in range(case.chunks):
        of = reference.chunk(case, inputs, n)
        entries = []
        for kind, part in enumerate((of.writes, of.reads)):
            columns = (part.token.tolist(), part.index.tolist(), part.slot.tolist())
            entries += [
                (token, kind, index, slot) for token, index, slot in zip(*columns, strict=True)
            ]
        wanted = torch.zeros(case.events, dtype=torch.bool)
        runs: set[tuple[int, int, int]] = set()
        first_writer: dict[int, int] = {}
        for token, kind, index, slot in sorted(entries):
            place = token * (case.W + case.R) + kind * case.W + index
            written = first_writer.get(slot, case.C) < token + kind
            wanted[place] = written and (slot, token, kind) not in runs
            runs.add((slot, token, kind))
            if kind == 0:
                first_writer.setdefault(slot, token)
        assert torch.equal(paired[n], wanted)


def shared_totals(case: ChunkCase, of: reference.Chunk, totals: torch.Tensor) -> None:
    """Give all writes of a slot the d_total of its first, in place."""
    flat = totals.view(-1)
    for slot in of.writes.slot.unique():
        same = (of.writes.slot == slot).nonzero().squeeze(1)
        flat[same] = flat[same[0]].clone()


@pytest.mark.parametrize("name", CASES)
def test_chunk_gradients_are_those_of_the_reference(name: str) -> None:
    case = CASES[name]
    geometry, segment = sizes(case)
    inputs, given, out = chunk_inputs(case), gradient_inputs(case), gradient_outputs(case)
    events, chain = prepare(case, inputs)
    chunks = [reference.chunk(case, inputs, n) for n in range(case.chunks)]
    for n, of in enumerate(chunks):
        shared_totals(case, of, given["d_total"][n * case.C : (n + 1) * case.C])
    chunk_kernels.weight_gradients(
        events.events,
        geometry,
        segment,
        chain["beta"],
        given["d_m"],
        given["d_qk"],
        chunk_kernels.RowDots(*(given[k] for k in ("dpd", "dkeff", "d_total", "dqeff"))),
        chunk_kernels.WeightGradients(out["dk"], out["dq"], out["dg"]),
        chunk_kernels.WeightTerms(out["terms"], out.get("gates")),
    )
    limit = 3e-7 if case.values == F32 else 4e-3
    for n, of in enumerate(chunks):
        rows = slice(n * case.C, (n + 1) * case.C)
        dots = {}
        for key in ("dpd", "dkeff", "d_total", "dqeff"):
            count = (of.reads if key == "dqeff" else of.writes).slot.numel()
            dots[key] = given[key][rows].flatten()[:count]
        d_a = -chain["beta"][rows].double().unsqueeze(1) * given["d_m"][n]
        wanted = reference.gradients(of, d_a, given["d_qk"][n], dots)
        for key, exact in wanted.items():
            got = out[key][of.sequence, of.tokens]
            assert close(got, exact.view(got.shape), limit), key


@pytest.mark.parametrize("hd", [1, 30, 128, 130])
def test_token_gradients_are_those_of_the_reference(hd: int) -> None:
    case = ChunkCase(P=2, T=37, first_step=1)
    _, segment = sizes(case)
    d_u, innovation = torch.randn(2, case.chunks, case.C, hd).unbind(0)
    beta = torch.randn(case.chunks, case.C)
    dv, dbeta = poisoned((2, 37, hd), F32), poisoned((2, 37, 1), F32)
    chunk_kernels.token_gradients(segment, d_u, innovation, beta, dv, dbeta)
    for n in range(case.chunks):
        tokens = slice((1 + n // 2) * case.C, min((2 + n // 2) * case.C, case.T))
        rows = slice(tokens.stop - tokens.start)
        assert torch.equal(dv[n % 2, tokens], (beta[n].unsqueeze(1) * d_u[n])[rows])
        exact = (d_u[n].double() * innovation[n].double()).sum(1)[rows]
        assert close(dbeta[n % 2, tokens, 0], exact, 1e-6)
    assert dv[:, : case.C].isnan().all()


@pytest.mark.parametrize("values", [F32, BF16])
@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_token_gradients_of_heads_beside_each_other(heads: int, values: torch.dtype) -> None:
    """The same values in the other layout."""
    case, hd = ChunkCase(P=6, T=37, first_step=1), 36
    _, segment = sizes(case)
    d_u, innovation = torch.randn(2, case.chunks, case.C, hd).unbind(0)
    beta = torch.randn(case.chunks, case.C)
    apart, beside = poisoned((6, 37, hd), values), poisoned((6 // heads, 37, heads, hd), values)
    dbeta, other = poisoned((6, 37, 1), values), poisoned((6, 37, 1), values)
    chunk_kernels.token_gradients(segment, d_u, innovation, beta, apart, dbeta)
    chunk_kernels.token_gradients(segment, d_u, innovation, beta, beside, other)
    by_sequence = beside.transpose(1, 2).flatten(0, 1)
    assert torch.equal(by_sequence[:, case.C :], apart[:, case.C :])
    assert torch.equal(other[:, case.C :], dbeta[:, case.C :])
    assert by_sequence[:, : case.C].isnan().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dv": (4, 37, 8)}, "dbeta: expected float32 [4, 37, 1]"),
        ({"dv": (3, 37, 3, 8)}, "dbeta: expected float32 [9, 37, 1]"),
        ({"dv": (3, 37, 2, 9)}, "dv: expected float32 [B, T, H, 8]"),
        ({"dv": (37, 6, 9)}, "dv: expected float32 [P, T, 8]"),
        ({"dv": (6 * 37, 8)}, "dv: expected float32 [P, T, 8]"),
        ({"dv": (3, 37, 0, 8), "dbeta": (0, 37, 1)}, "num_parallel: expected at least 1, got 0"),
        ({"dv": (5, 37, 1, 8), "dbeta": (5, 37, 1)}, "num_parallel: expected"),
        ({"dv": (3, 74, 2, 8), "dbeta": (6, 37, 1)}, "dbeta: expected float32 [6, 74, 1]"),
    ],
)
def test_wrong_arguments_of_token_gradients(change: dict, message: str) -> None:
    case = ChunkCase(P=6, T=37, first_step=1)
    _, segment = sizes(case)
    rows = torch.zeros(case.chunks, case.C, 8)
    shapes = {"dv": (3, 37, 2, 8), "dbeta": (6, 37, 1)} | change
    out = [poisoned(shapes[name], F32) for name in ("dv", "dbeta")]
    beta = torch.zeros(case.chunks, case.C)
    with pytest.raises(ValueError, match="token_gradients") as caught:
        chunk_kernels.token_gradients(segment, rows, rows, beta, *out)
    assert f"[token_gradients] {message}" in str(caught.value)
    assert all(x.isnan().all() for x in out)


def test_token_gradients_take_contiguous_rows() -> None:
    case = ChunkCase(P=6, T=37)
    rows, beta = torch.zeros(case.chunks, case.C, 8), torch.zeros(case.chunks, case.C)
    strided = poisoned((3, 2, 37, 8), F32).transpose(1, 2)
    given = sizes(case)[1], rows, rows, beta, strided, poisoned((6, 37, 1), F32)
    with pytest.raises(ValueError, match=r"\[token_gradients\] dv: expected a contiguous tensor"):
        chunk_kernels.token_gradients(*given)
    assert strided.isnan().all()


def test_the_comparisons_can_fail() -> None:
    case = CASES["plain"]
    inputs = chunk_inputs(case)
    events, _ = prepare(case, inputs)
    a = chunk_kernels.pair_matrices(events, sizes(case)[0], with_a=True).a
    assert a is not None
    exact = reference.chunk(case, inputs, 0).a.detach()
    assert close(a[0], exact)
    assert not close(a[0] * (1 + 1e-6), exact)


@pytest.mark.parametrize("name", _PA2)
def test_records_equal_recorded_ones(name: str) -> None:
    before = _PA2[name]["before"]
    kpay, rec, bpre = before["kpay"], before["rec"], before["bpre"]
    word = kpay.long() & 0xFFFFFFFF
    token, column, valid = (word >> 9) & 255, word & 255, (word >> 17) & 1 == 0
    chunk, width = int(token.max()) + 1, int(column.max()) + 1
    entry = token * width + column
    rows = torch.empty_like(rec[..., 1]).scatter_(1, entry, rec[..., 1]).view(-1, chunk, width)
    alive = torch.empty_like(valid).scatter_(1, entry, valid).view(-1, chunk, width)[..., 0]
    for n in range(rows.shape[0]):
        tokens = int(alive[n].sum())
        k_idx = rows[n : n + 1, :tokens]
        case = ChunkCase(P=1, T=tokens, C=chunk, W=width, R=1, S=int(k_idx.max()) + 1)
        ones = torch.ones(1, tokens, 1)
        inputs = {
            "k_idx": k_idx,
            "q_idx": k_idx[..., :1].contiguous(),
            "k_val": torch.ones(k_idx.shape),
        }
        _, chain = prepare(case, inputs | {"q_val": ones, "beta": ones, "g": -ones})
        assert torch.equal(chain["rec"][0, :, 0], kpay[n])
        assert torch.equal(chain["bpre"][0], bpre[n])


def test_the_distance_saturates() -> None:
    case = ChunkCase(P=1, T=32, C=32, W=256, R=1, S=1, repeats=True)
    _, chain = prepare(case, chunk_inputs(case))
    words = bits(chain["rec"][..., 0])
    distance = [(w >> 18) & 4095 for w in words]
    assert distance[:4096] == list(range(4096))
    assert set(distance[4096:]) == {4095}
    assert [i for i, w in enumerate(words) if w & FIRST] == [0]
    assert [i for i, w in enumerate(words) if w & LAST] == [8191]


def test_a_nan_gate_stays_with_its_slot() -> None:
    case = ChunkCase(P=1, T=16, S=6, gates=3)
    inputs = chunk_inputs(case)
    inputs["g"][0, 3, 1] = torch.nan
    slot = inputs["k_idx"][0, 3, 1]
    _, chain = prepare(case, inputs)
    assert torch.equal(chain["cpe"].isnan(), inputs["k_idx"][0] == slot)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sorted_slots": torch.Tensor.long}, TypeError, "sorted_slots: expected int32 [6, 112]"),
        (
            {"sorted_slots": lambda x: x[:, 1:]},
            ValueError,
            "sorted_slots: expected int32 [6, 112]",
        ),
        ({"order": torch.Tensor.long}, TypeError, "order: expected int32 [6, 112], got int64"),
        ({"order": lambda x: x[:, 1:]}, ValueError, "order: expected int32 [6, 112]"),
        ({"beta": lambda x: x[1:]}, ValueError, "beta_rows: expected float32 with 96 elements"),
    ],
)
def test_wrong_arguments_of_chunk_prepare(change: dict, error: type, message: str) -> None:
    case = ChunkCase()
    geometry, segment = sizes(case)
    inputs, found = chunk_inputs(case), chunk_order(case, chunk_inputs(case))
    order = EventOrder(**{k: change.get(k, lambda x: x)(x) for k, x in found.items()})
    chain = chain_outputs(case)
    chain["beta"] = change.get("beta", lambda x: x)(chain["beta"])
    records = ChainRecords(events=prepare_outputs(case)["events"], **chain)
    given = Inputs(**inputs, v=torch.empty(0))
    with pytest.raises(error) as caught:
        chunk_kernels.prepare_chunks(given, geometry, segment, order, F32, records)
    assert f"[chunk_prepare] {message}" in str(caught.value)
    assert all((x == POISON).all() for x in records if x is not None and x.dtype == torch.int32)


def test_wrong_arguments_of_pair_matrices() -> None:
    case = ChunkCase()
    events, _ = prepare(case, chunk_inputs(case))
    with pytest.raises(ValueError, match=r"\[pair_matrices\] beta_rows: expected"):
        chunk_kernels.pair_matrices(
            events._replace(beta=events.beta[1:]), sizes(case)[0], with_a=True
        )
    operands = {"events": events.events, "places": events.places, "beta_rows": events.beta}
    shape = (case.chunks, case.C, case.C)
    operands |= {name: torch.zeros(shape) for name in ("a", "system", "qk")}
    for name in ("a", "system", "qk"):
        wrong = operands | {name: torch.zeros(shape, dtype=torch.float64)}
        with pytest.raises(TypeError, match=rf"\[pair_matrices\] {name}: expected float32"):
            chunk_kernels._launch(_core.pair_matrices, wrong, case.W)
