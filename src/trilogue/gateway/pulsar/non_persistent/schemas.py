"""Schemas of non-persistent topics: checked as those of others, kept while a topic is in memory."""

from __future__ import annotations

from functools import partial

from trilogue.broker.errors import IncompatibleSchema
from trilogue.broker.non_persistent.topics import NonPersistentTopic
from trilogue.broker.schemas.compatibility import Definition
from trilogue.broker.schemas.topic_schemas import check_reader_schema, check_schema
from trilogue.gateway.pulsar.schemas import (
    NO_VERSION,
    decode_schema,
    encode_version,
    run_check,
    takes_any_schema,
)
from trilogue.gateway.pulsar.services import PulsarServices
from trilogue.wire.pulsar.pulsar_pb2 import CommandProducer, CommandSubscribe


async def check_producer_schema(
    gateway: PulsarServices, topic: NonPersistentTopic, command: CommandProducer
) -> bytes:
    """Check a producer's schema, add it if it is new, and return its version as bytes."""
    if not command.HasField("schema"):
        enforced = topic.policies.schema_validation_enforced
        if enforced and gateway.broker.non_persistent.schemas(topic.name.topic):
            raise IncompatibleSchema(
                "producers without a schema cannot write to a topic with one where schema "
                "validation is enforced"
            )
        return NO_VERSION
    definition = decode_schema(command.schema)
    return encode_version(await find_or_add_schema(gateway, topic, definition, command.schema.name))


async def check_consumer_schema(
    gateway: PulsarServices, topic: NonPersistentTopic, command: CommandSubscribe
) -> None:
    """Check a consumer's schema; on an unused topic it becomes the first version."""
    if not command.HasField("schema") or takes_any_schema(command):
        return
    definition = decode_schema(command.schema)
    current = gateway.broker.non_persistent.schemas(topic.name.topic)
    if current or topic.received.messages or topic.is_used:
        strategy = topic.policies.schema_compatibility
        await run_check(
            gateway, definition, partial(check_reader_schema, definition, current, strategy)
        )
        return
    await find_or_add_schema(gateway, topic, definition, command.schema.name)


async def find_or_add_schema(
    gateway: PulsarServices, topic: NonPersistentTopic, definition: Definition, schema_name: str
) -> int:
    """Return the version of a schema; add it if it is new and compatible."""
    topics, name, policies = gateway.broker.non_persistent, topic.name.topic, topic.policies
    while True:
        current = topics.schemas(name)
        check = partial(check_schema, definition, current, policies.schema_compatibility)
        version = await run_check(gateway, definition, check)
        if version is not None:
            return version
        if not policies.schema_auto_update:
            raise IncompatibleSchema(
                "schema not found, and the topic does not add schemas automatically"
            )
        if len(topics.schemas(name)) == len(current):  # else another was added meanwhile
            return topics.add_schema(name, definition, schema_name)
