"""Versions of a topic's schema: numbered, kept in meta, gone with the topic."""

from __future__ import annotations

import json

import pytest

from tests.broker.topics.test_cluster import Room as ClusterRoom
from trilogue.broker.errors import ConcurrentChange, InvalidSchema, UnknownSchema
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import parse_kafka
from trilogue.broker.schemas import topic_schemas
from trilogue.broker.schemas.compatibility import Definition
from trilogue.broker.schemas.topic_schemas import (
    SIZE_MAX,
    VERSIONS_MAX,
    SchemaRegistry,
    check_reader_schema,
    check_schema,
)
from trilogue.broker.schemas.version_rows import TOPIC_KEY, Schema, topic_owner
from trilogue.broker.topics.policies import CompatibilityStrategy
from trilogue.broker.topics.topic import Topic
from trilogue.log.errors import CorruptLog

ALWAYS = CompatibilityStrategy.ALWAYS_COMPATIBLE


def avro(name: str) -> Definition:
    record = {"type": "record", "name": name, "fields": []}
    return Definition("AVRO", json.dumps(record).encode(), (("a", "b"),))


class Room(ClusterRoom):
    """A cluster, and the schemas beside it."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.schemas = SchemaRegistry(self.meta.state.settings, lambda: 777)
        self.cluster.deletion_ops.append(self.schemas.deletion_ops)

    def topic(self, name: str = "t") -> Topic:
        plan = self.cluster.plan_create(self.cluster.check_create(parse_kafka(name)))
        return self.carry_out(plan)

    def plan(self, topic: Topic, definition: Definition) -> MetadataChange[int]:
        current = self.schemas.current(topic)
        assert check_schema(definition, current, ALWAYS) is None
        return self.schemas.plan_add(topic, definition, current, "name")

    def add(self, topic: Topic, definition: Definition) -> int:
        return self.carry_out(self.plan(topic, definition))

    @property
    def kept(self) -> list[str]:
        return sorted(key for key in self.meta.state.settings if key.startswith(TOPIC_KEY))

    def again(self) -> SchemaRegistry:
        return SchemaRegistry(self.meta.state.settings, lambda: 888)


def test_versions_are_numbered_from_0_and_survive():
    room = Room()
    topic, other = room.topic(), room.topic("u")

    assert [room.add(topic, avro(name)) for name in "AB"] == [0, 1]
    assert room.add(other, avro("A")) == 0

    again = room.again()
    assert again.versions(topic) == room.schemas.versions(topic)
    assert again.newest(topic)[0] == 1
    assert again.get(topic, 0).definition == avro("A")
    assert (again.get(topic, 0).name, again.get(topic, 0).time_ms) == ("name", 777)
    assert again.current(other) == room.schemas.current(other)


def test_the_same_schema_is_the_same_version():
    room = Room()
    topic = room.topic()
    for name in "AB":
        room.add(topic, avro(name))

    current = room.schemas.current(topic)

    assert [check_schema(avro(name), current, CompatibilityStrategy.FULL) for name in "AB"] == [
        0,
        1,
    ]


def test_after_a_deletion_there_is_no_schema_and_no_number_is_given_again():
    room = Room()
    topic = room.topic()
    room.add(topic, avro("A"))

    assert room.carry_out(room.schemas.plan_delete(topic)) == 1

    for schemas in (room.schemas, room.again()):
        assert schemas.current(topic) == []
        with pytest.raises(UnknownSchema):
            schemas.newest(topic)
        for version in range(3):
            with pytest.raises(UnknownSchema):
                schemas.get(topic, version)
    with pytest.raises(UnknownSchema):
        room.schemas.plan_delete(topic)
    assert room.add(topic, avro("A")) == 2
    assert room.schemas.newest(topic)[0] == 2
    assert room.schemas.get(topic, 2).definition == avro("A")
    with pytest.raises(UnknownSchema):
        room.schemas.get(topic, 0)


def test_purge_removes_all_versions():
    room = Room()
    topic, other = room.topic(), room.topic("u")
    for each in (topic, other):
        room.add(each, avro("A"))
    room.carry_out(room.schemas.plan_delete(topic))

    room.carry_out(room.schemas.plan_purge(topic))

    for schemas in (room.schemas, room.again()):
        assert schemas.versions(topic) == []
        assert len(schemas.versions(other)) == 1
    assert room.add(topic, avro("B")) == 0


def test_concurrent_schemas_get_different_versions():
    room = Room()
    topic = room.topic()
    first, second = room.plan(topic, avro("A")), room.plan(topic, avro("B"))
    room.carry_out(first)

    with pytest.raises(ConcurrentChange):
        room.carry_out(second)
    with pytest.raises(ConcurrentChange):
        room.schemas.plan_add(topic, avro("B"), [])
    assert room.add(topic, avro("B")) == 1


def test_schemas_go_with_their_topic():
    room = Room()
    topic, other = room.topic(), room.topic("u")
    for each in (topic, other):
        room.add(each, avro("A"))
    under_way = room.plan(topic, avro("B"))
    late = room.plan(topic, avro("C"))
    delete = room.cluster.plan_delete(topic.name)
    room.meta.write_now(under_way.ops(), under_way.preconditions)  # durable, and not true yet

    room.meta.write_now(delete.ops(), delete.preconditions)
    under_way.apply()
    delete.apply()
    room.schemas.forget(topic)

    assert room.kept == [f"{TOPIC_KEY}{other.topic_id.hex()}/0"]
    assert room.schemas.versions(topic) == []
    with pytest.raises(ConcurrentChange):
        room.carry_out(late)
    assert room.kept == [f"{TOPIC_KEY}{other.topic_id.hex()}/0"]


def test_a_topic_keeps_a_bounded_number_of_versions():
    room = Room()
    topic = room.topic()
    for number in range(VERSIONS_MAX):
        room.schemas.rows.put(
            topic_owner(topic.topic_id), number, Schema("AVRO", avro(f"R{number}").data)
        )

    with pytest.raises(InvalidSchema, match=str(VERSIONS_MAX)):
        room.schemas.plan_delete(topic)


def test_a_topic_keeps_a_bounded_size_of_schemas():
    room = Room()
    topic = room.topic()
    large = json.dumps({"type": "record", "name": "R", "doc": "x" * 500_000, "fields": []})
    for number in range(SIZE_MAX // len(large)):
        room.add(topic, Definition("AVRO", large.replace('"R"', f'"R{number}"').encode()))

    with pytest.raises(InvalidSchema, match="bytes"):
        room.add(topic, Definition("AVRO", large.encode()))


def test_a_reader_must_read_what_there_is():
    room = Room()
    topic = room.topic()
    with pytest.raises(Exception, match="does not have a schema"):
        check_reader_schema(avro("A"), room.schemas.current(topic), CompatibilityStrategy.FULL)
    room.add(topic, avro("A"))

    check_reader_schema(avro("A"), room.schemas.current(topic), CompatibilityStrategy.FORWARD)


def test_unreadable_schema_in_meta_raises_corrupt_log():
    for key, text in (
        (f"{TOPIC_KEY}00/0", "{"),
        (f"{TOPIC_KEY}xx/0", '{"kind":"AVRO"}'),
        (f"{TOPIC_KEY}00/", "{}"),
    ):
        with pytest.raises(CorruptLog):
            SchemaRegistry({key: text}, lambda: 0)


def test_all_schemas_of_all_topics_have_a_bound(monkeypatch: pytest.MonkeyPatch):
    room = Room()
    first, second = room.topic("first"), room.topic("second")
    room.add(first, avro("a"))
    monkeypatch.setattr(topic_schemas, "ALL_SIZE_MAX", room.schemas.rows.size_bytes)

    with pytest.raises(InvalidSchema, match="all schemas of topics and subjects"):
        room.add(second, avro("a"))
    room.carry_out(room.schemas.plan_delete(first))
    room.carry_out(room.schemas.plan_purge(first))
    assert room.schemas.rows.size_bytes == 0
    room.add(second, avro("a"))
