"""Producers of message sets (v0 and v1), for tests that kill their broker.

One producer is written by hand and sends all kinds of sets in Produce v0 to v2; one is librdkafka
configured for a 0.10 broker, and one is a present librdkafka with idempotence. A producer without
sequence numbers does not retry, so no message may be stored twice. The topics store the sets as
they are, recompressed, or with the broker's append time.
"""

from __future__ import annotations

import gzip
import random
import threading
import time
from contextlib import suppress

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance import raw_sets
from tests.conformance.clients.base import Deadline
from tests.conformance.raw_sets import GZIP, message, produce
from tests.crash import load
from tests.crash.ledger import Ledger, Verdict
from tests.crash.load import SIZES, ConfluentLoad, Reads, Tail
from tests.crash.parts import PATIENCE, Part

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "packed": {"compression.type": "lz4"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "both": {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"},
}
NAMES = list(TOPICS)  # the partitions of the ledger by number: partition 0 of each
STAMPED = [number for number, name in enumerate(NAMES) if "message.timestamp.type" in TOPICS[name]]
AS_OF_0_10: dict[str, object] = {
    "api.version.request": False,
    "broker.version.fallback": "0.10.2",
    "max.in.flight": 1,
    "retries": 0,
}
PAUSE_S = 0.02


def make_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, **load.QUIET})
    wanted = [NewTopic(name, 1, 1, config=settings) for name, settings in TOPICS.items()]
    for made in admin.create_topics(wanted).values():
        made.result(PATIENCE)


class SetLoad(Part):
    """By hand: one set after the other, of either magic, with a wrapper or without."""

    def __init__(self, address: str, ledger: Ledger, *, number: int, seed: int) -> None:
        super().__init__()
        self.address, self.ledger, self.number = address, ledger, number
        self.random = random.Random(seed)
        self.refused: list[int] = []
        self.sets = 0

    def run(self) -> None:
        while not self.stopping.wait(0.001):
            try:
                self.send()
            except OSError:
                time.sleep(PAUSE_S)  # by design: the server is down

    def send(self) -> None:
        version = self.random.choice((0, 1, 2))
        magic = self.random.choice((0, 1)) if version == 2 else 0
        place = self.random.randrange(len(NAMES))
        made = [
            self.ledger.next_value(self.number, place, self.random.choice(SIZES))
            for _ in range(self.random.choice((1, 1, 3, 10)))
        ]
        now = int(time.time() * 1000)
        wrapped = self.random.random() < 0.5
        data = b"".join(
            message(value, magic=magic, offset=at, timestamp=now)
            for at, (_, value) in enumerate(made)
        )
        if wrapped:
            last = len(made) - 1 if magic else 0
            packed = gzip.compress(data, 1, mtime=0)
            data = message(packed, magic=magic, offset=last, timestamp=now, attributes=GZIP)
        answer = produce(self.address, version, NAMES[place], data)
        if answer.error:
            self.refused.append(answer.error)
            return
        self.sets += 1
        for at, (origin, _) in enumerate(made):
            self.ledger.ack(origin, answer.offset + at)


class TopicsLoad(ConfluentLoad):
    """librdkafka, to all topics; one without numbers gives up what it could not send."""

    def __init__(self, address: str, ledger: Ledger, *, number: int, seed: int, old: bool) -> None:
        more = AS_OF_0_10 if old else {}
        super().__init__(
            address, "", len(NAMES), ledger,
            number=number, seed=seed, idempotent=not old, codec="snappy", more=more,
        )  # fmt: skip
        self.old = old

    def send(self, partition: int) -> None:
        origin, value = self.ledger.next_value(self.number, partition, self.size())

        def delivered(error: KafkaError | None, sent: object) -> None:
            if error is None:
                self.ledger.ack(origin, sent.offset())
            elif not self.old:
                self.ledger.fail(error.name())

        with suppress(BufferError):  # the client's own queue is full; this number was never sent
            self.producer.produce(NAMES[partition], value, partition=0, on_delivery=delivered)


class TopicsTail(Tail):
    """A reader that follows one of the topics."""

    def __init__(self, address: str, ledger: Ledger, number: int) -> None:
        super().__init__(address, NAMES[number], 1, ledger)
        self.number = number

    def run(self) -> None:
        while not self.stopping.is_set():
            for each in self.consumer.consume(500, 0.1):
                if each.error() is None:
                    self.ledger.saw(self.number, each.offset(), each.value())
        self.consumer.close()


def old_load(address: str, ledger: Ledger, *, seed: int) -> list[threading.Thread]:
    """By hand twice, librdkafka of then and of today, and a reader of each topic."""
    return [
        SetLoad(address, ledger, number=1, seed=seed),
        SetLoad(address, ledger, number=2, seed=seed + 1),
        TopicsLoad(address, ledger, number=3, seed=seed + 2, old=True),
        TopicsLoad(address, ledger, number=4, seed=seed + 3, old=False),
        *(TopicsTail(address, ledger, number) for number in range(len(NAMES))),
    ]


def old_read(address: str, topic: str, version: int) -> list[tuple[int, bytes | None]]:
    """Everything as a client of then is given it."""
    got: list[tuple[int, bytes | None]] = []
    deadline, offset = Deadline(f"all of {topic} in Fetch v{version}", PATIENCE), 0
    while True:
        deadline.check(offset)
        answer = raw_sets.fetch(address, version, topic, offset, max_bytes=4 << 20)
        assert answer.error == 0, answer.error
        # a wrapper may begin before the requested offset, as in Kafka
        got += [
            (each.offset, each.value)
            for each in raw_sets.messages(answer.records)
            if each.offset >= offset
        ]
        offset = got[-1][0] + 1 if got else 0
        if offset >= answer.offset:
            return got


def judge(address: str, ledger: Ledger) -> Verdict:
    """Read all as clients of today and of then do, which must agree; the verdict on it."""
    found: Reads = {}
    for number, name in enumerate(NAMES):
        found[number] = load.full_read(address, name, 1)[0]
        assert old_read(address, name, number % 4) == found[number], f"{name} differs for old ones"
    return ledger.verdict(found)
