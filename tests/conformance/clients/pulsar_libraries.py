"""The foreign Pulsar libraries: how each is built, started, and what it has no words for."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pytest
from tools.servers.java import OPENED, jars
from tools.servers.pulsar import VERSION

from tests.conformance.clients.building import (
    BUILD,
    HERE,
    JAVA_LINES,
    QUICK_START,
    classes,
    go_program,
    require_go,
)
from tests.conformance.clients.pulsar import Driver, Process, PulsarLibrary
from tests.conformance.clients.pulsar_python import InProcess
from tests.tools import require_program, require_pulsar_jars

GO_NEEDED = (1, 25)  # the client's own go.mod


class PulsarPython:
    """PyPI's pulsar-client: C++ underneath."""

    name = "python"
    cannot = frozenset(
        {
            "cumulative transactions",
            "transactions",
            "retry",
            "receipts",
            "avro",
            "auto",
            "null",
            "events",
            "ended",
            "later topics",
        }
    )  # its patterns look again after half a minute, whatever period is configured

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
        target = BUILD / "pulsar-clients" / f"java-{VERSION}"
        made = classes(target, [JAVA_LINES, source], path, "-XDignore.symbol.file")
        options = [*QUICK_START, "-XX:MaxDirectMemorySize=384m", "-Djava.net.preferIPv4Stack=true"]
        options += [f"-Dlog4j2.configurationFile={made}/log4j2.properties"]
        options += ["-Dio.netty.tryReflectionSetAccessible=true"]
        options += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
        return ["java", *options, "-cp", f"{made}:{path}", "Driver"]


class PulsarGo(Program):
    """github.com/apache/pulsar-client-go, built from go-pulsar/ with the sums checked in."""

    name = "go"
    cannot = frozenset(
        {
            "cumulative transactions",
            "redeliver",
            "sequence",
            "fencing",
            "auto",
            "null",
            "ended",
            "ends",
            "late views",
            "certificates over https",
        }
    )

    def require(self) -> None:
        require_go(GO_NEEDED)

    def command(self) -> list[str | Path]:
        return [go_program(HERE / "go-pulsar", BUILD / "pulsar-clients" / "go")]


PYTHON, JAVA, GO_CLIENT = PulsarPython(), PulsarJava(), PulsarGo()
ALL: list[PulsarLibrary] = [PYTHON, JAVA, GO_CLIENT]


def each(*, can: str = "", of: list[PulsarLibrary] | None = None) -> list[object]:
    """The libraries as test parameters: those that have words for `can`; Java is marked."""
    return [
        pytest.param(found, id=found.name, marks=[pytest.mark.java] if found is JAVA else [])
        for found in of or ALL
        if can not in found.cannot
    ]
