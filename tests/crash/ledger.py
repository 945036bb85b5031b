"""The verdict of a durability run, by counting: messages sent, acked, read, and stored.

Every value names its writer and is otherwise derived from that, so a reader recognises a record
that was changed, moved, repeated or never sent without a query to the writer:

    +-------+-----+----------+-----------+----------+--------+----------+------------------+
    | magic | run | producer | partition | sequence | length | checksum | body, derived    |
    | 4     | 8   | 2        | 2         | 8        | 4      | 4        | from the header  |
    +-------+-----+----------+-----------+----------+--------+----------+------------------+

The ledger is independent of the protocol: loads and readers report to it.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

HEADER = struct.Struct(">4s8sHHQII")
MAGIC = b"LDGR"
DERIVED_FROM = 28  # the header without its checksum


class Origin(NamedTuple):
    """Who wrote a value, and as which one of theirs in this partition."""

    producer: int
    partition: int
    sequence: int


def encode(run: bytes, origin: Origin, size: int) -> bytes:
    """A value of `size` bytes (at least a header)."""
    size = max(size, HEADER.size)
    known = HEADER.pack(MAGIC, run, *origin, size, 0)[:DERIVED_FROM]
    body = derived(known, size - HEADER.size)
    return known + struct.pack(">I", zlib.crc32(body)) + body


def derived(known: bytes, size: int) -> bytes:
    pattern = hashlib.blake2b(known).digest()
    return (pattern * (size // len(pattern) + 1))[:size]


def decode(run: bytes, value: bytes | None) -> Origin | None:
    """None when it is not, byte for byte, what a writer of this run made."""
    if value is None or len(value) < HEADER.size:
        return None
    magic, its_run, producer, partition, sequence, size, checksum = HEADER.unpack_from(value)
    body = value[HEADER.size :]
    whole = (magic, its_run, size) == (MAGIC, run, len(value)) and zlib.crc32(body) == checksum
    if not whole or body != derived(value[:DERIVED_FROM], len(body)):
        return None
    return Origin(producer, partition, sequence)


@dataclass
class Verdict:
    """The counts; all of them must be zero but `acked`, which must not be."""

    acked: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0
    phantom: int = 0
    wrong_offset: int = 0
    vanished: int = 0
    failed: int = 0
    examples: list[str] = field(default_factory=list)

    def count(self, kind: str, example: object) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < 10:
            self.examples.append(f"{kind}: {example}")

    @property
    def bad(self) -> dict[str, int]:
        """What is not zero and should be."""
        counts = {key: value for key, value in asdict(self).items() if isinstance(value, int)}
        return {key: value for key, value in counts.items() if value and key != "acked"}

    def __str__(self) -> str:
        bad = " ".join(f"{key}={value}" for key, value in self.bad.items())
        return f"{self.acked} acked, {bad or 'nothing lost, repeated, moved or changed'}"


class Ledger:
    """What the producers of one run sent and were promised, and what a reader saw meanwhile."""

    def __init__(self, run: bytes) -> None:
        assert len(run) == 8
        self.run = run
        self.sent: dict[tuple[int, int], int] = {}
        self.acked: dict[Origin, int] = {}
        self.failures: list[str] = []
        self.tailed: dict[tuple[int, int], Origin | None] = {}
        self.last_ack = 0.0
        self._changed = threading.Condition()

    def next_value(self, producer: int, partition: int, size: int) -> tuple[Origin, bytes]:
        """Take the next number of a producer in a partition; called by that producer only."""
        sequence = self.sent.get((producer, partition), 0)
        self.sent[producer, partition] = sequence + 1
        origin = Origin(producer, partition, sequence)
        return origin, encode(self.run, origin, size)

    def ack(self, origin: Origin, offset: int) -> None:
        with self._changed:
            self.acked[origin] = offset
            self.last_ack = time.monotonic()
            self._changed.notify_all()

    def fail(self, reason: str) -> None:
        """A producer gave up on a record: not lost (it had no ack), but it must not happen."""
        with self._changed:
            self.failures.append(reason)
            self._changed.notify_all()

    def saw(self, partition: int, offset: int, value: bytes | None) -> None:
        self.tailed[partition, offset] = decode(self.run, value)

    def wait_for_acks(self, more: int, seconds: float) -> float:
        """Until `more` further acks came; the monotonic time of the first of them."""
        with self._changed:
            before = len(self.acked)
            assert self._changed.wait_for(lambda: len(self.acked) > before, seconds), (
                f"no ack within {seconds} s; failures: {self.failures[:5]}"
            )
            first = self.last_ack
            assert self._changed.wait_for(lambda: len(self.acked) >= before + more, seconds), (
                f"{len(self.acked) - before} of {more} acks within {seconds} s"
            )
        return first

    def verdict(self, partitions: Mapping[int, Iterable[tuple[int, bytes | None]]]) -> Verdict:
        """Count over a full read: partition -> its (offset, value) pairs in order."""
        verdict = Verdict(acked=len(self.acked), failed=len(self.failures))
        verdict.examples += self.failures[:3]
        found: dict[Origin, int] = {}
        at: dict[tuple[int, int], Origin | None] = {}
        for partition, reads in partitions.items():
            last: dict[int, int] = {}
            for offset, value in reads:
                origin = decode(self.run, value)
                at[partition, offset] = origin
                self._judge(verdict, (partition, offset), origin, found=found, last=last)
        for origin, offset in self.acked.items():
            if origin not in found:
                verdict.count("lost", (origin, offset))
            elif found[origin] != offset:
                verdict.count("wrong_offset", (origin, "acked", offset, "read", found[origin]))
        for place, origin in self.tailed.items():
            if place not in at or at[place] != origin:
                verdict.count("vanished", (place, origin, "now", at.get(place)))
        return verdict

    def _judge(
        self,
        verdict: Verdict,
        place: tuple[int, int],
        origin: Origin | None,
        *,
        found: dict[Origin, int],
        last: dict[int, int],
    ) -> None:
        """One record of the full read."""
        partition, offset = place
        if origin is None:
            verdict.count("corrupted", (partition, offset))
            return
        sent = self.sent.get((origin.producer, origin.partition), 0)
        if origin.partition != partition or origin.sequence >= sent:
            verdict.count("phantom", (partition, offset, origin))
        elif origin in found:
            verdict.count("duplicated", (origin, found[origin], offset))
        else:
            found[origin] = offset
            if origin.sequence < last.get(origin.producer, -1):
                verdict.count("reordered", (origin, "after", last[origin.producer]))
            last[origin.producer] = origin.sequence
