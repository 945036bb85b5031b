"""A power cut right after an administrator's response: the acknowledged change is kept.

Topics are created, grown and deleted, their settings and those of the broker are changed, through
librdkafka's admin client. A cut follows each step at once, with no other write that could sync it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.brokers import Trilogue
from tests.conformance.clients.base import Record
from tests.conformance.clients.confluent import Confluent
from tests.crash.faults import CutDisk
from tests.crash.parts import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROUNDS = 5


@pytest.fixture
def server(disk: CutDisk) -> Iterator[Trilogue]:
    made = Trilogue(disk.root / "data")
    made.start()
    yield made
    made.kill9()


class Desk:
    """An administrator whose every reply is the last thing before a power cut."""

    def __init__(self, server: Trilogue, disk: CutDisk) -> None:
        self.server = server
        self.disk = disk

    def request(self, method: str, requested: object, **how: object) -> object:
        client = AdminClient({"bootstrap.servers": self.server.address})
        (done,) = getattr(client, method)([requested], **how).values()
        return done.result(PATIENCE)

    def does(self, method: str, requested: object) -> None:
        self.request(method, requested)
        self.disk.cut_under(self.server)

    def set_value(self, kind: str, name: str, key: str, value: str | None) -> None:
        operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        self.does("incremental_alter_configs", resource)

    def get_value(self, kind: str, name: str, key: str) -> str:
        return self.request("describe_configs", ConfigResource(kind, name))[key].value

    def partitions(self) -> dict[str, int]:
        listed = AdminClient({"bootstrap.servers": self.server.address}).list_topics(
            timeout=PATIENCE
        )
        return {name: len(each.partitions) for name, each in listed.topics.items()}


def test_admin_changes_survive_a_power_cut_right_after_the_reply(
    server: Trilogue, disk: CutDisk, chance: random.Random, report: Callable[[object], None]
):
    desk = Desk(server, disk)
    topics: dict[str, int] = {}
    for round_ in range(ROUNDS):
        name, size = f"t{round_}", chance.randrange(1, 9)
        desk.does("create_topics", NewTopic(name, size, 1, config={"retention.ms": f"{size}000"}))
        topics[name] = size
        assert desk.partitions() == topics
        assert desk.get_value("topic", name, "retention.ms") == f"{size}000"
        desk.set_value("topic", name, "max.message.bytes", f"{1000 + round_}")
        assert desk.get_value("topic", name, "max.message.bytes") == f"{1000 + round_}"
        desk.does("create_partitions", NewPartitions(name, size + 2))
        topics[name] += 2
        assert desk.partitions() == topics
        desk.set_value("broker", "1", "log.retention.bytes", f"{round_}")
        assert desk.get_value("broker", "1", "log.retention.bytes") == f"{round_}"
        assert desk.get_value("topic", name, "retention.bytes") == f"{round_}"
        if round_ % 2:
            desk.does("delete_topics", name)
            del topics[name]
            assert desk.partitions() == topics
    desk.set_value("broker", "1", "log.retention.bytes", None)
    assert desk.get_value("broker", "1", "log.retention.bytes") == "-1"
    report(f"{5 * ROUNDS + ROUNDS // 2 - ROUNDS + 1} power cuts")


def test_records_that_were_deleted_stay_deleted(server: Trilogue, disk: CutDisk):
    desk = Desk(server, disk)
    desk.request("create_topics", NewTopic("t", 1, 1, config={"max.message.bytes": "2000"}))
    Confluent().write(server.address, "t", [Record(b"k", b"v")] * 10)

    for first in (3, 7):
        desk.does("delete_records", TopicPartition("t", 0, first))
        requested = {TopicPartition("t", 0): OffsetSpec.earliest()}
        admin = AdminClient({"bootstrap.servers": server.address})
        (found,) = admin.list_offsets(requested).values()
        assert found.result(PATIENCE).offset == first
