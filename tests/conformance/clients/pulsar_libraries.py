"""The foreign Pulsar libraries: how each is built, started, and what it has no words for."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cached_property
from pathlib import Path

import pytest
from tests.conformance.clients.pulsar import Driver, Process, PulsarLibrary
from tests.conformance.clients.pulsar_python import InProcess
from tests.tools import require, require_program, require_pulsar_jars
from tools.servers.java import CLIENT_LOGGING, OPENED, ROOT, jars
from tools.servers.pulsar import VERSION

HERE = Path(__file__).parent
BUILD = ROOT / "build" / "pulsar-clients"
QUICK_START = ["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m"]
GO = ["/usr/local/go/bin", *os.environ.get("PATH", "").split(":")]
GO_NEEDED = (1, 25)  # the client's own go.mod


class PulsarPython:
    """PyPI's pulsar-client: C++ underneath."""

    name = "python"
    cannot = frozenset(
        {"retry", "receipts", "avro", "auto", "null", "events", "ended", "later topics"}
    )  # its patterns look again after half a minute, whatever period is asked for

    def require(self) -> None:
        pass

    @cached_property
    def driver(self) -> Driver:
        return InProcess()

    def stop(self) -> None:
        pass


class Program:
    """A library whose driver is a program of its own."""

    def __init__(self) -> None:
        self._driver: Process | None = None

    def command(self) -> list[str | Path]:
        raise NotImplementedError

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            self._driver = Process(self.command())
        return self._driver

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.stop()
            self._driver = None


class PulsarJava(Program):
    """org.apache.pulsar:pulsar-client, compiled against the jars of `make jars`."""

    name = "java"
    cannot = frozenset[str]()

    def require(self) -> None:
        require_pulsar_jars(VERSION)
        require_program("javac")

    def command(self) -> list[str | Path]:
        path = f"{jars(f'pulsar-{VERSION}')}/*"
        source = HERE / "java-pulsar" / "Driver.java"
        classes = BUILD / f"java-{VERSION}"
        if is_older(classes / "Driver.class", [source]):
            classes.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                ["javac", "-nowarn", "-XDignore.symbol.file", "-cp", path, "-d", classes, source],
                check=True, capture_output=True,
            )  # fmt: skip
        logging = classes / "log4j2.properties"
        logging.write_text(CLIENT_LOGGING)
        options = [*QUICK_START, "-XX:MaxDirectMemorySize=384m", "-Djava.net.preferIPv4Stack=true"]
        options += [f"-Dlog4j2.configurationFile={logging}"]
        options += ["-Dio.netty.tryReflectionSetAccessible=true"]
        options += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
        return ["java", *options, "-cp", f"{classes}:{path}", "Driver"]


class PulsarGo(Program):
    """github.com/apache/pulsar-client-go, built from go-pulsar/ with the sums checked in."""

    name = "go"
    cannot = frozenset(
        {
            "redeliver",
            "sequence",
            "fencing",
            "auto",
            "null",
            "ended",
            "ends",
            "late views",
        }
    )

    def require(self) -> None:
        require_go(GO_NEEDED)

    def command(self) -> list[str | Path]:
        return [go_program(HERE / "go-pulsar", BUILD / "go")]


def require_go(needed: tuple[int, int]) -> None:
    require(f"go-{needed[0]}.{needed[1]}", found=go(needed))


def go_program(folder: Path, program: Path) -> Path:
    """Build it, if its sources are newer."""
    if is_older(program, [*folder.glob("*.go"), folder / "go.mod"]):
        program.parent.mkdir(parents=True, exist_ok=True)
        tool = go()
        assert tool is not None
        done = subprocess.run(
            [tool, "build", "-buildvcs=false", "-o", program, "."],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return program


def go(needed: tuple[int, int] = GO_NEEDED) -> str | None:
    """A Go that is new enough."""
    tool = shutil.which("go", path=":".join(GO))
    if tool is None:
        return None
    said = subprocess.run([tool, "env", "GOVERSION"], capture_output=True, text=True, check=True)
    version = said.stdout.strip().removeprefix("go").split(".")
    return tool if tuple(int(part) for part in version[:2]) >= needed else None


def is_older(made: Path, sources: list[Path]) -> bool:
    return not made.exists() or made.stat().st_mtime < max(p.stat().st_mtime for p in sources)


PYTHON, JAVA, GO_CLIENT = PulsarPython(), PulsarJava(), PulsarGo()
ALL: list[PulsarLibrary] = [PYTHON, JAVA, GO_CLIENT]


def each(*, can: str = "", of: list[PulsarLibrary] | None = None) -> list[object]:
    """The libraries as test parameters: those that have words for `can`; Java is marked."""
    return [
        pytest.param(found, id=found.name, marks=[pytest.mark.java] if found is JAVA else [])
        for found in of or ALL
        if can not in found.cannot
    ]
