"""What comments, docstrings and pages cite is there, on the text of the files alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("csrc", "sdm_runtime", "tests", "tools", "docs", "cmake")
SUFFIXES = {".py", ".h", ".cpp", ".cu", ".cuh", ".sh", ".cmake", ".md"}

PAGE = re.compile(r"[\w./-]*\w\.md\b")
SECTION = re.compile(r"\bsections? (\d+(?:(?:, | and | to )\d+)*)", re.I)
PAGE_BEFORE = re.compile(r"([\w./-]*\w\.md)[`)\]]*, $")
STANDARDS = ("FIPS 180-4, ",)  # whose sections are not ours


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Return the text of every source file and page, by path from the root, but for this one.

    This file cites what is not there, to see it found.
    """
    paths = [p for p in ROOT.glob("*.md") if p.is_file()]
    paths += [p for folder in FOLDERS for p in sorted(ROOT.joinpath(folder).rglob("*"))]
    return {
        p.relative_to(ROOT).as_posix(): p.read_text()
        for p in paths
        if p.suffix in SUFFIXES and p.is_file() and p != Path(__file__)
    }


def page_of(name: str, citing: str, texts: dict[str, str]) -> str | None:
    """Return the page's path from the root.

    A page is cited by that path, or by its path from the citing file's folder or one above it.
    """
    for folder in PurePosixPath(citing).parents:
        path = (folder / name).as_posix()
        if path in texts:
            return path
    return None


def missing_pages(texts: dict[str, str]) -> list[str]:
    return [
        f"{citing} cites {name}"
        for citing, text in texts.items()
        for name in PAGE.findall(text)
        if page_of(name, citing, texts) is None
    ]


def one_line(citing: str, text: str) -> str:
    """Return the text without line breaks, nor the comment marks that follow them."""
    marks = "" if citing.endswith(".md") else r"(?://+ ?|# ?)?"
    return re.sub(rf"\s*\n\s*{marks}", " ", text)


def has_section(page: str, number: str) -> bool:
    return re.search(rf"^#+ {number}\. ", page, re.M) is not None


def wrong_sections(texts: dict[str, str]) -> list[str]:
    """Return the sections cited of no page, or of a page that lacks them."""
    found = []
    for citing, text in texts.items():
        line = one_line(citing, text)
        for section in SECTION.finditer(line):
            before = line[: section.start()]
            if before.endswith(STANDARDS):
                continue
            cited = PAGE_BEFORE.search(before)
            if cited:
                page = page_of(cited[1], citing, texts)
            else:
                page = citing if citing.endswith(".md") else None
            for number in re.findall(r"\d+", section[1]):
                if page is None:
                    found.append(f"{citing}: section {number} of no page")
                elif not has_section(texts[page], number):
                    found.append(f"{citing}: {page} has no section {number}")
    return found


def unlisted(texts: dict[str, str]) -> list[str]:
    """Return the pages of docs that README does not name."""
    pages = [name for name in texts if name.startswith("docs/") and name.endswith(".md")]
    return [name for name in pages if name not in texts["README.md"]]


def kernel_names(paths: Iterable[str]) -> list[str]:
    """Return the folders below csrc/kernels that have a header of their name."""
    headers = [PurePosixPath(p) for p in paths if p.startswith("csrc/kernels/")]
    return sorted(p.stem for p in headers if p.suffix == ".h" and p.stem == p.parent.name)


def glossary_names(page: str) -> list[list[str]]:
    """Return the names of every line, in order; raises for a line that is no entry."""
    _, *lines = page[page.index("\n- ") :].rstrip("\n").split("\n")
    entries = [re.fullmatch(r"- \*\*(\w[^*]*)\*\*: \S.*\.", line) for line in lines]
    broken = [line for line, entry in zip(lines, entries, strict=True) if entry is None]
    assert broken == []
    return [entry[1].split(", ") for entry in entries if entry is not None]


def misplaced(entries: list[list[str]]) -> list[str]:
    """Return what follows a later name of the alphabet, or is there twice."""
    firsts = [names[0] for names in entries]
    after = [b for a, b in pairwise(firsts) if a.lower() > b.lower()]
    every = [name for names in entries for name in names]
    return after + sorted({name for name in every if every.count(name) > 1})


def unexplained(kernels: list[str], entries: list[list[str]]) -> list[str]:
    return sorted(set(kernels) - {name for names in entries for name in names})


CONTRACT = "docs/step_chain.md"


def test_cited_pages_exist(texts: dict[str, str]) -> None:
    assert any(CONTRACT in text for name, text in texts.items() if name.startswith("csrc/"))
    assert missing_pages(texts) == []


def test_a_missing_page_is_found() -> None:
    planted = {
        "docs/there.md": "# A page",
        "csrc/DESIGN.md": "See there.md and `docs/there.md`.",
        "csrc/kernels/x.h": "// DESIGN.md; docs/there.md\n// (docs/gone.md, section 1)",
        "tests/test_x.py": '"""As DESIGN.md says."""',
    }
    assert missing_pages(planted) == [
        "csrc/DESIGN.md cites there.md",
        "csrc/kernels/x.h cites docs/gone.md",
        "tests/test_x.py cites DESIGN.md",
    ]


def test_cited_sections_exist(texts: dict[str, str]) -> None:
    cited = sum(one_line(name, text).count(f"{CONTRACT}, section ") for name, text in texts.items())
    assert cited >= 12
    assert wrong_sections(texts) == []


def test_a_missing_section_is_found() -> None:
    page = "docs/page.md"
    planted = {
        page: "# A page\n\n## 1. One\n\nSection 1, not\nsection 2.\n",
        "csrc/right.h": f"// ({page},\n// section 1); FIPS 180-4, section 4.2.2",
        "csrc/wrong.h": f"// ({page}, section 3)",
        "csrc/form.h": f"// {page} section 1",
        "tools/broken.py": f"# ({page},\n# sections 1 and 4)",
        "tools/bare.py": '"""As section 1 says."""',
    }
    assert wrong_sections(planted) == [
        f"{page}: {page} has no section 2",
        f"csrc/wrong.h: {page} has no section 3",
        "csrc/form.h: section 1 of no page",
        f"tools/broken.py: {page} has no section 4",
        "tools/bare.py: section 1 of no page",
    ]


def test_readme_names_every_page(texts: dict[str, str]) -> None:
    assert CONTRACT in texts
    assert unlisted(texts) == []
    page = "docs/page.md"
    assert unlisted({"README.md": "", page: ""}) == [page]


def test_the_glossary_has_every_kernel(texts: dict[str, str]) -> None:
    kernels, entries = kernel_names(texts), glossary_names(texts["docs/glossary.md"])
    assert {"gx_pa2", "fx_read", "bf16_linear", "quantize_rows"} <= set(kernels)
    assert unexplained(kernels, entries) == []


def test_an_unexplained_kernel_is_found() -> None:
    paths = ["csrc/kernels/gx_one/gx_one.h", "csrc/kernels/common/bf16.h"]
    paths.append("csrc/kernels/deep/gx_two/gx_two.h")
    assert kernel_names(paths) == ["gx_one", "gx_two"]
    entries = glossary_names("# Words\n\n- **gx_one**: a kernel.\n")
    assert unexplained(kernel_names(paths), entries) == ["gx_two"]


def test_the_glossary_is_in_order(texts: dict[str, str]) -> None:
    entries = glossary_names(texts["docs/glossary.md"])
    assert misplaced(entries) == []
    assert misplaced([["a"], ["C", "d"], ["b"], ["d"]]) == ["b", "d"]
    with pytest.raises(AssertionError):
        glossary_names("# Words\n\n- **one**: a word.\nand more of it\n")


RECIPES = ("Add a step kernel", "Add a row format", "Add a route")


def recipe_files(page: str, title: str) -> list[str]:
    """Return the paths that a recipe names, its new kernel being gx_gds."""
    recipe = re.split(rf"^## {title}$", page, flags=re.M)[1].split("\n## ")[0]
    return re.findall(r"`([\w.-]+/[\w./-]*)`", recipe.replace("<kernel>", "gx_gds"))


def absent(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not ROOT.joinpath(path).exists()]


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_files_that_are_there(title: str) -> None:
    page = ROOT.joinpath("CONTRIBUTING.md").read_text()
    paths = recipe_files(page, title)
    assert len(paths) >= 8
    assert absent(paths) == []


def test_a_file_that_a_recipe_invents_is_found() -> None:
    page = "## Other\n`a/b`\n## Add a route\n`csrc/<kernel>/`, `csrc/kernels`, `x`\n## Rest\n"
    assert recipe_files(page, "Add a route") == ["csrc/gx_gds/", "csrc/kernels"]
    assert absent(recipe_files(page, "Add a route")) == ["csrc/gx_gds/"]


def test_readme_links_the_recipes(texts: dict[str, str]) -> None:
    assert "[CONTRIBUTING.md](CONTRIBUTING.md)" in texts["README.md"]
    assert set(RECIPES) <= set(re.findall(r"^## (.*)$", texts["CONTRIBUTING.md"], re.M))
