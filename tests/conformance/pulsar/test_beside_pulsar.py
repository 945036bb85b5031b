"""The same random operations of pulsar-client here and at a real Pulsar 4.0.7: the same answers.

A history has one topic, one producer and one consumer at a time: it sends, receives, acks,
acks negatively, asks for what is not acked, seeks, subscribes again, and reads beside the
subscription. Each answer is compared: payloads, keys, redelivery counts, errors. A model of the
subscription chooses how many messages to wait for. `TRILOGUE_MODEL_SEED` and `TRILOGUE_HISTORIES`
choose others.

Left out, since they are the client's own or a matter of time: message ids (an entry's id is an
offset here), which messages of a batch come again without `batch_index_ack_enabled`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId
from tools.servers.pulsar import RealPulsar

from tests.server import start_server
from tests.tools import require_pulsar_jars

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(1_800)]

ALL_MS: Final = 20_000
NO_MORE_MS: Final = 300
KEYS: Final = 3


class Side:
    """One server with a client, and the producer and the consumer of the history that runs."""

    def __init__(self, address: str) -> None:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self.client = pulsar.Client(address, logger=quiet)
        self.times_ms: list[int] = []

    def open(self, topic: str, sending: dict[str, Any], receiving: dict[str, Any]) -> None:
        self.topic, self.receiving = topic, receiving
        self.ids: dict[int, MessageId] = {}
        self.times_ms.clear()
        self.producer = self.client.create_producer(topic, **sending)
        self.consumer = self.subscribe()

    def subscribe(self) -> pulsar.Consumer:
        return self.client.subscribe(self.topic, "s", **self.receiving)

    def subscribe_again(self) -> str:
        self.consumer.close()
        self.consumer = self.subscribe()
        return ""

    def close(self) -> None:
        self.consumer.close()
        self.producer.close()

    def send(self, first: int, count: int) -> list[str]:
        """Send so many numbers; return each result. What was sent before is 20 ms older."""
        time.sleep(0.02)
        self.times_ms += [time.time_ns() // 1_000_000] * count
        found: list[str] = []
        for number in range(first, first + count):
            self.producer.send_async(
                str(number).encode(),
                lambda result, _: found.append(str(result)),
                partition_key=str(number % KEYS),
                properties={"of": str(number)},
            )
        self.producer.flush()
        return found

    def receive(self, count: int) -> list[tuple[Any, ...]]:
        """Return number, key, property and redelivery count of so many messages, or of fewer."""
        found: list[tuple[Any, ...]] = []
        while len(found) < count:
            try:
                message = self.consumer.receive(ALL_MS if count > 1 or not found else NO_MORE_MS)
            except pulsar.Timeout:
                break
            number = int(message.data())
            self.ids[number] = message.message_id()
            content = message.partition_key(), message.properties()["of"]
            found.append((number, *content, message.redelivery_count()))
        return found

    def receive_no_more(self) -> list[int]:
        try:
            return [int(self.consumer.receive(NO_MORE_MS).data())]
        except pulsar.Timeout:
            return []

    def do(self, act: Callable[[pulsar.Consumer], None]) -> str:
        try:
            act(self.consumer)
        except pulsar.PulsarException as problem:
            return type(problem).__name__
        return ""

    def read(self, start: int | None) -> list[int]:
        """Return all numbers that a reader finds: after a message, or from the first one on."""
        place = MessageId.earliest if start is None else self.ids[start]
        reader = self.client.create_reader(self.topic, place)
        found = []
        while reader.has_message_available():
            found.append(int(reader.read_next(ALL_MS).data()))
        reader.close()
        return found


class Comparison:
    """One subscription at both servers, and what a model expects of it."""

    def __init__(self, sides: list[Side], pool: ThreadPoolExecutor, seed: int) -> None:
        self.sides, self.pool = sides, pool
        self.chance = chance = random.Random(seed)
        self.topic = f"beside-{seed}"
        self.kind = chance.choice(list(ConsumerType.__members__.values()))
        self.is_single = self.kind in {ConsumerType.Exclusive, ConsumerType.Failover}
        self.batches = chance.random() < 0.6
        self.has_index_acks = chance.random() < 0.5
        self.sending: dict[str, Any] = {
            "batching_enabled": self.batches,
            "batching_max_messages": chance.choice([3, 7, 100]),
            "batching_max_publish_delay_ms": 1_000,  # a flush ends the last batch
        }
        self.receiving: dict[str, Any] = {
            "consumer_type": self.kind,
            "initial_position": InitialPosition.Earliest,
            "receiver_queue_size": chance.choice([1, 5, 1000]),
            "negative_ack_redelivery_delay_ms": 100,
            **({"batch_index_ack_enabled": True} if self.has_index_acks else {}),
        }
        self.sent = 0
        self.has_redelivered = False
        self.acked: set[int] = set()
        self.held: set[int] = set()
        self.known: set[int] = set()
        self.trace: list[tuple[str, object]] = []

    @property
    def is_exact(self) -> bool:
        """Whether an ack is of a message, not of its batch."""
        return not self.batches or self.has_index_acks

    def both(self, what: str, do: Callable[[Side], Any]) -> Any:
        """Do it at both; AssertionError where the answers differ."""
        real, ours = self.pool.map(do, self.sides)
        self.trace.append((what, real))
        setting = f"{self.topic} {self.kind} {self.sending} {self.receiving}"
        assert ours == real, f"{setting}: {what}: {ours} after {self.trace[-9:]}"
        return real

    def unacked(self) -> list[int]:
        return [number for number in range(self.sent) if number not in self.acked]

    def run(self, steps: int) -> None:
        operations = [
            self.send, self.send, self.receive, self.receive, self.receive, self.ack, self.ack,
            self.ack_cumulatively, self.ack_negatively, self.redeliver, self.subscribe_again,
            self.seek_to_start, self.seek_to_end, self.seek_to_message, self.seek_to_time,
            self.read, self.drain,
        ]  # fmt: skip
        for side in self.sides:
            side.open(self.topic, self.sending, self.receiving)
        try:
            for _ in range(steps):
                if self.chance.choice(operations)() is False:
                    break
        finally:
            for side in self.sides:
                side.close()

    def send(self) -> None:
        count = self.chance.randint(1, 12)
        self.both(f"send {count}", lambda side: side.send(self.sent, count))
        self.sent += count

    def receive(self) -> bool:
        there = [number for number in self.unacked() if number not in self.held]
        return self.receive_some(min(len(there), self.chance.randint(1, 8)))

    def receive_some(self, count: int) -> bool:
        """Return whether as many came as the model expects; if not, the history is over."""
        if not count:
            return True
        found = self.both(f"receive {count}", lambda side: self.without_races(side.receive(count)))
        numbers = {row[0] for row in found}
        self.held |= numbers
        self.known |= numbers
        return len(found) == count and not numbers & self.acked

    def without_races(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Leave out what depends on which messages the client had when it asked for all again."""
        if self.is_single:
            return rows
        return sorted(row[:3] if self.has_redelivered else row for row in rows)

    def ack(self) -> None:
        if number := self.choose(self.held):
            self.both(f"ack {number}", lambda side: self.act("acknowledge", side, number[0]))
            self.acked.add(number[0])
            self.held.discard(number[0])

    def ack_cumulatively(self) -> None:
        if self.is_single and (number := self.choose(self.held)):
            act = "acknowledge_cumulative"
            self.both(f"{act} {number}", lambda side: self.act(act, side, number[0]))
            self.acked |= set(range(number[0] + 1))
            self.held = {each for each in self.held if each > number[0]}

    def ack_negatively(self) -> bool:
        """Ack negatively one that was received, and receive it again."""
        if self.is_single or not self.is_exact or not (number := self.choose(self.held)):
            return True
        act = "negative_acknowledge"
        self.both(f"{act} {number}", lambda side: self.act(act, side, number[0]))
        if not self.batches:
            self.held.discard(number[0])
            there = [each for each in self.unacked() if each not in self.held]
            return self.receive_some(len(there))
        return False

    def redeliver(self) -> bool:
        if self.is_single:
            return True
        act = "redeliver_unacknowledged_messages"
        self.both(act, lambda side: side.do(lambda consumer: getattr(consumer, act)()))
        self.held.clear()
        self.has_redelivered = True
        return self.receive_some(len(self.unacked())) if self.is_exact else False

    def subscribe_again(self) -> None:
        self.both("subscribe again", Side.subscribe_again)
        self.held.clear()

    def seek_to_start(self) -> None:
        self.seek("to the start", lambda _: MessageId.earliest, 0)

    def seek_to_end(self) -> None:
        self.seek("to the end", lambda _: MessageId.latest, self.sent)

    def seek_to_message(self) -> None:
        """Seek to one, and subscribe again: a client leaves that one out, a server does not."""
        if not self.batches and (number := self.choose(self.known)):
            self.seek(f"to {number}", lambda side: side.ids[number[0]], number[0])
            self.subscribe_again()

    def seek_to_time(self) -> None:
        if self.sent and not self.batches:
            number = self.chance.randrange(self.sent)
            times = self.sides[0].times_ms
            first = next(each for each in range(self.sent) if times[each] == times[number])
            self.seek(f"to the time of {number}", lambda side: side.times_ms[number], first)

    def seek(self, what: str, place: Callable[[Side], Any], first: int) -> None:
        self.both(f"seek {what}", lambda side: side.do(lambda to: to.seek(place(side))))
        self.acked = set(range(first))
        self.held.clear()

    def read(self) -> None:
        start = self.choose(self.known) if not self.batches else []
        self.both(f"read {start}", lambda side: side.read(start[0] if start else None))

    def drain(self) -> bool:
        self.subscribe_again()
        if not self.receive_some(len(self.unacked())) or not self.is_exact:
            return False
        self.both("receive no more", Side.receive_no_more)
        return True

    def choose(self, numbers: set[int]) -> list[int]:
        return [self.chance.choice(sorted(numbers))] if numbers else []

    @staticmethod
    def act(name: str, side: Side, number: int) -> str:
        return side.do(lambda consumer: getattr(consumer, name)(side.ids[number]))


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[list[Side]]:
    """A real Pulsar, and ours."""
    require_pulsar_jars()
    (tmp_path / "pulsar").mkdir()
    real = RealPulsar(tmp_path / "pulsar")
    try:
        real.start()
        with start_server(tmp_path / "data") as server:
            made = [Side(f"pulsar://{real.address}"), Side(f"pulsar://{server.pulsar}")]
            yield made
            for side in made:
                side.client.close()
    finally:
        real.kill9()


def test_random_operations_have_the_answers_of_a_real_pulsar(sides: list[Side]) -> None:
    first = int(os.environ.get("TRILOGUE_MODEL_SEED", "1"))
    with ThreadPoolExecutor(2) as pool:
        for seed in range(first, first + int(os.environ.get("TRILOGUE_HISTORIES", "60"))):
            Comparison(sides, pool, seed).run(random.Random(-seed).randint(5, 30))
