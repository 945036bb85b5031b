"""Kafka Streams' exactly-once word count while the server is killed, and Streams itself once.

Streams reads lines that a librdkafka producer commits or aborts, and writes each new count of a
word. So the committed counts of a word have to be 1, 2, 3 and so on, up to the number of its
occurrences in the committed lines, each once.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer

from tests.brokers import Broker
from tests.conformance.clients.kafka_apps import WordCount
from tests.crash.load import QUICK_RECONNECT, QUIET, create_topic, running
from tests.crash.parts import PATIENCE, Part
from tests.crash.transactions.transaction_load import (
    CALL_S,
    TRANSACTION_TIMEOUT_MS,
    make_reader,
    read_committed,
)

INPUT, OUTPUT = "lines", "counted"
PARTITIONS = 2
WORDS = [f"word{number}" for number in range(60)]
LINES_MAX, WORDS_OF_LINE = 8, 8
ABORTS = 0.2  # of all transactions
PAUSE_S = 0.05
COUNTS_BETWEEN_KILLS = 1_000

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.timeout(600)]


class LineWriter(Part):
    """Writes lines of random words in transactions, and aborts some of them."""

    def __init__(self, address: str, seed: int) -> None:
        super().__init__()
        self.address = address
        self.random = random.Random(seed)

    def run(self) -> None:
        while not self.stopping.is_set():
            # Begin again with a producer that fences the one before.
            with contextlib.suppress(KafkaException):
                self.write()

    def write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "transactional.id": "line-writer",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                **QUICK_RECONNECT,
                **QUIET,
            }
        )
        producer.init_transactions(PATIENCE)
        while not self.stopping.wait(PAUSE_S):
            producer.begin_transaction()
            for _ in range(self.random.randint(1, LINES_MAX)):
                line = " ".join(self.random.choices(WORDS, k=WORDS_OF_LINE))
                producer.produce(INPUT, line.encode(), partition=self.random.randrange(PARTITIONS))
            if self.random.random() < ABORTS:
                producer.abort_transaction(CALL_S)
            else:
                producer.commit_transaction(CALL_S)


class CountReader:
    """Follows the committed counts. `number`: how many there are."""

    def __init__(self, reader: Consumer) -> None:
        self.reader = reader
        self.number = 0

    def wait_for(self, number: int) -> None:
        """Wait for so many counts in all."""
        self._wait(f"{number} counts", lambda messages: self.number >= number)

    def wait_for_line(self, written_ms: int) -> None:
        """Wait for the count of a line that was written at that time or later."""
        self._wait(
            "the count of a new line",
            lambda messages: any(each.timestamp()[1] >= written_ms for each in messages),
        )

    def _wait(self, what: str, has_come: Callable[[list[Message]], bool]) -> None:
        ends = time.monotonic() + PATIENCE
        messages: list[Message] = []
        while not has_come(messages):
            assert time.monotonic() < ends, f"no {what} but {self.number} counts"
            messages = [each for each in self.reader.consume(1_000, 0.1) if each.error() is None]
            self.number += len(messages)


def start_streams(broker: Broker, root: Path, version: str, protocol: str = "") -> WordCount:
    """Start the application; `protocol` is that of its group, where the version has several."""
    settings = {
        "application.id": "app",
        "bootstrap.servers": broker.address,
        "processing.guarantee": "exactly_once_v2",
        "state.dir": root / "state",
        "commit.interval.ms": 100,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "replication.factor": 1,
        "statestore.cache.max.bytes": 0,  # each new count is written
        "session.timeout.ms": 6_000,
        **({"group.protocol": protocol} if protocol else {}),
    }
    return WordCount(root / "app", version, (INPUT, OUTPUT), settings, level="warn")


@pytest.mark.parametrize(
    ("version", "kills"),
    [
        ("3.9.1", 4),
        pytest.param("3.9.1", 25, marks=pytest.mark.long),
        pytest.param("4.3.1", 6, marks=pytest.mark.long),
    ],
)
def test_each_word_is_counted_exactly_once(
    broker: Broker,
    chance: random.Random,
    report: Callable[[object], None],
    tmp_path: Path,
    *,
    version: str,
    kills: int,
):
    create_topic(broker.address, INPUT, PARTITIONS)
    create_topic(broker.address, OUTPUT, PARTITIONS)
    recovered_s: list[float] = []
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(
            contextlib.closing(make_reader(broker.address, OUTPUT, PARTITIONS))
        )
        counts = CountReader(reader)
        app = stack.enter_context(start_streams(broker, tmp_path, version))
        with running([LineWriter(broker.address, chance.randrange(10**6))]):
            for kill in range(kills):
                counts.wait_for(counts.number + COUNTS_BETWEEN_KILLS)
                time.sleep(chance.uniform(0, 0.2))  # by design: at any moment of a transaction
                broker.kill9()
                broker.start()
                began, began_ms = time.monotonic(), round(time.time() * 1_000)
                if kill == kills // 2:
                    app.kill9()
                    app = stack.enter_context(start_streams(broker, tmp_path, version))
                    counts.wait_for_line(began_ms)
                    report(f"Streams, killed too, counted after {time.monotonic() - began:.2f} s")
                else:
                    counts.wait_for_line(began_ms)
                    recovered_s.append(time.monotonic() - began)
        words = count_words(broker.address)
        counts.wait_for(words.total())
        app.close()

    assert "\nfailed" not in app.output
    written: dict[str, list[int]] = defaultdict(list)
    for each in read_committed(broker.address, OUTPUT, PARTITIONS):
        written[each.key().decode()].append(int.from_bytes(each.value(), "big"))
    times = ", ".join(f"{each:.2f}" for each in sorted(recovered_s))
    report(f"{words.total()} words, {kills} kills; counted again after {times} s")
    assert written == {word: list(range(1, count + 1)) for word, count in words.items()}


def count_words(address: str) -> Counter[str]:
    """Count the words of the committed lines."""
    lines = read_committed(address, INPUT, PARTITIONS)
    return Counter(word for line in lines for word in line.value().decode().split())
