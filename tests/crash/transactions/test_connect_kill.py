"""Kafka Connect's exactly-once source while the server is killed, and its worker once.

The file source reads a file that grows, each poll in a transaction. The committed messages of its
topic have to be the lines of the file, in order, each once.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.brokers import Broker
from tests.conformance.clients.kafka_apps import wait
from tests.conformance.clients.kafka_connect import ConnectWorker
from tests.crash.load import create_topic, running
from tests.crash.parts import PATIENCE, Part
from tests.crash.transactions.transaction_load import (
    TRANSACTION_TIMEOUT_MS,
    make_reader,
    read_committed,
)

TOPIC = "file-lines"
SOURCE: dict[str, object] = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "exactly.once.support": "required",
    "tasks.max": 1,
    "topic": TOPIC,
    "producer.override.transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
}
LINES, PAUSE_S = 10, 0.02
LINES_BETWEEN_KILLS = 400

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.timeout(600)]


class LineAppender(Part):
    """Appends numbered lines to a file. `count`: how many are in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.count = 0

    def run(self) -> None:
        with self.path.open("a") as file:
            while not self.stopping.wait(PAUSE_S):
                file.writelines(f"line {self.count + each}\n" for each in range(LINES))
                file.flush()
                self.count += LINES


class LineReader:
    """Follows the committed lines. `last`: the number of the newest one."""

    def __init__(self, reader: Consumer) -> None:
        self.reader = reader
        self.last = -1

    def wait_for(self, number: int) -> None:
        ends = time.monotonic() + PATIENCE
        while self.last < number:
            assert time.monotonic() < ends, f"line {self.last}, not {number}"
            for message in self.reader.consume(1_000, 0.1):
                if message.error() is None:
                    self.last = int(message.value().split()[1])


@contextlib.contextmanager
def start_worker(broker: Broker, root: Path, version: str) -> Iterator[ConnectWorker]:
    settings = {"exactly.once.source.support": "enabled"}
    with ConnectWorker(broker.address, root, version, settings) as worker:
        wait("the worker", worker.serves)
        yield worker


@pytest.mark.parametrize(
    ("version", "kills"),
    [
        ("3.9.1", 4),
        pytest.param("3.9.1", 25, marks=pytest.mark.long),
        pytest.param("4.3.1", 6, marks=pytest.mark.long),
    ],
)
def test_each_line_comes_exactly_once(
    broker: Broker,
    chance: random.Random,
    report: Callable[[object], None],
    tmp_path: Path,
    *,
    version: str,
    kills: int,
):
    create_topic(broker.address, TOPIC, 1)
    appender = LineAppender(tmp_path / "source.txt")
    recovered_s: list[float] = []
    with contextlib.ExitStack() as stack:
        reader = LineReader(
            stack.enter_context(contextlib.closing(make_reader(broker.address, TOPIC, 1)))
        )
        worker = stack.enter_context(start_worker(broker, tmp_path, version))
        config = {**SOURCE, "file": appender.path}
        worker.request("/connectors", {"name": "source", "config": config}, "POST")
        with running([appender]):
            for kill in range(kills):
                reader.wait_for(reader.last + LINES_BETWEEN_KILLS)
                time.sleep(chance.uniform(0, 0.2))  # by design: at any moment of a transaction
                broker.kill9()
                broker.start()
                began, appended = time.monotonic(), appender.count
                if kill == kills // 2:
                    worker.kill9()
                    worker = stack.enter_context(start_worker(broker, tmp_path, version))
                    reader.wait_for(appended)
                    report(
                        f"the worker, killed too, went on after {time.monotonic() - began:.2f} s"
                    )
                else:
                    reader.wait_for(appended)
                    recovered_s.append(time.monotonic() - began)
        reader.wait_for(appender.count - 1)
        assert worker.runs("source")
        worker.stop()

    times = ", ".join(f"{each:.2f}" for each in sorted(recovered_s))
    report(f"{appender.count} lines, {kills} kills; new lines again after {times} s")
    found = [each.value().decode() for each in read_committed(broker.address, TOPIC, 1)]
    assert found == appender.path.read_text().splitlines()
