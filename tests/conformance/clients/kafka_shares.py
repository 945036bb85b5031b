"""Kafka's own Java share consumers (java-share/Shares.java): KIP-932.

shares = Shares()
shares.configure(address, "g", {"share.auto.offset.reset": "earliest"})
member = shares.open(address, "g", topic)
records = member.poll()
member.acknowledge("accept", records)
assert member.commit() == {"0": ""}
assert shares.offsets(address, "g") == {"0": [start, lag]}
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.servers.java import jars

from tests.conformance.clients.base import DEADLINE
from tests.conformance.clients.building import (
    BUILD,
    HERE,
    JAVA_LINES,
    QUICK_START,
    QUIET,
    classes,
)
from tests.conformance.clients.driven import NONE, Driven
from tests.tools import require_jars, require_program

VERSION = "4.3.1"
POLL_MS = 300


class SharedRecord(NamedTuple):
    """A record as a member of a share group gets it."""

    partition: int
    offset: int
    value: str
    deliveries: int


class Shares(Driven):
    """A process with share consumers."""

    name = f"java-share-{VERSION}"

    def require(self) -> None:
        require_jars(VERSION)
        require_program("javac")

    def command(self) -> list[str | Path]:
        source = HERE / "java-share" / "Shares.java"
        path = f"{jars(VERSION)}/*"
        made = classes(BUILD / "kafka-clients" / self.name, [JAVA_LINES, source], path)
        return ["java", *QUICK_START, QUIET, "-cp", f"{made}:{path}", "Shares"]

    def kill9(self) -> None:
        """End the process with all its consumers, as a crash does."""
        assert self._process is not None
        assert self._process.process is not None
        self._process.process.kill()
        self._process.process.wait()
        self._process = None

    def configure(self, address: str, group: str, settings: Mapping[str, str]) -> None:
        self.request("configure", address, group=group, settings=settings)

    def offsets(self, address: str, group: str) -> dict[str, list[int]]:
        found = self.request("offsets", address, group=group)
        assert isinstance(found, dict)
        return found

    def open(
        self, address: str, group: str, topic: str, settings: Mapping[str, object] = NONE
    ) -> ShareMember:
        number = self.request("open", address, group=group, topic=topic, settings=settings)
        assert isinstance(number, int)
        return ShareMember(self, number)


class ShareMember:
    """One share consumer."""

    def __init__(self, shares: Shares, number: int) -> None:
        self._shares = shares
        self._number = number

    def poll(self) -> list[SharedRecord]:
        found = self._shares.request("poll", member=self._number, ms=POLL_MS)
        assert isinstance(found, list)
        return [SharedRecord(*each) for each in found]

    def poll_until(self, count: int) -> list[SharedRecord]:
        """Poll until there are so many records, acknowledged by nobody in between."""
        found: list[SharedRecord] = []
        end = time.monotonic() + DEADLINE
        while len(found) < count and time.monotonic() < end:
            found += self.poll()
        return found

    def acknowledge(self, kind: str, records: Iterable[SharedRecord]) -> None:
        named = [[each.partition, each.offset] for each in records]
        self._shares.request("acknowledge", member=self._number, type=kind, records=named)

    def commit(self) -> dict[str, str]:
        found = self._shares.request("commit", member=self._number)
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        self._shares.request("close", member=self._number)
