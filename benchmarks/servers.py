"""The servers of a benchmark, started the same way: on a fresh directory of a real disk.

`kafka` syncs every batch before its ack, as ours does; `kafka-default` is the same one with its own
default, which acknowledges from the page cache.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.server import Server, launch_server
from tools.servers.kafka import RealKafka
from tools.servers.probe import LOOK_EVERY, answers, free_port

from benchmarks.gates import KAFKA_DEFAULT, TRILOGUE
from trilogue.node.gateways import LOAD_AFTER_S

START_LIMIT_S = 120.0
LOADED_IN_S = LOAD_AFTER_S + 1.0
"""From a start of ours until it has begun to load what requests need: that is no part of what a
load costs, and whoever waits for an idle server then waits for its end."""
ADMIN = {"log_level": 2}
PROGRAM = ("env",)  # not forked: a start counts from the exec, and memory is a process's own
# A topic that was deleted gives up its files soon: a run writes more than there may be room for.
DELETE_SOON = {"log.segment.delete.delay.ms": 1_000}


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
    def empty_tail(self) -> None: ...


class Kafka(RealKafka):
    """A real one, with or without a sync before each ack."""

    def __init__(
        self,
        root: Path,
        name: str,
        version: str,
        settings: Mapping[str, object] | None = None,
        secured: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            root,
            version=version,
            durable=name != KAFKA_DEFAULT,
            settings={**DELETE_SOON, **(settings or {})},
            secured=secured,
        )
        self.name = name

    def empty_tail(self) -> None:
        """It has none."""


class Trilogue:
    """Ours; `started_in` counts from the exec to the first answer, as for the other."""

    name = TRILOGUE

    def __init__(
        self, root: Path, doors: Iterable[str] = (), settings: Mapping[str, object] | None = None
    ) -> None:
        """`doors` besides that of Kafka; they keep their ports through restarts."""
        self.data = root / "data"
        self.settings = settings
        self.doors = {name: f"127.0.0.1:{free_port()}" for name in ("kafka", *doors)}
        self.started_in = 0.0
        self.server: Server | None = None

    @property
    def address(self) -> str:
        return self.doors["kafka"]

    @property
    def pid(self) -> int:
        assert self.server is not None
        return self.server.pid

    @property
    def http(self) -> str:
        assert self.server is not None
        return self.server.http

    def answers(self) -> bool:
        """Return whether a client of the measured protocol gets a response."""
        return answers(self.address)

    def start(self) -> Self:
        began = time.monotonic()
        self.server = launch_server(
            self.data,
            listen={"http": "127.0.0.1:0", **self.doors},
            settings=self.settings,
            wrapper=PROGRAM,
        )
        while not self.answers():
            if time.monotonic() - began > START_LIMIT_S or not self.server.alive:
                raise RuntimeError(f"no answer:\n{self.server.output}")
            time.sleep(LOOK_EVERY)
        self.started_in = time.monotonic() - began
        self.server.wait_ready()
        return self

    def stop(self) -> int:
        assert self.server is not None
        return self.server.stop()

    def kill9(self) -> None:
        if self.server is not None:
            self.server.kill9()

    def empty_tail(self) -> None:
        """Everything in segments, nothing in memory: an orderly end and a new start."""
        self.stop()
        self.start_loaded()

    def start_loaded(self) -> None:
        """Start, and wait until what follows the start has begun: `settle` waits for its end."""
        self.start()
        time.sleep(LOADED_IN_S)


def make(name: str, root: Path, *, kafka_version: str) -> Contender:
    """A server that is not started."""
    root.mkdir(parents=True, exist_ok=True)
    if name == TRILOGUE:
        return Trilogue(root)
    return Kafka(root, name, kafka_version)


def create_topic(
    address: str, topic: str, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """Create it and wait until every partition answers: a leader in the metadata is not enough."""
    admin = AdminClient({"bootstrap.servers": address, **ADMIN})
    (made,) = admin.create_topics(
        [NewTopic(topic, partitions, 1, config=dict(config or {}))]
    ).values()
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


def delete_topic(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, **ADMIN})  # gone, it would answer nothing
    (gone,) = admin.delete_topics([topic]).values()
    gone.result(60)


def stored_messages(address: str, topic: str, partitions: int) -> int:
    """Return the number of messages by the end offsets."""
    admin = AdminClient({"bootstrap.servers": address, **ADMIN})
    places = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    return sum(found.result(30).offset for found in admin.list_offsets(places).values())
