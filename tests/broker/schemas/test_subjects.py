"""Subjects: which versions they have, and changes of a subject and its topic at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.schemas.test_topic_schemas import Room, avro
from trilogue.broker.errors import ConcurrentChange, InvalidName, InvalidSchema
from trilogue.broker.names import parse_pulsar
from trilogue.broker.schemas import subjects as subjects_module
from trilogue.broker.schemas.sources import NESTED_MAX, Reference, SchemaSource, make_definition
from trilogue.broker.schemas.subjects import Subjects, find_resource


class Registry(Room):
    """A room with the subjects of its topics."""

    def __init__(self) -> None:
        super().__init__()
        self.subjects = Subjects({}, self.schemas, self.cluster, lambda: 0)

    def plan_version(self, name: str, text: str, *references: Reference) -> Any:
        source = SchemaSource(text, references=references)
        resolved = self.subjects.resolve(references)
        subject = self.subjects.find_subject(name)
        known = self.subjects.versions(subject)
        return self.subjects.plan_register(subject, *make_definition(source, resolved), known)

    def register(self, name: str, text: str, *references: Reference) -> int:
        result: int = self.carry_out(self.plan_version(name, text, *references))
        return result

    def numbers(self, name: str) -> list[int]:
        return [each.number for each in self.subjects.versions(self.subjects.find_subject(name))]


def record(name: str, *fields: str) -> str:
    parts = ",".join(f'{{"name":"{each}","type":"int","default":0}}' for each in fields)
    return f'{{"type":"record","name":"{name}","fields":[{parts}]}}'


def test_ids_count_from_1_and_survive():
    room = Registry()
    ids = [room.register("s", record("A")), room.register("s", record("A", "x"))]

    assert ids == [1, 2]
    assert room.register("other", record("A")) == 1
    again = Subjects(room.meta.state.settings, room.again(), room.cluster, lambda: 0)
    sources = [again.source_by_id(each) for each in ids]
    assert sources == [room.subjects.source_by_id(each) for each in ids]
    assert again.last_id == 2
    assert [each.number for each in again.versions(again.find_subject("s"))] == [1, 2]
    assert sorted(again.names()) == ["other", "s"]


def test_two_clients_at_the_same_time_get_different_ids():
    room = Registry()
    first, second = room.plan_version("s", record("A")), room.plan_version("t", record("B"))

    assert room.carry_out(second) == 2
    assert room.carry_out(first) == 1


def test_two_clients_with_the_same_schema_get_one_id():
    room = Registry()
    first, second = room.plan_version("s", record("A")), room.plan_version("t", record("A"))

    assert room.carry_out(first) == 1
    with pytest.raises(ConcurrentChange):
        room.carry_out(second)
    assert room.register("t", record("A")) == 1
    assert room.register("t", record("B")) == 2


def test_a_registration_loses_against_the_creation_of_its_topic():
    room = Registry()
    late = room.plan_version("t-value", record("A"))
    topic = room.topic("t")
    room.add(topic, avro("B"))

    with pytest.raises(ConcurrentChange):
        room.carry_out(late)
    assert room.numbers("t-value") == [1]


def test_a_topic_goes_on_with_the_versions_of_its_subject():
    room = Registry()
    room.register("t-value", record("A"))
    topic = room.topic("t")

    assert room.add(topic, avro("B")) == 1
    assert [version for version, _ in room.schemas.versions(topic)] == [0, 1]
    assert room.register("t-value", record("C")) == 2
    assert room.numbers("t-value") == [1, 2, 3]
    assert {name for name, _ in room.subjects.users(1)} == {"t-value"}


def test_the_versions_of_a_topic_go_with_it():
    room = Registry()
    room.register("t-value", record("A"))
    topic = room.topic("t")
    room.register("t-value", record("B"))
    room.carry_out(room.cluster.plan_delete(topic.name))
    room.schemas.forget(topic)

    assert room.numbers("t-value") == []
    left = room.meta.state.settings
    assert not [key for key in left if key.startswith(("schemas/", "subjects/"))]
    assert room.subjects.source_by_id(1).text == record("A")


def test_versions_of_pulsar_clients_get_ids():
    room = Registry()
    topic = room.topic("t")
    room.add(topic, avro("A"))
    room.add(topic, avro("B"))
    versions = room.subjects.versions(room.subjects.find_subject("t-value"))
    room.carry_out(room.subjects.plan_number(versions))

    found = room.subjects.versions(room.subjects.find_subject("t-value"))
    assert [each.schema.schema_id for each in found] == [1, 2]
    assert room.subjects.plan_number(found) is None
    assert room.register("other", versions[1].schema.data.decode()) == 2


def test_a_deletion_by_pulsar_hides_what_was_before():
    room = Registry()
    topic = room.topic("t")
    room.add(topic, avro("A"))
    room.carry_out(room.schemas.plan_delete(topic))
    subject = room.subjects.find_subject("t-value")

    assert room.numbers("t-value") == []
    every = room.subjects.versions(subject, deleted=True)
    assert [(each.number, each.is_deleted) for each in every] == [(1, True)]
    room.carry_out(room.subjects.plan_remove(subject, every))
    assert room.schemas.versions(topic) == []
    assert room.kept == []


def test_a_hidden_version_is_not_current_for_pulsar():
    room = Registry()
    topic = room.topic("t")
    room.add(topic, avro("A"))
    room.add(topic, avro("B"))
    versions = room.subjects.versions(room.subjects.find_subject("t-value"))
    room.carry_out(room.subjects.plan_hide(versions[1:]))

    assert [version for version, _ in room.schemas.current(topic)] == [0]
    assert room.add(topic, avro("C")) == 2


def test_references_are_bounded():
    room = Registry()
    room.register("s0", record("R0"))
    for level in range(1, NESTED_MAX + 1):
        below = Reference(f"R{level - 1}", f"s{level - 1}", 1)
        room.register(f"s{level}", record(f"R{level}"), below)
    last = Reference("R", f"s{NESTED_MAX}", 1)

    with pytest.raises(InvalidSchema, match="levels"):
        room.plan_version("top", record("Top"), last)
    with pytest.raises(InvalidSchema, match="references"):
        room.plan_version("top", record("Top"), *[Reference("R0", "s0", 1)] * 101)
    with pytest.raises(InvalidSchema, match="no version"):
        room.plan_version("top", record("Top"), Reference("R0", "s0", 7))


def test_ids_and_names_are_bounded(monkeypatch: pytest.MonkeyPatch):
    room = Registry()
    monkeypatch.setattr(subjects_module, "IDS_MAX", 2)
    room.register("s", record("A"))
    room.register("s", record("B"))

    with pytest.raises(InvalidSchema, match="at most 2"):
        room.plan_version("s", record("C"))
    for name in ("", "x" * 1_025, "a\nb"):
        with pytest.raises(InvalidName):
            room.subjects.find_subject(name)


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-value", "public/default/orders"),
        ("orders-key", "public/default/orders"),
        ("acme/shop/orders-value", "acme/shop/orders"),
        ("com.acme.Order", "public/default/com.acme.Order"),
        ("a b", "a b"),
    ],
)
def test_the_topic_that_protects_a_subject(subject, topic):
    assert find_resource(subject) == topic


def test_a_subject_has_one_name():
    room = Registry()
    room.register("public/default/t-value", record("A"))
    topic = room.topic("t")

    assert list(room.subjects.names()) == ["t-value"]
    assert [version for version, _ in room.schemas.versions(topic)] == [0]
    assert room.numbers("t-value") == room.numbers("public/default/t-value") == [1]


def test_topics_that_kafka_cannot_name_have_no_subject():
    room = Registry()
    name = parse_pulsar("persistent://public/default/größe 1").topic
    topic = room.carry_out(room.cluster.plan_create(room.cluster.check_create(name)))
    room.add(topic, avro("A"))

    assert list(room.subjects.names()) == []


def test_a_schema_and_those_below_it_have_so_many_references(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subjects_module, "RESOLVED_MAX", 3)
    room = Registry()
    room.register("a", record("A"))
    room.register("b", record("B"), Reference("A", "a", 1))
    room.register("c", record("C"), Reference("A", "a", 1), Reference("B", "b", 1))

    with pytest.raises(InvalidSchema, match="at most 3 references"):
        room.register("d", record("D"), Reference("C", "c", 1), Reference("B", "b", 1))


def test_names_of_references_count_as_size_of_an_id(monkeypatch: pytest.MonkeyPatch):
    room = Registry()
    room.register("a", record("A"))
    monkeypatch.setattr(subjects_module, "IDS_SIZE_MAX", 1_000)

    with pytest.raises(InvalidSchema, match="1000 bytes together"):
        room.register("b", record("B"), Reference("A" * 1_000, "a", 1))


def test_only_a_version_that_is_in_use_keeps_what_it_references():
    room = Registry()
    room.register("a", record("A"))
    used = room.register("b", record("B"), Reference("A", "a", 1))

    assert room.subjects.referrers("a", [1, 2]) == [used]
    assert room.subjects.referrers("a", [2]) == []
    again = Subjects(room.meta.state.settings, room.again(), room.cluster, lambda: 0)
    assert again.referrers("a", [1]) == [used]
    versions = room.subjects.versions(room.subjects.find_subject("b"))
    room.carry_out(room.subjects.plan_hide(versions))
    assert room.subjects.referrers("a", [1]) == []
