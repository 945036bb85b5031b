"""kcat, as Debian ships it (an older librdkafka than confluent-kafka's)."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Sequence

from tests.conformance.clients.base import DEADLINE, Headers, Read, Record
from tests.tools import require_program

BETWEEN = "|"


class Kcat:
    name = "kcat"
    cannot = frozenset({"timestamps", "binary", "null headers"})

    def run(self, *arguments: str, given: bytes = b"") -> str:
        """Run it to its end; its standard output."""
        require_program("kcat")
        done = subprocess.run(
            ["kcat", *arguments], input=given, capture_output=True, timeout=DEADLINE, check=False
        )
        assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stderr.decode()}"
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
        """Headers and "empty means null" count for a whole run: one run per stretch of equals."""
        settings = {"acks": acks, "enable.idempotence": str(idempotent).lower(), "linger.ms": "20"}
        options = ["-P", "-b", address, "-t", topic, "-z", codec, "-K", BETWEEN]
        for name, value in settings.items():
            options += ["-X", f"{name}={value}"]
        for (headers, null), stretch in itertools.groupby(
            records, lambda record: (record.headers, record.value is None)
        ):
            more = [option for name, value in headers for option in ("-H", f"{name}={text(value)}")]
            lines = [as_line(record) for record in stretch]
            self.run(*options, *more, *(["-Z"] if null else []), given=b"".join(lines))

    def read(self, address: str, topic: str, count: int, *, group: str | None = None) -> list[Read]:
        options = ["-b", address, "-J", "-q", "-c", str(count), "-X", "check.crcs=true"]
        if group:
            options += ["-X", "auto.offset.reset=earliest", "-G", group, topic]
        else:
            options += ["-C", "-t", topic, "-o", "beginning"]
        return [as_read(line) for line in self.run(*options).split("\n") if line]


def text(value: bytes | None) -> str:
    return (value or b"").decode()


def as_line(record: Record) -> bytes:
    key = b"" if record.key is None else record.key + BETWEEN.encode()
    return key + (record.value or b"") + b"\n"


def as_read(line: str) -> Read:
    response = json.loads(line)
    return Read(
        response["partition"],
        response["offset"],
        encoded(response["key"]),
        encoded(response["payload"]),
        as_headers(response.get("headers") or []),
        response["ts"],
    )


def as_headers(flat: list[str | None]) -> Headers:
    return tuple((str(flat[at]), encoded(flat[at + 1])) for at in range(0, len(flat), 2))


def encoded(value: str | None) -> bytes | None:
    return None if value is None else value.encode()
