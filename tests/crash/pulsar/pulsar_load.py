"""Pulsar's Python client as producers and readers that a server is killed under, with a ledger.

The client sends again what has no receipt when it is connected again, under the same sequence ids.
Where the topic de-duplicates, that is stored once; a receipt for what was stored before the kill
names no place ((-1, -1)), so its place is wherever the reader finds it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pulsar

from tests.conformance.clients.base import Deadline
from tests.crash.ledger import Ledger, Origin, Verdict, decode
from tests.crash.load import SIZES, Reads
from tests.crash.parts import PATIENCE, Part

NOWHERE = -1


def client(
    address: str, *, seconds: int = 30, more: Mapping[str, object] | None = None
) -> pulsar.Client:
    """Return a client; with `more` settings, such as of a login, it connects over TLS."""
    return pulsar.Client(
        f"pulsar{'+ssl' if more else ''}://{address}",
        operation_timeout_seconds=seconds,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        **(more or {}),
    )


def partition_name(topic: str, number: int) -> str:
    return f"{topic}-partition-{number}"


def place_of(found: pulsar.MessageId) -> int:
    """The offset that an id names, NOWHERE if it names none."""
    if found.entry_id() < 0:
        return NOWHERE
    return found.entry_id() + max(0, found.batch_index())


class PulsarLoad(Part):
    """A client with a producer for each partition: a few messages, a short pause, until stopped."""

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        ledger: Ledger,
        *,
        number: int,
        seed: int,
        batching: bool = True,
        compression: pulsar.CompressionType = pulsar.CompressionType.NONE,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self.ledger, self.number = ledger, number
        self.random = random.Random(seed)
        self.waiting = threading.Semaphore(2_000)
        self.client = client(address, more=more)
        self.producers = [
            self.client.create_producer(
                partition_name(topic, each),
                producer_name=f"load-{number}",
                send_timeout_millis=0,
                max_pending_messages=5_000,
                batching_enabled=batching,
                batching_max_publish_delay_ms=2,
                compression_type=compression,
            )
            for each in range(partitions)
        ]

    def run(self) -> None:
        while not self.stopping.wait(0.002):
            for _ in range(self.random.randint(1, 30)):
                self.send(self.random.randrange(len(self.producers)))
        for producer in self.producers:
            producer.flush()
        for _ in range(2_000):  # every receipt gave its place back
            if not self.waiting.acquire(timeout=PATIENCE):
                self.ledger.fail(f"producer {self.number}: messages without a receipt")
                break
        close(self.client)

    def send(self, partition: int) -> None:
        if not self.waiting.acquire(timeout=0.05):
            return
        size = self.random.choice(SIZES)
        origin, value = self.ledger.next_value(self.number, partition, size)

        def reported(result: pulsar.Result, found: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                self.ledger.ack(origin, place_of(found))
            else:
                self.ledger.fail(str(result))
            self.waiting.release()

        self.producers[partition].send_async(value, reported)


class PulsarTail(Part):
    """Readers that follow the ends during the run: what they saw must still be there after it."""

    def __init__(self, address: str, topic: str, partitions: int, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.client = client(address)
        self.readers = [
            self.client.create_reader(partition_name(topic, each), pulsar.MessageId.earliest)
            for each in range(partitions)
        ]

    def run(self) -> None:
        while not self.stopping.is_set():
            for number, reader in enumerate(self.readers):
                for _ in range(200):
                    try:
                        message = reader.read_next(5)
                    except pulsar.Timeout:
                        break
                    self.ledger.saw(number, place_of(message.message_id()), message.data())
        close(self.client)


def full_read(address: str, topic: str, partitions: int) -> Reads:
    """Everything from the first message to the last, partition by partition."""
    reads: Reads = {}
    with closing(client(address)) as reading:
        for number in range(partitions):
            reader = reading.create_reader(partition_name(topic, number), pulsar.MessageId.earliest)
            got = reads.setdefault(number, [])
            deadline = Deadline(f"a full read of partition {number}", PATIENCE)
            while reader.has_message_available():
                deadline.check(got[-1:])
                message = reader.read_next(60_000)
                got.append((place_of(message.message_id()), message.data()))
            reader.close()
    return reads


@contextmanager
def closing(opened: pulsar.Client) -> Iterator[pulsar.Client]:
    try:
        yield opened
    finally:
        close(opened)


def close(opened: pulsar.Client) -> None:
    """Close a client, also while the server is killed: some of its closes then fail."""
    with suppress(pulsar.NotConnected, pulsar.ConnectError):
        opened.close()


def judge(
    address: str, topic: str, partitions: int, ledger: Ledger, *, repeats: bool = False
) -> tuple[Verdict, int]:
    """Two full reads, which must agree, the verdict on them, and how many came twice.

    With `repeats` it is no fault that one did: then the first counts, as for its reader.
    """
    first = full_read(address, topic, partitions)
    assert full_read(address, topic, partitions) == first, "two reads of the same log differ"
    return verdict_of(ledger, first, repeats=repeats)


def verdict_of(ledger: Ledger, reads: Reads, *, repeats: bool) -> tuple[Verdict, int]:
    """Put places to receipts that named none, and with `repeats` the first for all of a message."""
    places: dict[Origin, list[int]] = {}
    for got in reads.values():
        for offset, value in got:
            origin = decode(ledger.run, value)
            if origin is not None:
                places.setdefault(origin, []).append(offset)
    for origin, offset in ledger.acked.items():
        there = places.get(origin, [])
        if there and (offset == NOWHERE or (repeats and offset in there)):
            ledger.acked[origin] = there[0]
    if repeats:
        firsts = {(origin.partition, there[0]) for origin, there in places.items()}
        again = {(origin.partition, at) for origin, there in places.items() for at in there}
        again -= firsts
        reads = {
            number: [each for each in got if (number, each[0]) not in again]
            for number, got in reads.items()
        }
        ledger.tailed = {at: seen for at, seen in ledger.tailed.items() if at not in again}
    return ledger.verdict(reads), sum(len(there) - 1 for there in places.values())


def pulsar_load(
    address: str, topic: str, partitions: int, ledger: Ledger, *, seed: int
) -> list[threading.Thread]:
    """Three producers, one without batches, one that compresses, and readers that follow."""
    where = {"address": address, "topic": topic, "partitions": partitions, "ledger": ledger}
    return [
        PulsarLoad(**where, number=1, seed=seed),
        PulsarLoad(**where, number=2, seed=seed + 1, compression=pulsar.CompressionType.LZ4),
        PulsarLoad(**where, number=3, seed=seed + 2, batching=False),
        PulsarTail(**where),
    ]
