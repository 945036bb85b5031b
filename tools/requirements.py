"""Print the third-party requirements of one of Trilogue's extras, a line each.

    python tools/requirements.py demo

Unlike `pip install trilogue[demo]` they can be installed while Trilogue runs from an editable
install. Extras of Trilogue that the extra names are resolved; standard library only.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
OWN_EXTRAS = "trilogue["


def requirements(extras: dict[str, list[str]], name: str) -> Iterator[str]:
    """Yield the requirements of the extra `name`; KeyError if there is no such extra."""
    for requirement in extras[name]:
        if requirement.startswith(OWN_EXTRAS):
            for extra in requirement.removeprefix(OWN_EXTRAS).rstrip("]").split(","):
                yield from requirements(extras, extra.strip())
        else:
            yield requirement


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text())["project"]
    print(*requirements(project["optional-dependencies"], sys.argv[1]), sep="\n")
