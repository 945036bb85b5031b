"""Builds each foreign client once, by the first test that needs it; an up-to-date one stays.

Tests run side by side in several processes, which may want the same client at the same time:
the second one waits, and finds it built.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.servers.java import CLIENT_LOGGING, ROOT

from tests.tools import require, require_program

HERE = Path(__file__).parent
JAVA_LINES = HERE / "java-lines" / "Lines.java"
BUILD = ROOT / "build"
PROTOC_PYTHON = BUILD / "protoc" / "bin" / "python"
BUILD_S = 480.0
"""What the build of a client may take: it downloads its packages first."""
QUICK_START = ["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
GO = ["/usr/local/go/bin", *os.environ.get("PATH", "").split(":")]


def built(target: Path, sources: Sequence[Path], build: Callable[[], None]) -> Path:
    """`target`, which `build` makes where it is missing, older than a source, or half done."""
    target.parent.mkdir(parents=True, exist_ok=True)
    complete = target.parent / f"{target.name}.complete"
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back with the file
        if is_older(complete, sources):
            complete.unlink(missing_ok=True)
            build()
            complete.touch()
    return target


def is_older(made: Path, sources: Sequence[Path]) -> bool:
    return not made.exists() or made.stat().st_mtime < max(p.stat().st_mtime for p in sources)


def run(command: Sequence[str | Path], folder: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_S
    )
    assert done.returncode == 0, done.stderr


def classes(target: Path, sources: Sequence[Path], class_path: str, *options: str) -> Path:
    """The folder of a program in Java, compiled; log4j2.properties is in it, for who wants it."""

    def build() -> None:
        target.mkdir(exist_ok=True)
        run(["javac", "-nowarn", *options, "-cp", class_path, "-d", target, *sources])
        (target / "log4j2.properties").write_text(CLIENT_LOGGING)

    return built(target, sources, build)


def node_folder(folder: Path, target: Path) -> Path:
    """A program for Node with the packages that it names, of the sums checked in."""
    sources = sorted(each for each in folder.iterdir() if each.is_file())

    def build() -> None:
        target.mkdir(exist_ok=True)
        for source in sources:
            shutil.copy(source, target)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)

    return built(target, sources, build)


def python_environment(target: Path, *packages: str) -> Path:
    """The interpreter of an environment of its own with these packages and what they need."""

    def build() -> None:
        shutil.rmtree(target, ignore_errors=True)
        run([sys.executable, "-m", "venv", target])
        run([target / "bin" / "python", "-m", "pip", "install", "-q", *packages])

    return built(target, [Path(__file__)], build) / "bin" / "python"


def maven_jar(artifact: str) -> Path:
    """The jar of `group:name:version`, without what it needs."""
    _, name, version = artifact.split(":")
    target = BUILD / "jars" / "single"

    def build() -> None:
        copy = ["mvn", "-B", "-q", "dependency:copy", f"-DoutputDirectory={target}"]
        run([*copy, f"-Dartifact={artifact}"])

    return built(target / f"{name}-{version}.jar", [Path(__file__)], build)


def go_program(folder: Path, program: Path, package: str = ".") -> Path:
    """A program in Go with the packages that it names, of the sums checked in; `folder` is its
    module, `package` where it stands there."""

    def build() -> None:
        tool = go()
        assert tool is not None
        run([tool, "build", "-buildvcs=false", "-o", program, package], folder)

    return built(program, [*folder.rglob("*.go"), folder / "go.mod"], build)


def require_go(needed: tuple[int, int]) -> None:
    require(f"go-{needed[0]}.{needed[1]}", found=go(needed))


def go(needed: tuple[int, int] = (1, 0)) -> str | None:
    """A Go that is new enough."""
    tool = shutil.which("go", path=":".join(GO))
    if tool is None:
        return None
    output = subprocess.run([tool, "env", "GOVERSION"], capture_output=True, text=True, check=True)
    version = output.stdout.strip().removeprefix("go").split(".")
    return tool if tuple(int(part) for part in version[:2]) >= needed else None


def rust_program(folder: Path, target: Path) -> Path:
    """A program in Rust with the crates of its lock file; minutes, where nothing is built yet.

    Crates that compile Protobuf files want `protoc`: that of grpcio-tools will do.
    """
    sources = [*folder.glob("Cargo.*"), *(folder / "src").iterdir()]

    def build() -> None:
        target.mkdir(exist_ok=True)
        compiler = target / "protoc"
        compiler.write_text(f'#!/bin/sh\nexec "{PROTOC_PYTHON}" -m grpc_tools.protoc "$@"\n')
        compiler.chmod(0o755)
        manifest = folder / "Cargo.toml"
        command = ["cargo", "build", "-q", "--locked", "--manifest-path", manifest]
        places = {"CARGO_TARGET_DIR": str(target), "PROTOC": str(compiler)}
        done = subprocess.run(
            command, env=os.environ | places, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    return built(target, sources, build) / "debug" / folder.name


def require_rust() -> None:
    """The compiler, and the environment of `make proto`."""
    require_program("cargo")
    require("protoc", found=PROTOC_PYTHON.exists())
