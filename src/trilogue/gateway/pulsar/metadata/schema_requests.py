"""GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.broker import Broker
from trilogue.broker.errors import UnknownSchema
from trilogue.broker.names import PulsarName
from trilogue.broker.schemas.version_rows import NumberedSchema
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.gateway.pulsar.metadata.lookup import parse_authorized
from trilogue.gateway.pulsar.non_persistent import schemas as non_persistent
from trilogue.gateway.pulsar.non_persistent.topics import find_or_create
from trilogue.gateway.pulsar.schemas import (
    NO_VERSION,
    NUMBERS,
    decode_schema,
    encode_version,
    find_or_add_schema,
)
from trilogue.wire.pulsar.pulsar_pb2 import CommandGetOrCreateSchema, CommandGetSchema, Schema


def handle_get_schema(
    connection: PulsarConnection, command: CommandGetSchema, _frame: memoryview
) -> None:
    """Send a version of a topic's schema, the newest one if the command names none."""
    try:
        name = parse_authorized(connection, command.topic, Operation.DESCRIBE)
        version, schema = _find_schema(connection.gateway.broker, name, command.schema_version)
    except EXPECTED as problem:
        _send_failure(connection, "getSchemaResponse", command.request_id, problem)
        return
    connection.send_command(
        "getSchemaResponse",
        request_id=command.request_id,
        schema={
            "name": name.topic.name,
            "schema_data": schema.data,
            "type": NUMBERS.get(schema.kind, Schema.NoSchema),
            "properties": [{"key": key, "value": text} for key, text in schema.properties.items()],
        },
        schema_version=encode_version(version),
    )


async def handle_get_or_create_schema(
    connection: PulsarConnection, command: CommandGetOrCreateSchema, _frame: memoryview
) -> None:
    """Send the version of a schema, and add it if it is new."""
    try:
        name = parse_authorized(connection, command.topic, Operation.WRITE)
        octets = NO_VERSION
        if command.schema.type != Schema.NoSchema:
            octets = encode_version(await _find_or_add(connection, name, command.schema))
    except EXPECTED as problem:
        _send_failure(connection, "getOrCreateSchemaResponse", command.request_id, problem)
        return
    connection.send_command(
        "getOrCreateSchemaResponse", request_id=command.request_id, schema_version=octets
    )


def _find_schema(broker: Broker, name: PulsarName, version: bytes) -> NumberedSchema:
    """Return a version of a topic's schema, the newest one for b""; raises UnknownSchema."""
    number = None
    if version:
        if len(version) != 8:
            raise UnknownSchema("a version of a schema has 8 bytes")
        number = int.from_bytes(version, "big", signed=True)
    if not name.persistent:
        return broker.non_persistent.schema(name.topic, number)
    topic = broker.cluster.topic(name.topic)
    if number is None:
        return broker.schemas.newest(topic)
    return number, broker.schemas.get(topic, number)


async def _find_or_add(connection: PulsarConnection, name: PulsarName, schema: Schema) -> int:
    """Return the version of a schema, and add it if it is new."""
    gateway, definition = connection.gateway, decode_schema(schema)
    if not name.persistent:
        loaded = await find_or_create(gateway, name)
        return await non_persistent.find_or_add_schema(gateway, loaded, definition, schema.name)
    policies = gateway.broker.cluster.topic(name.topic).partitions[0].policies
    return await find_or_add_schema(
        gateway,
        name.topic,
        definition,
        schema.name,
        strategy=policies.schema_compatibility,
        may_add=policies.schema_auto_update,
        access=connection.access,
    )


def _send_failure(
    connection: PulsarConnection, field: str, request_id: int, problem: BaseException
) -> None:
    connection.send_command(
        field, request_id=request_id, error_code=code_of(problem), error_message=str(problem)
    )
