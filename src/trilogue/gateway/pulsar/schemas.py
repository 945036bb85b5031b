"""The schemas that producers and consumers bring along.

A producer's schema becomes a version of its topic's schema unless it is one already. The version
is 8 bytes, big-endian, in PRODUCER_SUCCESS and in the metadata of messages. A consumer's schema is
only checked, except on a topic that has no messages, producers or other consumers yet: there it
becomes the first version. Compatibility is decided in broker/schemas/topic_schemas.py; long
definitions are compared in a thread of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from trilogue.broker.access.authorizer import Resource, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import ConcurrentChange, IncompatibleSchema
from trilogue.broker.names import TopicName
from trilogue.broker.schemas.compatibility import Definition, is_slow_to_check
from trilogue.broker.schemas.topic_schemas import check_reader_schema, check_schema
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.policies import CompatibilityStrategy
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.dependencies import ProtocolGateway
from trilogue.gateway.pulsar.services import PulsarServices
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandProducer,
    CommandSubscribe,
    Schema,
)

T = TypeVar("T")
NO_VERSION = b""
TRIES = 20  # of adding a schema, while other requests add schemas to the same topic

# The names of the protocol's schema types in the broker. NONE is a schema like any other, as in
# Apache Pulsar: Go's NewBytesSchema sends it and requests its version later. Other clients send no
# schema for bytes.
KINDS: dict[int, str] = {
    Schema.NoSchema: "NONE",
    Schema.String: "STRING",
    Schema.Json: "JSON",
    Schema.Protobuf: "PROTOBUF",
    Schema.Avro: "AVRO",
    Schema.Bool: "BOOLEAN",
    Schema.Int8: "INT8",
    Schema.Int16: "INT16",
    Schema.Int32: "INT32",
    Schema.Int64: "INT64",
    Schema.Float: "FLOAT",
    Schema.Double: "DOUBLE",
    Schema.Date: "DATE",
    Schema.Time: "TIME",
    Schema.Timestamp: "TIMESTAMP",
    Schema.KeyValue: "KEY_VALUE",
    Schema.Instant: "INSTANT",
    Schema.LocalDate: "LOCAL_DATE",
    Schema.LocalTime: "LOCAL_TIME",
    Schema.LocalDateTime: "LOCAL_DATE_TIME",
    Schema.ProtobufNative: "PROTOBUF_NATIVE",
    Schema.AutoConsume: "AUTO_CONSUME",
    Schema.External: "EXTERNAL",
}
NUMBERS = {kind: number for number, kind in KINDS.items()}


def decode_schema(schema: Schema) -> Definition:
    """Return the definition that a command carries."""
    pairs: Any = schema.properties  # whose type the enum's KeyValue hides
    properties = tuple((each.key, each.value) for each in pairs)
    return Definition(KINDS[schema.type], schema.schema_data, properties)


def encode_version(version: int) -> bytes:
    """Return a version as it is on the wire."""
    return version.to_bytes(8, "big")


def _schema_of(command: CommandProducer | CommandSubscribe) -> Schema | None:
    """Return the schema that a producer or consumer brings along."""
    return command.schema if command.HasField("schema") else None


def takes_any_schema(command: CommandSubscribe) -> bool:
    """Whether a consumer takes messages of every schema (AUTO_CONSUME)."""
    return command.HasField("schema") and command.schema.type == Schema.AutoConsume


# ---- what producers and consumers bring along


async def check_producer_schema(
    gateway: PulsarServices,
    topic: Topic,
    partition: Partition,
    command: CommandProducer,
    access: ClientAccess,
) -> bytes:
    """Check a producer's schema, add it if it is new, and return its version as bytes.

    Raises IncompatibleSchema or InvalidSchema.
    """
    schema, policies = _schema_of(command), partition.policies
    if schema is None:
        if policies.schema_validation_enforced and gateway.broker.schemas.current(topic):
            raise IncompatibleSchema(
                "producers without a schema cannot write to a topic with one where schema "
                "validation is enforced"
            )
        return NO_VERSION
    version = await find_or_add_schema(
        gateway,
        topic.name,
        decode_schema(schema),
        schema.name,
        strategy=policies.schema_compatibility,
        may_add=policies.schema_auto_update,
        access=access,
    )
    return encode_version(version)


async def check_consumer_schema(
    gateway: PulsarServices,
    topic: Topic,
    partition: Partition,
    command: CommandSubscribe,
    access: ClientAccess,
    *,
    has_others: Callable[[], bool],
) -> None:
    """Check a consumer's schema; on an unused topic it becomes the first version.

    `has_others` returns whether the partition has a consumer with a schema of its own. Raises
    IncompatibleSchema or InvalidSchema.
    """
    schema = _schema_of(command)
    if schema is None or takes_any_schema(command):
        return
    definition, policies = decode_schema(schema), partition.policies
    current = gateway.broker.schemas.current(topic)
    writers = gateway.broker.writers.get(partition.partition_id)
    used = partition.log.high_watermark > 0 or (writers is not None and len(writers))
    if current or used or has_others():
        check = partial(check_reader_schema, definition, current, policies.schema_compatibility)
        await run_check(gateway, definition, check)
        return
    await find_or_add_schema(
        gateway,
        topic.name,
        definition,
        schema.name,
        strategy=policies.schema_compatibility,
        may_add=policies.schema_auto_update,
        access=access,
    )


async def find_or_add_schema(
    gateway: PulsarServices,
    name: TopicName,
    definition: Definition,
    schema_name: str = "",
    *,
    strategy: CompatibilityStrategy,
    may_add: bool = True,
    access: ClientAccess | None = None,
) -> int:
    """Return the version of a schema in a topic; add it if it is new and compatible.

    With the access of the client that is a line of the audit log.
    Raises UnknownTopic, IncompatibleSchema or ConcurrentChange.
    """
    schemas = gateway.broker.schemas
    for _ in range(TRIES):
        topic = gateway.broker.cluster.topic(name)
        current = schemas.current(topic)
        version = await run_check(
            gateway, definition, partial(check_schema, definition, current, strategy)
        )
        if version is not None:
            return version
        if not may_add:
            raise IncompatibleSchema(
                "schema not found, and the topic does not add schemas automatically"
            )
        try:
            change = schemas.plan_add(topic, definition, current, schema_name)
            await gateway.write_metadata(change)
            version = change.done.result()
        except ConcurrentChange:
            continue
        if access is not None:
            resource = Resource(ResourceKind.TOPIC, str(name))
            access.record_act("add schema", resource, version=version)
        return version
    raise ConcurrentChange("the schema of the topic changes too often")


async def run_check(gateway: ProtocolGateway, definition: Definition, work: Callable[[], T]) -> T:
    """Run work on a definition, in the thread of schemas if the definition is long."""
    if is_slow_to_check(definition):
        return await asyncio.get_running_loop().run_in_executor(gateway.schema_executor, work)
    return work()
