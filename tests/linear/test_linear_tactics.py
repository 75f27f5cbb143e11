"""The tactic table and the pick, as pure functions; the generated device code is current."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from sdm_runtime import _core
from sdm_runtime.linear.launch import pick, tactics

ROOT = Path(__file__).resolve().parents[2]
SHAPES = [(m, n, k) for m in (1, 8, 9, 64, 129, 500) for n in (1, 1024, 11008) for k in (8, 2048)]


def load_generator():
    path = ROOT / "tools/gen/bf16_linear.py"
    spec = importlib.util.spec_from_file_location("bf16_linear_generator", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("shape", SHAPES)
def test_pick_is_the_smallest_tile_and_splits_while_its_blocks_pay(shape):
    m, n, k = shape
    choice = pick(shape, 132)
    tactic = tactics()[choice.index]
    tile = min(t["tokens"] for t in tactics() if t["tokens"] >= min(m, 128))
    assert choice.index == [t["tokens"] for t in tactics()].index(tile)
    blocks = _core.bf16_linear_blocks(m, n, k, choice.index, choice.splits)
    assert blocks == -(-n // tactic["rows"]) * -(-m // tile) * choice.splits
    tiles = -(-k // tactic["depth"])
    pay = [s for s in tactic["splits"] if s <= tiles and blocks // choice.splits * s * s <= 2 * 132]
    assert choice.splits == max(pay, default=1)


@pytest.mark.parametrize(("n", "splits"), [(1024, 4), (2048, 2), (4096, 2), (6144, 1), (11008, 1)])
def test_pick_has_the_splits_that_were_measured_to_be_the_fastest(n, splits):
    assert pick((1, n, 4096), 132).splits == splits


def test_pick_follows_the_number_of_sms():
    assert pick((1, 4096, 4096), 132).splits == 2
    assert pick((1, 4096, 4096), 66).splits == 1
    assert pick((1, 4096, 4096), 528).splits == 4


def test_the_table_of_tactics_fits_a_block():
    entries = [t["entry"] for t in tactics()]
    assert len(set(entries)) == len(entries)
    for tactic in tactics():
        assert tactic["shared_bytes"] <= 227 * 1024
        assert tactic["rows"] in (64, 128)
        assert tactic["depth"] % 64 == 0


# Unequal shares take more memory than these leave beside their rings.
NO_ROOM = {"bf16_linear_r128_t64_k128_s4": {5, 6, 7}, "bf16_linear_r64_t128_k64_s8": {7}}


def test_splits_are_all_that_fit_a_cluster_and_the_exchange():
    for tactic in tactics():
        cluster = set(range(1, 8 // tactic["sharers"] + 1))
        assert set(tactic["splits"]) == cluster - NO_ROOM.get(tactic["entry"], set())


def test_memory_for_unequal_shares_costs_no_resident_block():
    """Two blocks share an SM wherever the rings and equal shares let them."""
    for t in tactics():
        rings = 2 * t["depth"] * (t["rows"] * t["stages"] + t["tokens"] * t["token_stages"])
        barriers = 8 * (2 * t["stages"] + 2 * t["token_stages"] + 2)
        fits_half = rings + barriers <= 113 * 1024
        assert (t["shared_bytes"] <= 113 * 1024) == fits_half


def test_generated_code_is_current():
    command = [sys.executable, str(ROOT / "tools/gen/bf16_linear.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0


def test_generator_reads_the_table_that_was_compiled(monkeypatch, tmp_path):
    generator = load_generator()
    table = generator.read_tactics((generator.FOLDER / "bf16_linear_tactics.h").read_text())
    assert [generator.kernel_name(row) for row in table] == [t["entry"] for t in tactics()]
    monkeypatch.setattr(generator, "WGMMA", tmp_path / "wgmma.cuh")  # missing, so not current
    monkeypatch.setattr(generator, "ROOT", Path("/"))
    monkeypatch.setattr(sys, "argv", ["gen", "--check"])
    assert generator.main() == 1
