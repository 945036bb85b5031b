"""Schemas over HTTP: those of a topic, one version, adding, deleting, compatibility.

    GET    …/schema             the latest          POST   …/schema          add one
    GET    …/schema/{version}   one version         DELETE …/schema          none from here on
    GET    …/schemas            all                 POST   …/compatibility   is it compatible?
    POST   …/version            its version

Adding a schema creates its topic, where topics are created automatically: administrators add the
schema before the first producer comes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import (
    IncompatibleSchema,
    InvalidSchema,
    PartitionRequired,
    UnknownSchema,
)
from trilogue.broker.schemas.compatibility import KEY_VALUE, Definition, key_and_value
from trilogue.broker.schemas.topic_schemas import check_schema
from trilogue.broker.schemas.version_rows import Schema
from trilogue.broker.topics.lookup import check_persistent
from trilogue.broker.topics.policies import CompatibilityStrategy
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute, encode_reply
from trilogue.gateway.pulsar.schemas import find_or_add_schema, run_check

NOT_FOUND = "Schema not found"
NO_VERSION = -1
EMPTY = '""'  # a part of a key-value schema without definition


class SchemaPayload(msgspec.Struct):
    """A schema as it is posted."""

    type: str
    schema: str = ""
    properties: dict[str, str] | None = None  # Go sends null


def routes(prefix: str) -> list[AdminRoute]:
    """Return the routes of a topic's schemas; the prefix ends with the topic."""
    topic, read, write = ResourceKind.TOPIC, Operation.DESCRIBE, Operation.WRITE
    return [
        AdminRoute("GET", prefix + "/schema", get_latest_schema, topic, read),
        AdminRoute("POST", prefix + "/schema", add_schema, topic, write),
        AdminRoute("DELETE", prefix + "/schema", delete_schema, topic, write),
        AdminRoute("GET", prefix + "/schema/{version}", get_schema_version, topic, read),
        AdminRoute("GET", prefix + "/schemas", list_schemas, topic, read),
        AdminRoute("POST", prefix + "/compatibility", test_compatibility, topic, read),
        AdminRoute("POST", prefix + "/version", find_schema_version, topic, read),
    ]


def get_latest_schema(request: AdminRequest) -> object:
    """Return the latest schema."""
    topic = _find_topic(request)
    current = request.broker.schemas.current(topic) if topic else []
    if not current:
        raise UnknownSchema(NOT_FOUND)
    return _describe_schema(*current[-1])


def get_schema_version(request: AdminRequest) -> object:
    """Return one version since the last deletion."""
    version, topic = request.number("version"), _find_topic(request)
    if topic is None:
        raise UnknownSchema(NOT_FOUND)
    return _describe_schema(version, request.broker.schemas.get(topic, version))


def list_schemas(request: AdminRequest) -> object:
    """Return all versions since the last deletion."""
    topic = _find_topic(request)
    current = request.broker.schemas.current(topic) if topic else []
    return {
        "getSchemaResponses": [_describe_schema(version, schema) for version, schema in current]
    }


async def add_schema(request: AdminRequest) -> object:
    """Add a compatible schema; return its version."""
    definition = _parse_definition(request)
    name = request.name
    check_persistent(name)
    cluster = request.broker.cluster
    if cluster.find_topic(name.topic) is None:
        with suppress(PartitionRequired):  # it was created, with partitions
            await request.gateway.find_or_create_topic(name)
    topic = cluster.topic(name.topic)
    strategy = topic.partitions[0].policies.schema_compatibility
    version = await find_or_add_schema(request.gateway, topic.name, definition, strategy=strategy)
    return {"version": {"version": version}}


async def delete_schema(request: AdminRequest) -> object:
    """Let a topic have no schema from here on: the next one gets the next number.

    With `force` what was is forgotten, and the next one is version 0 again.
    """
    schemas, topic = request.broker.schemas, _find_topic(request)
    if request.flag("force") and topic is not None and schemas.versions(topic):
        await request.commit_change(lambda: schemas.plan_purge(request.topic))
        return {"version": NO_VERSION}
    if topic is None or not schemas.current(topic):
        raise UnknownSchema(NOT_FOUND)
    return {"version": await request.commit_change(lambda: schemas.plan_delete(request.topic))}


async def test_compatibility(request: AdminRequest) -> object:
    """Return whether a schema could be added."""
    definition, strategy = _parse_definition(request), _compatibility_strategy(request)
    try:
        await _check_schema(request, definition, strategy)
    except IncompatibleSchema:
        fits = False
    else:
        fits = True
    result = {"compatibility": fits, "schemaCompatibilityStrategy": strategy.value}
    return replace(encode_reply(result), status=202)


async def find_schema_version(request: AdminRequest) -> object:
    """Return the version of a schema, -1 for an unknown one."""
    try:
        found = await _check_schema(
            request, _parse_definition(request), CompatibilityStrategy.ALWAYS_COMPATIBLE
        )
    except IncompatibleSchema:
        found = None
    return {"version": NO_VERSION if found is None else found}


async def _check_schema(
    request: AdminRequest, definition: Definition, strategy: CompatibilityStrategy
) -> int | None:
    topic = _find_topic(request)
    current = request.broker.schemas.current(topic) if topic else []
    return await run_check(
        request.gateway, definition, partial(check_schema, definition, current, strategy)
    )


def _find_topic(request: AdminRequest) -> Topic | None:
    """Return the topic, if it exists."""
    check_persistent(request.name)
    return request.broker.cluster.find_topic(request.name.topic)


def _compatibility_strategy(request: AdminRequest) -> CompatibilityStrategy:
    """Return the strategy of the topic, or of the namespace where it does not exist."""
    topic = _find_topic(request)
    if topic is None:
        return request.broker.namespaces.namespace_policies(request.namespace).schema_compatibility
    return topic.partitions[0].policies.schema_compatibility


def _parse_definition(request: AdminRequest) -> Definition:
    payload = request.json(SchemaPayload)
    properties = tuple((payload.properties or {}).items())
    data = payload.schema.encode()
    if payload.type == KEY_VALUE:
        data = _parse_key_value(payload.schema)
    return Definition(payload.type, data, properties)


def _describe_schema(version: int, schema: Schema) -> dict[str, Any]:
    definition = schema.definition
    if definition.kind == KEY_VALUE:
        text = _format_key_value(definition)
    else:
        text = definition.data.decode(errors="replace")
    return {
        "version": version,
        "type": schema.kind,
        "timestamp": schema.time_ms,
        "data": text,
        "properties": schema.properties,
    }


def _format_key_value(definition: Definition) -> str:
    """Return a key-value schema as JSON with both definitions."""
    parts = (part.data.decode(errors="replace") or EMPTY for part in key_and_value(definition))
    return '{{"key":{},"value":{}}}'.format(*parts)


def _parse_key_value(text: str) -> bytes:
    """Parse such JSON."""
    try:
        found = json.loads(text)
        parts = [found["key"], found["value"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidSchema("a key-value schema is JSON with a key and a value") from error
    joined = b""
    for part in parts:
        octets = b"" if part == "" else json.dumps(part, separators=(",", ":")).encode()
        joined += len(octets).to_bytes(4, "big") + octets
    return joined
