"""The Java client of one version, through the console tools that ship with it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tools.servers.java import jars

from tests.conformance.clients.base import DEADLINE, Headers, Read, Record
from tests.tools import require_jars

QUICK_START = ["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx192m"]
QUIET = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
NULL = "NULL"
BETWEEN = "|"


class Java:
    cannot = frozenset({"timestamps", "binary"})

    def __init__(self, version: str) -> None:
        self.version = version
        self.name = f"java-console-{version}"
        self.since_4 = int(version.split(".", maxsplit=1)[0]) >= 4

    def run(self, main: str, *arguments: str, given: bytes = b"") -> str:
        """Run one tool to its end; its standard output."""
        require_jars(self.version)
        path = f"{jars(self.version)}/*"
        command = ["java", *QUICK_START, *QUIET, "-cp", path, main, *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=2 * DEADLINE, check=False
        )
        errors = done.stderr.decode()
        assert done.returncode == 0, f"{main} ended with {done.returncode}:\n{errors}"
        assert "ERROR" not in errors, errors
        return done.stdout.decode()

    def write(
        self,
        address: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        settings = "--command-property" if self.since_4 else "--producer-property"
        reader = "--reader-property" if self.since_4 else "--property"
        main = "org.apache.kafka.tools.ConsoleProducer" if self.since_4 else OLD_CONSOLE_PRODUCER
        options = [
            f"--bootstrap-server={address}",
            f"--topic={topic}",
            f"--compression-codec={codec}",
        ]
        options += [f"--request-required-acks={acks}", "--timeout=20"]
        options += [f"{settings}=enable.idempotence={str(idempotent).lower()}"]
        options += [f"{reader}={line}" for line in PARSING]
        self.run(main, *options, given=b"".join(as_line(record) for record in records))

    def start_reading(self, address: str, topic: str, *, group: str) -> subprocess.Popen[bytes]:
        """A console consumer that goes on until it is stopped; a line for every record."""
        require_jars(self.version)
        path = f"{jars(self.version)}/*"
        command = ["java", *QUICK_START, *QUIET, "-cp", path, CONSOLE_CONSUMER]
        options = self.reading(address, topic, group)
        return subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def reading(self, address: str, topic: str, group: str | None) -> list[str]:
        formatter = "--formatter-property" if self.since_4 else "--property"
        options = [f"--bootstrap-server={address}", f"--topic={topic}", "--from-beginning"]
        options += [f"--group={group}"] if group else []
        return options + [f"{formatter}={line}" for line in PRINTING]

    def read(self, address: str, topic: str, count: int, *, group: str | None = None) -> list[Read]:
        options = self.reading(address, topic, group)
        options += [f"--max-messages={count}", f"--timeout-ms={int(DEADLINE * 1000)}"]
        printed = self.run(CONSOLE_CONSUMER, *options)
        return [as_read(line) for line in printed.split("\n") if line]


CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OLD_CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
PARSING = [
    "parse.headers=true", "parse.key=true", f"null.marker={NULL}",
    f"key.separator={BETWEEN}", f"headers.delimiter={BETWEEN}",
]  # fmt: skip
PRINTING = [
    "print.timestamp=true", "print.partition=true", "print.offset=true", "print.headers=true",
    "print.key=true", f"null.literal={NULL}", f"key.separator={BETWEEN}",
]  # fmt: skip


def as_line(record: Record) -> bytes:
    headers = b",".join(
        name.encode() + b":" + (NULL.encode() if value is None else value)
        for name, value in record.headers
    )
    fields = [headers or None, record.key, record.value]
    return BETWEEN.encode().join(NULL.encode() if f is None else f for f in fields) + b"\n"


def as_read(line: str) -> Read:
    """CreateTime:1700000000000|Partition:0|Offset:0|name:value,name:value|key|value"""
    time, partition, offset, headers, key, value = line.split(BETWEEN)
    return Read(
        int(partition.removeprefix("Partition:")),
        int(offset.removeprefix("Offset:")),
        None if key == NULL else key.encode(),
        None if value == NULL else value.encode(),
        as_headers(headers),
        int(time.split(":")[1]),
    )


def as_headers(text: str) -> Headers:
    if text == "NO_HEADERS":
        return ()
    pairs = [pair.split(":", 1) for pair in text.split(",")]
    return tuple((name, None if value == NULL else value.encode()) for name, value in pairs)
