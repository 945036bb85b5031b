"""The two servers of a benchmark, started the same way: on a fresh directory of a real disk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.server import Server, launch_server
from tools.servers.kafka import RealKafka
from tools.servers.probe import free_port, wait_for_answer

KAFKA, TRILOGUE = "kafka", "trilogue"


class Contender(Protocol):
    """A server under measurement."""

    name: str
    started_in: float

    @property
    def address(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def data(self) -> Path: ...
    def start(self) -> object: ...
    def stop(self) -> int: ...
    def kill9(self) -> None: ...


class Trilogue:
    """Ours; `started_in` counts from the exec to the first answer, as for the other."""

    name = TRILOGUE

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.port = free_port()
        self.started_in = 0.0
        self.server: Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.server is not None
        return self.server.pid

    def start(self) -> Trilogue:
        began = time.monotonic()
        listen = {"kafka": self.address, "http": "127.0.0.1:0"}
        self.server = launch_server(self.data, listen=listen)
        self.started_in = wait_for_answer(self.address, self.pid) - began
        self.server.wait_ready()
        return self

    def stop(self) -> int:
        assert self.server is not None
        return self.server.stop()

    def kill9(self) -> None:
        if self.server is not None:
            self.server.kill9()


def make(name: str, root: Path, *, kafka_version: str) -> Contender:
    """A server that is not started; the real Kafka syncs every batch, as ours does."""
    root.mkdir(parents=True, exist_ok=True)
    if name == TRILOGUE:
        return Trilogue(root)
    return RealKafka(root, version=kafka_version, durable=True)


def create_topic(address: str, topic: str, partitions: int) -> None:
    """Create it and wait until every partition answers: a leader in the metadata is not enough."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    (made,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
    made.result(60)
    places = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            for found in admin.list_offsets(places).values():
                found.result(10)
        except KafkaException:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"{topic}: not all of {partitions} partitions answer")


def stored_messages(address: str, topic: str, partitions: int) -> int:
    """What the end offsets say is there."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    places = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    return sum(found.result(30).offset for found in admin.list_offsets(places).values())
