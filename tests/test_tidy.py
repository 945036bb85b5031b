"""The house stays tidy: sizes of rooms and functions, no blobs, no forgotten work, a changelog."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES, FUNCTION_LINES, BLOB_BYTES = 500, 70, 100_000
GENERATED = ("_pb2.py", "_pb2.pyi")


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", pattern],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        return sorted(ROOT.glob(f"src/{pattern}")) + sorted(ROOT.glob(f"tests/{pattern}"))
    return [ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).exists()]


PYTHON = [path for path in tracked("*.py") if not path.name.endswith(GENERATED)]
SOURCES = [path for path in PYTHON if path.is_relative_to(ROOT / "src")]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_modules_and_functions_fit_their_limits(path: Path):
    text = path.read_text()

    long = [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]

    assert text.count("\n") <= MODULE_LINES
    assert long == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_every_module_says_what_it_is_for(path: Path):
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_every_module_is_imported_somewhere():
    texts = "\n".join(path.read_text() for path in PYTHON) + (ROOT / "pyproject.toml").read_text()
    lonely = [
        name(path)
        for path in SOURCES
        if path.stem not in {"__init__", "__main__"}
        and not re.search(rf"\b{path.stem}\b", texts.replace(path.read_text(), ""))
    ]

    assert lonely == []


def test_no_blobs():
    large = [name(path) for path in tracked("*") if path.stat().st_size > BLOB_BYTES]

    assert large == []


def test_unfinished_work_names_its_issue():
    mark = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b(?!\(#\d+\))")
    found = [name(path) for path in PYTHON if mark.search(path.read_text())]

    assert found == []


def test_changelog_has_an_unreleased_part():
    text = (ROOT / "CHANGELOG.md").read_text()

    assert text.startswith("# Changelog")
    assert "## [Unreleased]" in text
