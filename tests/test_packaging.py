"""What is shipped: all sources of the compiled modules, and a wheel that works without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.tools import require_program
from trilogue.cli.compiled_modules import COMPILED_MODULES

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("src", "pyproject.toml", "setup.py", "README.md", "MANIFEST.in", "LICENSE")
COMPILED = tuple(name.removeprefix("trilogue.").replace(".", "/") for name in COMPILED_MODULES)
PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import trilogue
from trilogue.cli.doctor import findings
from trilogue.entry import walk
from trilogue.entry.kafka import record_batch
from trilogue.entry.entry import Record
from trilogue.log.journal import commit
assert trilogue.__file__.startswith(sys.argv[1]), trilogue.__file__
record = Record(0, 1, b"k", b"v", (), 0)
assert list(record_batch.iter_records(record_batch.build_batch([record]))) == [record]
states = {state for name, state in findings(Path("none")) if name.startswith("trilogue.")}
assert states in ({"compiled"}, {"plain Python"}), states
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def copy(folder: Path) -> Path:
    """Copy the sources without the files that builds leave."""
    folder.mkdir()
    ignored = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    for name in SHIPPED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=ignored)
        elif path.exists():
            shutil.copy(path, folder / name)
    return folder


def build(kind: str, source: Path, target: Path, compiler: str | None) -> Path:
    """Build as pip does, but with what is installed here: no network."""
    hook = f"from setuptools import build_meta as b; print(b.build_{kind}({str(target)!r}))"
    environment = {**os.environ, **({"CC": compiler} if compiler else {})}
    target.mkdir(exist_ok=True)
    subprocess.run(
        [sys.executable, "-c", hook], cwd=source, env=environment, check=True, capture_output=True
    )
    (made,) = target.iterdir()
    return made


def members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def compiled(names: set[str]) -> set[str]:
    """Return the modules of which there is a compiled version."""
    return {
        module for module in COMPILED for name in names
        if name.startswith(f"trilogue/{module}.") and name.endswith(".so")
    }  # fmt: skip


def test_a_wheel_without_a_compiler_is_whole_and_plain(tmp_path):
    names = members(build("wheel", copy(tmp_path / "source"), tmp_path / "wheel", "/bin/false"))

    assert compiled(names) == set()
    assert {f"trilogue/{module}.py" for module in COMPILED} <= names
    assert {"trilogue/py.typed", "pyspark_trilogue/__init__.py"} <= names


def test_a_wheel_from_a_source_distribution_is_compiled(tmp_path):
    require_program(str(sysconfig.get_config_var("CC")).split()[0])
    archive = build("sdist", copy(tmp_path / "source"), tmp_path / "sdist", None)
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()

    wheel = build("wheel", source, tmp_path / "wheel", None)

    names = members(wheel)
    assert compiled(names) == set(COMPILED)
    declared = (*COMPILED, "entry/memory", "wire/memory")
    assert {f"trilogue/{module}.pxd" for module in declared} <= names
    assert not any(name.endswith(".c") for name in names)


@pytest.mark.parametrize("compiler", [None, "/bin/false"], ids=["compiler", "no-compiler"])
def test_a_wheel_works_where_it_is_unpacked(tmp_path, compiler):
    wheel = build("wheel", copy(tmp_path / "source"), tmp_path / "wheel", compiler)
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path / "site")

    subprocess.run(
        [sys.executable, "-P", "-c", PROBE, str(tmp_path / "site")], check=True, cwd=tmp_path
    )
