"""Oracle: our tables against Kafka's own definitions, version by version, field by field."""

from __future__ import annotations

import pytest

from tests.wire.kafka.definitions import (
    RELEASES,
    Row,
    definition,
    find_jar,
    require_definitions,
    rows,
)
from tests.wire.kafka.instances import SPOKEN, Spoken
from trilogue.wire.kafka.api import MESSAGES, OWN_KEYS
from trilogue.wire.kafka.codec.schema import Field, Wire, is_message, table
from trilogue.wire.kafka.groups import group_records
from trilogue.wire.kafka.groups import member_metadata as membership

TYPES = {
    "b": "int8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32", "q": "int64",
    "d": "float64", "?": "bool", "16s": "uuid",
}  # fmt: skip
# Names of structures that Kafka uses in several APIs for different structures.
KAFKA_NAMES = {
    "AlterQuotasEntry": "EntryData", "AlterQuotasOp": "OpData", "AlterQuotasResult": "EntryData",
    "DescribeProducersTopic": "TopicRequest", "DescribeQuorumPartition": "PartitionData",
    "DescribeQuorumTopic": "TopicData", "DescribeQuotasEntry": "EntryData",
    "DescribeTopicPartitionsTopic": "TopicRequest", "DescribedAssignment": "Assignment",
    "DescribedConsumerGroup": "DescribedGroup", "DescribedConsumerGroupMember": "Member",
    "DescribedTopicPartitions": "TopicPartitions", "DescribedTransaction": "TransactionState",
    "DivergingEpoch": "EpochEndOffset", "ElectionTopic": "TopicPartitions",
    "HeartbeatAssignment": "Assignment", "HeartbeatTopicPartitions": "TopicPartitions",
    "IncrementalAlterConfigsResource": "AlterConfigsResource",
    "IncrementalAlterableConfig": "AlterableConfig", "ListedTransaction": "TransactionState",
    "QuorumListener": "Listener", "QuorumNode": "Node", "QuorumPartition": "PartitionData",
    "QuorumReplica": "ReplicaState", "QuorumTopic": "TopicData", "TransactionTopic": "TopicData",
    "ShareHeartbeatAssignment": "Assignment", "ShareHeartbeatTopicPartitions": "TopicPartitions",
    "DescribedShareAssignment": "Assignment", "DescribedShareTopicPartitions": "TopicPartitions",
    "DescribedShareGroup": "DescribedGroup", "DescribedShareGroupMember": "Member",
    "ShareFetchTopic": "FetchTopic", "ShareFetchPartition": "FetchPartition",
    "ShareForgottenTopic": "ForgottenTopic", "SharePartitionData": "PartitionData",
    "AcknowledgePartitionData": "PartitionData", "SharePartitionLeader": "LeaderIdAndEpoch",
    "StreamsKeyValue": "KeyValue", "StreamsTopicInfo": "TopicInfo", "StreamsTaskIds": "TaskIds",
    "StreamsCopartitionGroup": "CopartitionGroup", "StreamsSubtopology": "Subtopology",
    "StreamsTopology": "Topology", "StreamsEndpoint": "Endpoint", "StreamsStatus": "Status",
    "StreamsTaskOffset": "TaskOffset", "StreamsTopicPartitions": "TopicPartition",
    "StreamsEndpointPartitions": "EndpointToPartitions", "DescribedSubtopology": "Subtopology",
    "DescribedTopology": "Topology", "DescribedTasks": "Assignment",
    "DescribedStreamsMember": "Member", "DescribedStreamsGroup": "DescribedGroup",
}  # fmt: skip
COORDINATOR, COORDINATOR_RELEASE = "kafka-group-coordinator", "4.3.1"
# Their v0 was of early access: later releases do not have it, and other fields in its place.
CHANGED_BEFORE_STABLE = {76, 77, 78, 79}
BLOBS = {"ConsumerProtocolSubscription": membership.Subscription,
         "ConsumerProtocolAssignment": membership.Assignment}  # fmt: skip


def declared(cls: type, version: int) -> tuple[Row, ...]:
    """Our table of one version, in the form of Kafka's definitions."""
    return tuple(_declared(field, version) for field in table(cls).fields if field.present(version))


def _declared(field: Field, version: int) -> Row:
    inner = field.item if isinstance(field.item, type) else None
    plain_default = field.default if inner is None or field.default in (None, []) else "structure"
    return Row(
        name=field.name,
        type=_type(field.wire, field.item),
        nullable=field.nullable(version),
        tag=field.tag if field.is_tagged(version) else None,
        default=plain_default,
        fields=None if inner is None else declared(inner, version),
    )


def _type(wire: Wire, item: type | Wire | None) -> str:
    if wire.kind == "array":
        return "[]" + (_type(item, None) if isinstance(item, Wire) else _type(Wire("struct"), item))
    if wire.kind == "struct":
        assert is_message(item)
        return KAFKA_NAMES.get(item.__name__, item.__name__)
    return TYPES[wire.code] if wire.kind == "fixed" else wire.kind


@pytest.mark.parametrize(
    "spoken", [each for each in SPOKEN if table(each.cls).key < OWN_KEYS], ids=str
)
def test_every_version_has_the_fields_of_kafkas_definition(spoken: Spoken):
    for release in RELEASES:
        require_definitions(release)
    cls, version = spoken
    theirs = [one for release in RELEASES if (one := definition(release, cls.__name__))]
    defined = [rows(one, version) for one in theirs if one.first <= version <= one.last]

    assert defined, f"Kafka {' and '.join(RELEASES)} have no version {version} of {cls.__name__}"
    for one in defined:
        assert declared(cls, version) == one


@pytest.mark.parametrize(
    "cls", [cls for key, pair in MESSAGES.items() if key < OWN_KEYS for cls in pair]
)
def test_key_versions_and_flexibility_are_those_of_both_releases_together(cls: type):
    for release in RELEASES:
        require_definitions(release)
    ours = table(cls)
    theirs = [one for release in RELEASES if (one := definition(release, cls.__name__))]
    if ours.key in CHANGED_BEFORE_STABLE:
        theirs = theirs[-1:]

    assert {one.key for one in theirs} == {ours.key}
    assert {one.flexible for one in theirs} == {ours.flexible}
    assert (min(one.first for one in theirs), max(one.last for one in theirs)) == (
        ours.first,
        ours.last,
    )


@pytest.mark.parametrize("name", BLOBS)
@pytest.mark.parametrize("release", RELEASES)
def test_membership_blobs_are_those_of_kafkas_definition(name: str, release: str):
    require_definitions(release)
    theirs, ours = definition(release, name), BLOBS[name]

    assert (theirs.first, theirs.last) == (table(ours).first, table(ours).last)
    for version in range(theirs.first, theirs.last + 1):
        assert _renamed(declared(ours, version)) == _renamed(rows(theirs, version))


def _renamed(found: tuple[Row, ...]) -> tuple[Row, ...]:
    """Kafka's nested structure has one name in both blobs, ours has two."""
    return tuple(row._replace(type="[]TopicPartition" if row.fields else row.type) for row in found)


@pytest.mark.parametrize("cls", group_records.KIND_OF_VALUE, ids=lambda cls: cls.__name__)
def test_records_of_groups_are_those_of_kafkas_definition(cls: type):
    require_definitions(COORDINATOR_RELEASE, COORDINATOR)
    theirs, ours = definition(COORDINATOR_RELEASE, cls.__name__, COORDINATOR), table(cls)
    key = definition(COORDINATOR_RELEASE, cls.__name__.removesuffix("Value") + "Key", COORDINATOR)

    assert (theirs.first, theirs.last, theirs.flexible) == (ours.first, ours.last, ours.flexible)
    assert theirs.key == key.key == group_records.KIND_OF_VALUE[cls]
    assert _unnamed(declared(cls, 0)) == _unnamed(rows(theirs, 0))


def _unnamed(found: tuple[Row, ...]) -> tuple[Row, ...]:
    """Kafka gives structures of records the names of others, in other messages."""
    return tuple(
        row._replace(
            type="array" if row.type.startswith("[]") else "struct", fields=_unnamed(row.fields)
        )
        if row.fields
        else row
        for row in found
    )


def test_every_request_of_the_table_meets_its_response():
    for key, (request, response) in MESSAGES.items():
        assert table(request).key == table(response).key == key
        assert table(request).first == table(response).first
        assert table(request).last == table(response).last
        assert request.__name__.removesuffix("Request") == response.__name__.removesuffix(
            "Response"
        )


def test_jars_are_found_in_the_directory_of_the_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("TRILOGUE_KAFKA_JARS", str(tmp_path))
    (tmp_path / "kafka-clients-1.2.3.jar").touch()

    assert find_jar("1.2.3") == tmp_path / "kafka-clients-1.2.3.jar"
    assert find_jar("0.0.0") is None


def test_names_of_classes_are_unique():
    classes: dict[str, type] = {}

    def visit(cls: type) -> None:
        assert classes.setdefault(cls.__name__, cls) is cls
        for field in table(cls).fields:
            if isinstance(field.item, type):
                visit(field.item)

    for pair in MESSAGES.values():
        for cls in pair:
            visit(cls)

    assert KAFKA_NAMES.keys() <= classes.keys()
