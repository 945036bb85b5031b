"""Schemas over HTTP: those of a topic, one version, adding, deleting, and what would fit.

    GET    …/schema             the newest          POST   …/schema          add one
    GET    …/schema/{version}   one version         DELETE …/schema          none from here on
    GET    …/schemas            all                 POST   …/compatibility   would it fit?
    POST   …/version            which one is it?

A topic that is not there is made by adding a schema to it, where topics may be made by being
mentioned: administrators put the schema there before the first producer comes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.errors import IncompatibleSchema, InvalidSchema, NeedsPartition, UnknownSchema
from trilogue.broker.naming import check_kept
from trilogue.broker.policies import Strategy
from trilogue.broker.schema_check import KEY_VALUE, Definition, key_and_value
from trilogue.broker.schemas import Schema, judge
from trilogue.broker.topic import Topic
from trilogue.gateway.http.pulsar_asked import Asked, Row, encode
from trilogue.gateway.pulsar.schemas import added, off_loop

NOT_FOUND = "Schema not found"
NO_VERSION = -1
EMPTY = '""'  # how a part of a key-value schema without definition is written


class Payload(msgspec.Struct):
    """A schema as it is posted."""

    type: str
    schema: str = ""
    properties: dict[str, str] = {}


def rows(prefix: str) -> list[Row]:
    """The paths of a topic's schemas; the prefix names tenant, namespace and topic."""
    topic, read, write = ResourceKind.TOPIC, Operation.DESCRIBE, Operation.WRITE
    return [
        Row("GET", prefix + "/schema", newest, topic, read),
        Row("POST", prefix + "/schema", add, topic, write),
        Row("DELETE", prefix + "/schema", delete, topic, write),
        Row("GET", prefix + "/schema/{version}", one_version, topic, read),
        Row("GET", prefix + "/schemas", every, topic, read),
        Row("POST", prefix + "/compatibility", compatibility, topic, read),
        Row("POST", prefix + "/version", version_of, topic, read),
    ]


def newest(asked: Asked) -> object:
    """The schema that holds."""
    topic = _topic(asked)
    current = asked.broker.schemas.current(topic) if topic else []
    if not current:
        raise UnknownSchema(NOT_FOUND)
    return _shown(*current[-1])


def one_version(asked: Asked) -> object:
    """One version since the last deletion."""
    version, topic = asked.number("version"), _topic(asked)
    if topic is None:
        raise UnknownSchema(NOT_FOUND)
    return _shown(version, asked.broker.schemas.version(topic, version))


def every(asked: Asked) -> object:
    """All versions since the last deletion."""
    topic = _topic(asked)
    current = asked.broker.schemas.current(topic) if topic else []
    return {"getSchemaResponses": [_shown(version, schema) for version, schema in current]}


async def add(asked: Asked) -> object:
    """Add a schema, if it fits; the version it is."""
    definition = _definition(asked)
    name = asked.name
    check_kept(name)
    cluster = asked.broker.cluster
    if cluster.find(name.topic) is None:
        with suppress(NeedsPartition):  # it was made, and has some
            await asked.door.made(name)
    topic = cluster.topic(name.topic)
    strategy = topic.partitions[0].policies.schema_compatibility
    version = await added(asked.door, topic.name, definition, strategy=strategy)
    return {"version": {"version": version}}


async def delete(asked: Asked) -> object:
    """Let a topic have no schema from here on: the next one gets the next number.

    With `force` what was is forgotten, and the next one is version 0 again.
    """
    schemas, topic = asked.broker.schemas, _topic(asked)
    if asked.flag("force") and topic is not None and schemas.all(topic):
        await asked.carry_out(lambda: schemas.plan_forget(asked.topic))
        return {"version": NO_VERSION}
    if topic is None or not schemas.current(topic):
        raise UnknownSchema(NOT_FOUND)
    return {"version": await asked.carry_out(lambda: schemas.plan_delete(asked.topic))}


async def compatibility(asked: Asked) -> object:
    """Say whether a schema could be added."""
    definition, strategy = _definition(asked), _strategy(asked)
    try:
        await _judged(asked, definition, strategy)
    except IncompatibleSchema:
        fits = False
    else:
        fits = True
    said = {"compatibility": fits, "schemaCompatibilityStrategy": strategy.value}
    return replace(encode(said), status=202)


async def version_of(asked: Asked) -> object:
    """Say which version a schema is, -1 for none."""
    try:
        found = await _judged(asked, _definition(asked), Strategy.ALWAYS_COMPATIBLE)
    except IncompatibleSchema:
        found = None
    return {"version": NO_VERSION if found is None else found}


async def _judged(asked: Asked, definition: Definition, strategy: Strategy) -> int | None:
    topic = _topic(asked)
    current = asked.broker.schemas.current(topic) if topic else []
    return await off_loop(asked.door, definition, partial(judge, definition, current, strategy))


def _topic(asked: Asked) -> Topic | None:
    """The topic, if there is one."""
    check_kept(asked.name)
    return asked.broker.cluster.find(asked.name.topic)


def _strategy(asked: Asked) -> Strategy:
    """What holds for the topic, or would if there were one."""
    topic = _topic(asked)
    if topic is None:
        return asked.broker.namespaces.policies_of(asked.namespace).schema_compatibility
    return topic.partitions[0].policies.schema_compatibility


def _definition(asked: Asked) -> Definition:
    payload = asked.json(Payload)
    properties = tuple(payload.properties.items())
    data = payload.schema.encode()
    if payload.type == KEY_VALUE:
        data = _joined(payload.schema)
    return Definition(payload.type, data, properties)


def _shown(version: int, schema: Schema) -> dict[str, Any]:
    definition = schema.definition
    if definition.kind == KEY_VALUE:
        text = _split(definition)
    else:
        text = definition.data.decode(errors="replace")
    return {
        "version": version,
        "type": schema.kind,
        "timestamp": schema.time_ms,
        "data": text,
        "properties": schema.properties,
    }


def _split(definition: Definition) -> str:
    """Write a key-value schema as JSON with both definitions."""
    parts = (part.data.decode(errors="replace") or EMPTY for part in key_and_value(definition))
    return '{{"key":{},"value":{}}}'.format(*parts)


def _joined(text: str) -> bytes:
    """Read such JSON back."""
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
