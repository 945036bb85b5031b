"""LOOKUP and PARTITIONED_METADATA: where a topic is, and how many partitions it has.

Seed 000, "Service discovery". One node owns everything, so LOOKUP is always answered Connect,
authoritative, with the address that clients are told; it makes no topic. There are no listeners
besides that one, so a lookup that names one is refused. PARTITIONED_METADATA makes a topic that is
not there where the namespace's policy says so and gives it numbered partitions (others are made
when somebody produces or subscribes), unless the client says that it only looks
(metadata_auto_creation_enabled false). Both say what is wrong inside their own answer.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from trilogue.broker.access import Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, NeedsPartition, NotServed, UnknownTopic
from trilogue.broker.names import PulsarName, parse_pulsar
from trilogue.broker.naming import check_auto_create, check_kept, partitions_told
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection

CONNECT = CommandLookupTopicResponse.Connect
LOOKUP_FAILED = "lookupTopicResponse", CommandLookupTopicResponse.Failed
SUCCESS = CommandPartitionedTopicMetadataResponse.Success
PARTITIONS_FAILED = (
    "partitionMetadataResponse",
    CommandPartitionedTopicMetadataResponse.Failed,
)


def named(connection: PulsarConnection, spelled: str, operation: Operation) -> PulsarName:
    """Read a name and ask whether the client may do this with its topic."""
    name = parse_pulsar(spelled)
    check_kept(name)
    if not connection.may(operation, ResourceKind.TOPIC, name.topic):
        raise AccessDenied(operation, Resource(ResourceKind.TOPIC, str(name.topic)))
    return name


def lookup(connection: PulsarConnection, command: CommandLookupTopic, _frame: memoryview) -> None:
    """Say that it is here, whether there is such a topic or not (yet)."""
    try:
        named(connection, command.topic, Operation.DESCRIBE)
        if command.advertised_listener_name:
            raise NotServed(f"there is no listener {command.advertised_listener_name[:60]!r} here")
    except EXPECTED as problem:
        _refuse(connection, LOOKUP_FAILED, command.request_id, problem)
        return
    connection.say(
        "lookupTopicResponse",
        request_id=command.request_id,
        response=CONNECT,
        brokerServiceUrl=connection.door.url,
        authoritative=True,
    )


def partitions(
    connection: PulsarConnection, command: CommandPartitionedTopicMetadata, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Say how many partitions a topic has; 0 for one that is reached by its bare name."""
    try:
        name = named(connection, command.topic, Operation.DESCRIBE)
    except EXPECTED as problem:
        _refuse(connection, PARTITIONS_FAILED, command.request_id, problem)
        return None
    topic = connection.door.broker.cluster.find(name.topic)
    if topic is None:
        return _partitions(connection, command, name)
    count = 0 if name.partition is not None else partitions_told(topic)
    _tell(connection, command.request_id, count)
    return None


async def _partitions(
    connection: PulsarConnection, command: CommandPartitionedTopicMetadata, name: PulsarName
) -> None:
    door = connection.door
    count = 0
    try:
        if not command.metadata_auto_creation_enabled:
            raise UnknownTopic("there is no such topic")
        if _is_made_later(connection, name):
            _tell(connection, command.request_id, 0)
            return
        topic, _ = await door.made(name)
        count = 0 if name.partition is not None else partitions_told(topic)
    except NeedsPartition:  # it was made, and has some
        count = partitions_told(door.broker.cluster.topic(name.topic))
    except EXPECTED as problem:
        _refuse(connection, PARTITIONS_FAILED, command.request_id, problem)
        return
    _tell(connection, command.request_id, count)


def _is_made_later(connection: PulsarConnection, name: PulsarName) -> bool:
    """Whether a topic will have no numbered partitions, so that nobody has to know of it yet."""
    door = connection.door
    if door.broker.cluster.creating(name.topic) is not None:
        return False
    allowed = door.settings.auto_create_topics
    return not check_auto_create(door.broker, name, allowed=allowed).partitioned


def _tell(connection: PulsarConnection, request_id: int, count: int) -> None:
    connection.say(
        "partitionMetadataResponse", request_id=request_id, partitions=count, response=SUCCESS
    )


def _refuse(
    connection: PulsarConnection,
    failed: tuple[str, int],
    request_id: int,
    problem: BaseException,
) -> None:
    field, response = failed
    connection.say(
        field,
        request_id=request_id,
        response=response,
        error=code_of(problem),
        message=str(problem),
    )
