"""GET_SCHEMA and GET_OR_CREATE_SCHEMA by hand, and the schemas of producers and consumers."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Peer, Rig, settle
from trilogue.broker.errors import ConcurrentChange
from trilogue.gateway.pulsar.schemas import KINDS, NUMBERS
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import Schema

INT, LONG, STRING = "int", "long", "string"


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


def avro(kind: str = INT, **more: Any) -> dict[str, Any]:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]} | more
    return {"name": "R", "type": Schema.Avro, "schema_data": json.dumps(record).encode()}


async def got(peer: Peer, topic: str = "t", **fields: Any) -> Any:
    return await peer.request("getSchema", "getSchemaResponse", topic=topic, **fields)


async def created(peer: Peer, schema: dict[str, Any], topic: str = "t") -> Any:
    return await peer.request(
        "getOrCreateSchema", "getOrCreateSchemaResponse", topic=topic, schema=schema
    )


async def refused(peer: Peer, **fields: Any) -> ServerError:
    return ServerError((await peer.request("producer", "error", topic="t", **fields)).error)


@on_loop
async def test_a_schema_is_given_back_as_it_came():
    """docs/reference/wire/pulsar.md: a version is 8 bytes, big-endian, 0 first."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        schema = avro() | {"properties": [{"key": "k", "value": "v"}]}

        success = await peer.producer("t", 1, schema=schema)

        assert success.schema_version == version(0)
        for requested in ({}, {"schema_version": version(0)}):
            answer = await got(peer, **requested)
            assert answer.schema_version == version(0)
            assert answer.schema.name == "t"
            assert answer.schema.type == Schema.Avro
            assert answer.schema.schema_data == schema["schema_data"]
            assert [(each.key, each.value) for each in answer.schema.properties] == [("k", "v")]
            assert not answer.HasField("error_code")


@on_loop
async def test_missing_schema_is_reported_in_the_response():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        for requested in (
            {"topic": "none"}, {}, {"schema_version": version(0)}, {"schema_version": b"\1"},
            {"schema_version": b"\xff" * 8},
        ):  # fmt: skip
            answer = await got(peer, **requested)
            assert ServerError(answer.error_code) is ServerError.TopicNotFound
        answer = await got(peer, topic="a/b")
        assert ServerError(answer.error_code) is ServerError.InvalidTopicName
        answer = await created(peer, avro(), "none")
        assert ServerError(answer.error_code) is ServerError.TopicNotFound


@on_loop
async def test_a_schema_is_created_once():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        assert (await created(peer, avro())).schema_version == version(0)
        assert (await created(peer, avro(doc="same"))).schema_version == version(0)
        answer = await created(peer, avro(STRING))
        assert ServerError(answer.error_code) is ServerError.IncompatibleSchema
        assert not answer.HasField("schema_version")


@on_loop
async def test_concurrent_schemas_get_distinct_versions():
    async with Rig() as rig:
        rig.topic("t", pulsar_schemaCompatibilityStrategy='"ALWAYS_COMPATIBLE"')
        peers = [await rig.connected() for _ in range(5)]
        rig.hold_commits = True
        for number, peer in enumerate(peers):
            schema = avro(name=f"R{number % 4}")  # two of them have the same
            peer.send_command("getOrCreateSchema", request_id=1, topic="t", schema=schema)
        await settle()
        assert len(rig.commits) == 5

        rig.hold_commits = False
        for commit in rig.commits:
            with suppress(ConcurrentChange):
                await rig.commit(commit)

        answers = [await peer.answer("getOrCreateSchemaResponse") for peer in peers]
        assert sorted(each.schema_version for each in answers) == [
            version(number) for number in (0, 0, 1, 2, 3)
        ]


@on_loop
async def test_incompatible_schema_returns_incompatible_schema():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t", 1, schema=avro())

        for schema in (
            avro(STRING), {"name": "", "type": Schema.String, "schema_data": b""},
            avro() | {"type": Schema.Json}, avro() | {"schema_data": b"{"},
            {"name": "", "type": Schema.External, "schema_data": b""},
            {"name": "", "type": Schema.AutoConsume, "schema_data": b""},
        ):  # fmt: skip
            assert await refused(peer, producer_id=2, schema=schema) is (
                ServerError.IncompatibleSchema
            )
        assert (await peer.producer("t", 2, schema=avro())).schema_version == version(0)


@on_loop
async def test_producer_without_schema_creates_none():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        assert (await peer.producer("t", 1)).schema_version == b""
        assert ServerError((await got(peer)).error_code) is ServerError.TopicNotFound


@on_loop
async def test_a_producer_that_names_bytes_gets_a_version_of_them():
    """Go's NewBytesSchema: its consumers request the version that its messages name."""
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("other")
        peer = await rig.connected()
        nothing = {"name": "", "type": Schema.NoSchema, "schema_data": b""}

        first = await peer.producer("t", 1, schema=nothing)
        second = await peer.producer("t", 2, schema=nothing)
        without = await peer.producer("t", 3)
        await created(peer, avro(), "other")
        beside = await peer.request(
            "producer", "error", topic="other", producer_id=4, schema=nothing
        )

        assert [first.schema_version, second.schema_version] == [version(0)] * 2
        assert without.schema_version == b""
        assert ServerError(beside.error) is ServerError.IncompatibleSchema
        assert (await got(peer, schema_version=version(0))).schema.type == Schema.NoSchema
        assert await refused(peer, producer_id=5, schema=avro()) is ServerError.IncompatibleSchema


@on_loop
async def test_a_consumer_that_names_bytes_is_checked_as_any_other():
    """A real broker: "Failed to add schema to an active topic with empty(BYTES) schema"."""
    async with Rig() as rig:
        for name in ("fresh", "used", "avro"):
            rig.topic(name)
        peer = await rig.connected()
        nothing = {"name": "", "type": Schema.NoSchema, "schema_data": b""}
        place = {"subscription": "s", "subType": 1, "schema": nothing}
        await peer.producer("used", 1)
        await created(peer, avro(), "avro")

        await peer.request("subscribe", "success", topic="fresh", consumer_id=1, **place)
        await peer.request("subscribe", "success", topic="fresh", consumer_id=2, **place)
        for name in ("used", "avro"):
            error = await peer.request("subscribe", "error", topic=name, consumer_id=3, **place)
            assert ServerError(error.error) is ServerError.IncompatibleSchema

        assert (await got(peer, "fresh")).schema.type == Schema.NoSchema
        assert (await got(peer, "fresh")).schema_version == version(0)


@on_loop
async def test_schema_versions_before_a_deletion_are_not_returned():
    """As a real broker; the next schema has the next number all the same."""
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = await rig.connected()
        await created(peer, avro())
        await rig.commit(rig.broker.schemas.plan_delete(topic))

        for requested in ({}, {"schema_version": version(0)}, {"schema_version": version(1)}):
            answer = await got(peer, **requested)
            assert ServerError(answer.error_code) is ServerError.TopicNotFound
            assert not answer.HasField("schema")

        assert (await created(peer, avro())).schema_version == version(2)
        answer = await got(peer, schema_version=version(0))
        assert ServerError(answer.error_code) is ServerError.TopicNotFound


@on_loop
async def test_auto_consume_schema_is_not_checked():
    """AUTO_CONSUME, sent since protocol version 21, is no schema of its own."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        anything = {"name": "", "type": Schema.AutoConsume, "schema_data": b""}
        place = {"topic": "t", "subscription": "s", "subType": 1}

        await peer.request("subscribe", "success", consumer_id=1, schema=anything, **place)
        assert ServerError((await got(peer)).error_code) is ServerError.TopicNotFound
        await peer.request("subscribe", "success", consumer_id=2, schema=avro(), **place)

        assert (await got(peer)).schema_version == version(0)


@on_loop
async def test_a_consumer_is_checked_where_the_topic_is_used():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        place = {"topic": "t", "subscription": "s", "subType": 1}
        await peer.request("subscribe", "success", consumer_id=1, **place)

        error = await peer.request("subscribe", "error", consumer_id=2, schema=avro(), **place)
        assert ServerError(error.error) is ServerError.IncompatibleSchema
        await peer.producer("t", 1, schema=avro())
        await peer.request("subscribe", "success", consumer_id=2, schema=avro(LONG), **place)
        error = await peer.request(
            "subscribe", "error", consumer_id=3, schema=avro(STRING), **place
        )

        assert ServerError(error.error) is ServerError.IncompatibleSchema


@on_loop
async def test_a_long_schema_is_compared_beside_the_loop():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        long = avro(doc="x" * 100_000)

        assert (await peer.producer("t", 1, schema=long)).schema_version == version(0)
        assert (await peer.producer("t", 2, schema=long)).schema_version == version(0)
        assert await refused(peer, producer_id=3, schema=avro(STRING, doc="x" * 9_000)) is (
            ServerError.IncompatibleSchema
        )


@pytest.mark.parametrize("number", list(Schema.Type.values()))
def test_every_type_has_its_word(number: int):
    assert NUMBERS[KINDS[number]] == number
