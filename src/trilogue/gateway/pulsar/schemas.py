"""GET_SCHEMA, GET_OR_CREATE_SCHEMA, and the schemas that producers and consumers bring along.

A producer's schema becomes a version of its topic's, or is one already; its number travels as 8
bytes, big-endian, in PRODUCER_SUCCESS and in the metadata of messages. A consumer's is only looked
at, except on a topic that nobody has used yet: there it is the first one. What fits what is the
broker's affair (broker/schemas.py); definitions that are long are compared off the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from trilogue.broker.access import Operation
from trilogue.broker.errors import IncompatibleSchema, Outrun, UnknownSchema
from trilogue.broker.names import TopicName
from trilogue.broker.partition import Partition
from trilogue.broker.policies import Strategy
from trilogue.broker.schema_check import Definition, is_long
from trilogue.broker.schemas import judge, judge_reader
from trilogue.broker.topic import Topic
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.gateway.pulsar.lookup import named
from trilogue.gateway.pulsar.shared import Shared
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandProducer,
    CommandSubscribe,
    Schema,
)

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection

T = TypeVar("T")
NO_VERSION = b""
TRIES = 20  # to decide again, when others add schemas at the same time

# The protocol's numbers in our words. NONE is a schema like any other, as on a real broker: Go's
# NewBytesSchema brings it along and asks for its version later. Other clients of bytes name none.
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


def definition_of(schema: Schema) -> Definition:
    """Read a schema as it is sent."""
    pairs: Any = schema.properties  # whose type the enum's KeyValue hides
    properties = tuple((each.key, each.value) for each in pairs)
    return Definition(KINDS[schema.type], schema.schema_data, properties)


def version_bytes(version: int) -> bytes:
    """Say a version as it travels."""
    return version.to_bytes(8, "big")


def _brought(command: CommandProducer | CommandSubscribe) -> Schema | None:
    """The schema that a producer or consumer has."""
    return command.schema if command.HasField("schema") else None


def takes_any(command: CommandSubscribe) -> bool:
    """Whether a consumer reads by whatever schema its messages have."""
    return command.HasField("schema") and command.schema.type == Schema.AutoConsume


# ---- what producers and consumers bring along


async def for_producer(
    door: Shared, topic: Topic, partition: Partition, command: CommandProducer
) -> bytes:
    """Check a producer's schema, add it if it is new; the version for PRODUCER_SUCCESS.

    IncompatibleSchema, InvalidSchema.
    """
    schema, policies = _brought(command), partition.policies
    if schema is None:
        if policies.schema_validation_enforced and door.broker.schemas.current(topic):
            raise IncompatibleSchema(
                "producers without a schema cannot write to a topic with one where schema "
                "validation is enforced"
            )
        return NO_VERSION
    version = await added(
        door,
        topic.name,
        definition_of(schema),
        schema.name,
        strategy=policies.schema_compatibility,
        may_add=policies.schema_auto_update,
    )
    return version_bytes(version)


async def for_consumer(
    door: Shared,
    topic: Topic,
    partition: Partition,
    command: CommandSubscribe,
    *,
    others: int,
) -> None:
    """Check a consumer's schema; on a topic that nobody has used yet it becomes the first one.

    `others` counts the partition's consumers that have a schema of their own. IncompatibleSchema,
    InvalidSchema.
    """
    schema = _brought(command)
    if schema is None or takes_any(command):
        return
    definition, policies = definition_of(schema), partition.policies
    current = door.broker.schemas.current(topic)
    writers = door.broker.writers.find(partition.partition_id)
    used = partition.log.high_watermark > 0 or others or (writers is not None and len(writers))
    if current or used:
        check = partial(judge_reader, definition, current, policies.schema_compatibility)
        await off_loop(door, definition, check)
        return
    await added(
        door,
        topic.name,
        definition,
        schema.name,
        strategy=policies.schema_compatibility,
        may_add=policies.schema_auto_update,
    )


async def added(
    door: Shared,
    name: TopicName,
    definition: Definition,
    schema_name: str = "",
    *,
    strategy: Strategy,
    may_add: bool = True,
) -> int:
    """The version of a schema in a topic, which it gets if it has none and fits."""
    schemas = door.broker.schemas
    for _ in range(TRIES):
        topic = door.broker.cluster.topic(name)
        current = schemas.current(topic)
        version = await off_loop(door, definition, partial(judge, definition, current, strategy))
        if version is not None:
            return version
        if not may_add:
            raise IncompatibleSchema("schema not found, and none is added by mentioning it here")
        try:
            commit = schemas.plan_add(topic, definition, current, schema_name)
            await door.commit(commit)
            return commit.done.result()
        except Outrun:
            continue
    raise Outrun("others change the topic's schema all the time")


async def off_loop(door: Shared, definition: Definition, work: Callable[[], T]) -> T:
    """Do work on a definition, elsewhere if it is long."""
    if is_long(definition):
        return await asyncio.get_running_loop().run_in_executor(door.executor, work)
    return work()


# ---- commands


def get(connection: PulsarConnection, command: CommandGetSchema, _frame: memoryview) -> None:
    """Say what a version of a topic's schema is; without a version the newest."""
    schemas = connection.door.broker.schemas
    try:
        name = named(connection, command.topic, Operation.DESCRIBE)
        topic = connection.door.broker.cluster.topic(name.topic)
        if command.schema_version:
            if len(command.schema_version) != 8:
                raise UnknownSchema("a version of a schema has 8 bytes")
            version = int.from_bytes(command.schema_version, "big", signed=True)
            schema = schemas.version(topic, version)
        else:
            version, schema = schemas.newest(topic)
    except EXPECTED as problem:
        _refuse(connection, "getSchemaResponse", command.request_id, problem)
        return
    connection.say(
        "getSchemaResponse",
        request_id=command.request_id,
        schema={
            "name": name.topic.name,
            "schema_data": schema.data,
            "type": NUMBERS.get(schema.kind, Schema.NoSchema),
            "properties": [{"key": key, "value": text} for key, text in schema.properties.items()],
        },
        schema_version=version_bytes(version),
    )


async def get_or_create(
    connection: PulsarConnection, command: CommandGetOrCreateSchema, _frame: memoryview
) -> None:
    """Say which version a schema is, and add it if it is none."""
    door = connection.door
    try:
        name = named(connection, command.topic, Operation.WRITE)
        topic = door.broker.cluster.topic(name.topic)
        policies = topic.partitions[0].policies
        if command.schema.type == Schema.NoSchema:
            octets = NO_VERSION
        else:
            octets = version_bytes(
                await added(
                    door,
                    name.topic,
                    definition_of(command.schema),
                    command.schema.name,
                    strategy=policies.schema_compatibility,
                    may_add=policies.schema_auto_update,
                )
            )
    except EXPECTED as problem:
        _refuse(connection, "getOrCreateSchemaResponse", command.request_id, problem)
        return
    connection.say(
        "getOrCreateSchemaResponse", request_id=command.request_id, schema_version=octets
    )


def _refuse(
    connection: PulsarConnection, field: str, request_id: int, problem: BaseException
) -> None:
    connection.say(
        field, request_id=request_id, error_code=code_of(problem), error_message=str(problem)
    )
