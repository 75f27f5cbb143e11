"""Print what pyproject.toml asks for, one requirement a word: to build, to run and to develop."""

from __future__ import annotations

import tomllib
from pathlib import Path


def main() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
    ]
    print(*(requirement.replace(" ", "") for requirement in wanted))


if __name__ == "__main__":
    main()
