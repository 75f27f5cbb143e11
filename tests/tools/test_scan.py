"""The build's scan of device code finds planted faults, and accepts what is right."""

from __future__ import annotations

from pathlib import Path

import device_table
import pytest
import scan_device_code

WAIT = "griddepcontrol.wait;"
TRIGGER = "griddepcontrol.launch_dependents;"
STORE = "st.global.v4.u32 \t[%rd1], {%r1, %r2, %r3, %r4};"


def kernel(*body: str, name: str = "kernel", target: str = "sm_90a") -> str:
    lines = "\n".join(f"\t{line}" for line in body)
    return (
        f".version 9.0\n.target {target}\n.address_size 64\n"
        f".visible .entry {name}(\n\t.param .align 8 .b8 {name}_param_0[64]\n)\n"
        f".maxntid 256\n{{\n\t.reg .pred %p<4>;\n{lines}\n\tret;\n}}\n"
    )


def facts(*body: str) -> scan_device_code.Facts:
    return scan_device_code.scan_ptx(kernel(*body))["kernel"]


def test_wait_then_trigger_then_store_is_right() -> None:
    seen = facts("ld.global.u32 %r1, [%rd1];", WAIT, TRIGGER, STORE)
    assert (seen.waits, seen.triggers, seen.broken) == (True, True, [])


def test_an_entry_without_a_wait_may_write() -> None:
    seen = facts("ld.global.nc.u32 %r1, [%rd1];", STORE)
    assert (seen.waits, seen.noncoherent_loads, seen.broken) == (False, 1, [])


def test_inline_assembly_is_read() -> None:
    assert facts("// begin inline asm", "\tgriddepcontrol.wait;", "// end inline asm").waits


def test_a_wait_in_a_comment_is_none() -> None:
    assert not facts("// griddepcontrol.wait;", "/* griddepcontrol.wait; */").waits


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        pytest.param([TRIGGER, WAIT], "before its own wait", id="trigger first"),
        pytest.param([TRIGGER], "without a wait", id="trigger alone"),
        pytest.param([WAIT, "ld.global.nc.f32 %f1, [%rd1];"], "non-coherent", id="nc load"),
        pytest.param([STORE, WAIT], "write global memory", id="store first"),
        pytest.param(["st.u32 [%rd1], %r1;", WAIT], "write global memory", id="generic store"),
        pytest.param(
            ["@%p1 st.global.u32 [%rd1], %r1;", WAIT], "write global memory", id="predicated store"
        ),
        pytest.param(
            ["red.global.add.u32 [%rd1], %r1;", WAIT], "write global memory", id="reduction"
        ),
        pytest.param(
            ["cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;", WAIT],
            "write global memory",
            id="bulk copy out",
        ),
        pytest.param(
            ["@%p1 bra $L_2;", WAIT, "$L_2:", TRIGGER],
            "before its own wait",
            id="a path around the wait",
        ),
        pytest.param(
            ["bra.uni $L_2;", "$L_1:", STORE, "bra.uni $L_3;", "$L_2:", "@%p1 bra $L_1;", WAIT,
             "$L_3:", STORE],
            "write global memory",
            id="a path back",
        ),
    ],
)  # fmt: skip
def test_planted_faults(body: list[str], rule: str) -> None:
    seen = facts(*body)
    assert any(rule in text for text in seen.broken), seen.broken


def test_a_predicated_wait_is_none() -> None:
    assert not facts(f"@%p1 {WAIT}", STORE).waits


def test_both_paths_wait() -> None:
    body = ["@%p1 bra $L_2;", WAIT, "bra.uni $L_3;", "$L_2:", WAIT, "$L_3:", STORE, TRIGGER]
    assert facts(*body).broken == []


@pytest.mark.parametrize(
    "harmless",
    [
        "st.shared.v4.u32 [%r1], {%r1, %r1, %r1, %r1};",
        "cp.async.cg.shared.global [%r1], [%rd1], 16;",
        "cp.async.commit_group;",
        "st.local.u32 [%rd1], %r1;",
        "prefetch.global.L2 [%rd1];",
    ],
)
def test_what_may_come_before_the_wait(harmless: str) -> None:
    assert facts(harmless, WAIT, TRIGGER).broken == []


def test_several_entries_are_kept_apart() -> None:
    both = scan_device_code.scan_ptx(kernel(WAIT, name="one") + kernel(STORE, name="two"))
    assert (both["one"].waits, both["two"].waits) == (True, False)


def write_image(folder: Path, texts: dict[str, str]) -> str:
    fatbin = folder / "kernel.fatbin"
    fatbin.write_bytes(b"image")
    paths = []
    for name, text in texts.items():
        paths.append(folder / name)
        paths[-1].write_text(text)
    return ";".join(["gx_none", str(fatbin), *map(str, paths)])


def test_the_table_takes_its_facts_from_modern_targets(tmp_path: Path) -> None:
    line = write_image(
        tmp_path,
        {
            "a.ptx": kernel(STORE, target="sm_80"),
            "b.ptx": kernel(WAIT, TRIGGER, STORE),
        },
    )
    image = device_table.describe(line)
    assert image["entries"] == [{"name": "kernel", "waits": True, "triggers": True}]
    assert '{"kernel", "gx_none", 0, true},' in device_table.table_cpp([image])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"a.ptx": kernel(STORE, WAIT)}, "write global memory before its wait"),
        ({"a.ptx": kernel(WAIT), "b.ptx": kernel(STORE, target="sm_100")}, "targets differ"),
        ({"a.ptx": "no ptx"}, "no .target"),
    ],
)
def test_the_table_is_refused(tmp_path: Path, texts: dict[str, str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        device_table.describe(write_image(tmp_path, texts))
