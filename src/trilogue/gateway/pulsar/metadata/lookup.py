"""LOOKUP and PARTITIONED_METADATA: which broker serves a topic, and how many partitions it has.

LOOKUP is answered Connect, authoritative, with the advertised address of the owner; it creates no
topic, and one that does not exist yet is created by the node that is asked. A namespace that does
not exist is refused, and so is the name of a listener that the owner does not have.
PARTITIONED_METADATA creates a topic that does not exist where the namespace's policy says so and
gives it numbered partitions (topics without them are created by the first producer or consumer),
unless the client sets metadata_auto_creation_enabled to false, or may only describe the topic. Both
report a failure inside their own answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from trilogue.broker.access.authorizer import CLUSTER, Operation, Resource, ResourceKind
from trilogue.broker.broker import Broker
from trilogue.broker.errors import (
    AccessDenied,
    NotServed,
    PartitionRequired,
    UnknownNamespace,
    UnknownTopic,
)
from trilogue.broker.names import PulsarName, TopicName, parse_pulsar
from trilogue.broker.topics.lookup import (
    check_auto_create,
    coordinators,
    find_owner,
    is_coordinator_topic,
    numbered_partition_count,
)
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.gateway.pulsar.metadata.subscription_access import AuthorizedClient
from trilogue.gateway.pulsar.metadata.tenant_access import is_missing_tenant
from trilogue.gateway.pulsar.non_persistent.topics import count_partitions
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)

CONNECT = CommandLookupTopicResponse.Connect
LOOKUP_FAILED = "lookupTopicResponse", CommandLookupTopicResponse.Failed
SUCCESS = CommandPartitionedTopicMetadataResponse.Success
PARTITIONS_FAILED = (
    "partitionMetadataResponse",
    CommandPartitionedTopicMetadataResponse.Failed,
)


def parse_authorized(
    connection: PulsarConnection, spelled: str, operation: Operation
) -> PulsarName:
    """Return the topic that a client names, if it may do this with it.

    Raises InvalidName or AccessDenied. The topic need not be a persistent one.
    """
    name = parse_pulsar(spelled)
    cluster = connection.gateway.broker.cluster
    if operation is Operation.DESCRIBE and is_coordinator_topic(cluster, name):
        return name
    if not connection.is_allowed(operation, ResourceKind.TOPIC, name.topic):
        raise AccessDenied(operation, Resource(ResourceKind.TOPIC, str(name.topic)))
    return name


def may_create(client: AuthorizedClient, topic: TopicName) -> bool:
    """Return whether a client that names a topic may create it: not if it may only describe it.

    Pulsar's producers and consumers create topics; Kafka's clients need CREATE for that.
    """
    return client.can_see(Operation.CREATE, *CLUSTER) or any(
        client.can_see(operation, ResourceKind.TOPIC, str(topic))
        for operation in (Operation.WRITE, Operation.READ, Operation.CREATE)
    )


def handle_lookup(
    connection: PulsarConnection, command: CommandLookupTopic, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Send the owner's address, whether the topic exists (yet) or not; its namespace must."""
    try:
        name = parse_authorized(connection, command.topic, Operation.DESCRIBE)
    except EXPECTED as problem:
        _send_failure(connection, LOOKUP_FAILED, command.request_id, problem)
        return None
    gateway = connection.gateway
    if gateway.catch_up is None or _is_known(gateway.broker, name):
        _send_owner(connection, command, name)
        return None
    return _find_and_send_owner(connection, command, name, gateway.catch_up)


def _is_known(broker: Broker, name: PulsarName) -> bool:
    """Whether what this node knows of `meta` has the topic, or a non-persistent one's namespace."""
    if name.persistent:
        return broker.cluster.find_topic(name.topic) is not None
    return broker.namespaces.exists(name.topic.namespace_name)


async def _find_and_send_owner(
    connection: PulsarConnection,
    command: CommandLookupTopic,
    name: PulsarName,
    catch_up: Callable[[], Awaitable[None]],
) -> None:
    await catch_up()
    _send_owner(connection, command, name)


def _send_owner(
    connection: PulsarConnection, command: CommandLookupTopic, name: PulsarName
) -> None:
    broker, request_id = connection.gateway.broker, command.request_id
    namespace = name.topic.namespace_name
    is_coordinator = name.persistent and is_coordinator_topic(broker.cluster, name)
    if not is_coordinator and not broker.namespaces.exists(namespace):
        problem = UnknownNamespace(f"there is no namespace {namespace}")
        _send_failure(connection, LOOKUP_FAILED, request_id, problem)
        return
    if name.persistent:
        owner = find_owner(broker.cluster, name)
    else:
        owner = broker.non_persistent.owner(name.topic)
    try:
        urls = connection.gateway.service_urls(owner, command.advertised_listener_name)
    except NotServed as problem:
        _send_failure(connection, LOOKUP_FAILED, request_id, problem)
        return
    connection.send_command(
        "lookupTopicResponse",
        request_id=request_id,
        response=CONNECT,
        brokerServiceUrl=urls[0],
        brokerServiceUrlTls=urls[1],
        authoritative=True,
    )


def handle_partitioned_metadata(
    connection: PulsarConnection, command: CommandPartitionedTopicMetadata, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Send the number of partitions of a topic; 0 for one without numbered partitions."""
    try:
        name = parse_authorized(connection, command.topic, Operation.DESCRIBE)
    except AccessDenied as problem:
        found = _find_refusal(connection, command.topic, problem)
        _send_failure(connection, PARTITIONS_FAILED, command.request_id, found)
        return None
    except EXPECTED as problem:
        _send_failure(connection, PARTITIONS_FAILED, command.request_id, problem)
        return None
    cluster = connection.gateway.broker.cluster
    if is_coordinator_topic(cluster, name):
        _send_count(connection, command.request_id, coordinators(cluster))
        return None
    if not name.persistent:
        return _count_non_persistent(connection, command, name)
    topic = connection.gateway.broker.cluster.find_topic(name.topic)
    if topic is None:
        return _create_and_count(connection, command, name)
    count = 0 if name.partition is not None else numbered_partition_count(topic)
    _send_count(connection, command.request_id, count)
    return None


def _find_refusal(
    connection: PulsarConnection, spelled: str, denied: AccessDenied
) -> AccessDenied | UnknownNamespace:
    """Return why a client gets no partitions: the tenant is missing, or it is refused."""
    topic = parse_pulsar(spelled).topic
    namespaces = connection.gateway.broker.namespaces
    if is_missing_tenant(connection, namespaces, topic.namespace_name.tenant):
        return UnknownNamespace(f"there is no tenant {topic.namespace_name.tenant}")
    return denied


async def _create_and_count(
    connection: PulsarConnection, command: CommandPartitionedTopicMetadata, name: PulsarName
) -> None:
    gateway = connection.gateway
    count = 0
    try:
        if gateway.catch_up is not None:
            await gateway.catch_up()
        known = gateway.broker.cluster.find_topic(name.topic)
        if known is not None:  # created since the request was read
            count = 0 if name.partition is not None else numbered_partition_count(known)
            _send_count(connection, command.request_id, count)
            return
        wanted = command.metadata_auto_creation_enabled
        if not wanted or not may_create(connection, name.topic):
            raise UnknownTopic("the topic does not exist")
        if _is_created_later(connection, name):
            _send_count(connection, command.request_id, 0)
            return
        topic, _ = await gateway.find_or_create_topic(name)
        count = 0 if name.partition is not None else numbered_partition_count(topic)
    except PartitionRequired:  # it was created, with numbered partitions
        count = numbered_partition_count(gateway.broker.cluster.topic(name.topic))
    except EXPECTED as problem:
        _send_failure(connection, PARTITIONS_FAILED, command.request_id, problem)
        return
    _send_count(connection, command.request_id, count)


async def _count_non_persistent(
    connection: PulsarConnection, command: CommandPartitionedTopicMetadata, name: PulsarName
) -> None:
    creates = command.metadata_auto_creation_enabled and may_create(connection, name.topic)
    try:
        count = await count_partitions(connection.gateway, name, may_create=creates)
    except EXPECTED as problem:
        _send_failure(connection, PARTITIONS_FAILED, command.request_id, problem)
        return
    _send_count(connection, command.request_id, count)


def _is_created_later(connection: PulsarConnection, name: PulsarName) -> bool:
    """Whether a topic will have no numbered partitions, so that a later command creates it."""
    gateway = connection.gateway
    if gateway.broker.cluster.pending_creation(name.topic) is not None:
        return False
    allowed = gateway.settings.auto_create_topics
    return not check_auto_create(gateway.broker, name, allowed=allowed).partitioned


def _send_count(connection: PulsarConnection, request_id: int, count: int) -> None:
    connection.send_command(
        "partitionMetadataResponse", request_id=request_id, partitions=count, response=SUCCESS
    )


def _send_failure(
    connection: PulsarConnection,
    failed: tuple[str, int],
    request_id: int,
    problem: BaseException,
) -> None:
    field, response = failed
    connection.send_command(
        field,
        request_id=request_id,
        response=response,
        error=code_of(problem),
        message=str(problem),
    )
