"""Topics, partitions and brokers, and messages that are produced (v2)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from trilogue.client.errors import ClientError
from trilogue.client.kafka.admin.model import PartitionDescription, Resource, ResourceType
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import EARLIEST, LATEST, granted
from trilogue.client.kafka.producer.batch import Sent
from trilogue.gateway.http.kafka_rest.formats import encode, format_of
from trilogue.gateway.http.kafka_rest.rest_errors import (
    CODES,
    INVALID_REQUEST,
    INVALID_SCHEMA,
    KEY_SCHEMA_MISSING,
    PARTITION_NOT_FOUND,
    VALUE_SCHEMA_MISSING,
    RestError,
    error_of,
)
from trilogue.gateway.http.kafka_rest.rest_request import RestRequest, RestRoute
from trilogue.gateway.http.kafka_rest.schema_codecs import FORMATS
from trilogue.gateway.http.kafka_rest.schema_lookup import TOPIC_NAME, RegisteredSchema

RECORDS_MAX: Final = 10_000  # of one request
FAILED, FAILED_FOR_NOW = 1, 2


class ProducedRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A message of a request; with a misspelled field it would be stored without its value."""

    key: Any = None
    value: Any = None
    partition: int | None = None


class ProduceBody(msgspec.Struct):
    """The messages of a request, and the schemas of their keys and values by id or text."""

    records: list[ProducedRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


def routes() -> list[RestRoute]:
    """Return the routes of topics."""
    topic, partition = "/topics/{topic}", "/topics/{topic}/partitions/{partition}"
    return [
        RestRoute("GET", "/brokers", list_brokers),
        RestRoute("GET", "/topics", list_topics),
        RestRoute("GET", topic, get_topic),
        RestRoute("POST", topic, produce),
        RestRoute("GET", f"{topic}/partitions", list_partitions),
        RestRoute("GET", partition, get_partition),
        RestRoute("POST", partition, produce),
        RestRoute("GET", f"{partition}/offsets", get_offsets),
    ]


async def list_brokers(request: RestRequest) -> Any:
    """Return the ids of the nodes."""
    cluster = await request.client.admin.describe_cluster()
    return {"brokers": [node.id for node in cluster.nodes]}


async def list_topics(request: RestRequest) -> Any:
    """Return the names of topics that the client may describe."""
    return [each.name for each in await request.client.admin.list_topics()]


async def get_topic(request: RestRequest) -> Any:
    """Return a topic, its settings and partitions."""
    name = request.params["topic"]
    partitions = await describe_partitions(request)
    resource = Resource(ResourceType.TOPIC, name)
    settings = granted(await request.client.admin.describe_configs([resource]))[resource]
    return {
        "name": name,
        "configs": {each.name: each.value for each in settings.values()},
        "partitions": [_describe(each) for each in partitions],
    }


async def list_partitions(request: RestRequest) -> Any:
    """Return the partitions of a topic."""
    return [_describe(each) for each in await describe_partitions(request)]


async def get_partition(request: RestRequest) -> Any:
    """Return one partition."""
    return _describe(await find_partition(request))


async def get_offsets(request: RestRequest) -> Any:
    """Return the first and the next offset of a partition."""
    found = await find_partition(request)
    first, end = await find_offsets(request, found.number)
    return {"beginning_offset": first, "end_offset": end}


async def find_offsets(request: RestRequest, number: int) -> tuple[int, int]:
    """Return the first and the next offset of a partition of the topic of the path."""
    admin, place = request.client.admin, (request.params["topic"], number)
    first = granted(await admin.list_offsets({place: EARLIEST}))
    end = granted(await admin.list_offsets({place: LATEST}))
    return next(iter(first.values())).offset, next(iter(end.values())).offset


async def describe_partitions(request: RestRequest) -> tuple[PartitionDescription, ...]:
    """Return the partitions of the topic of the path; raises KafkaError."""
    name = request.params["topic"]
    return granted(await request.client.admin.describe_topics([name]))[name].partitions


async def find_partition(request: RestRequest) -> PartitionDescription:
    """Return the partition of the path; raises RestError 404."""
    number = request.number("partition")
    for each in await describe_partitions(request):
        if each.number == number:
            return each
    raise RestError(PARTITION_NOT_FOUND, "Partition not found.")


def _describe(partition: PartitionDescription) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "leader": partition.leader,
        "replicas": [
            {
                "broker": broker,
                "leader": broker == partition.leader,
                "in_sync": broker in partition.in_sync,
            }
            for broker in partition.replicas
        ],
    }


# -- produced


async def produce(request: RestRequest) -> Any:
    """Store messages, and return where each is."""
    embedded = format_of(request.http.headers.get("content-type", ""))
    body = request.json(ProduceBody)
    if not body.records or len(body.records) > RECORDS_MAX:
        raise RestError(INVALID_REQUEST, f"a request has 1 to {RECORDS_MAX} records")
    chosen = None
    if "partition" in request.params:
        chosen = (await find_partition(request)).number
    key_schema = value_schema = None
    if embedded in FORMATS:
        key_schema, value_schema = await _find_schemas(request, embedded, body)
        drafts = [
            (
                _encode_by(key_schema, each.key, KEY_SCHEMA_MISSING),
                _encode_by(value_schema, each.value, VALUE_SCHEMA_MISSING),
            )
            for each in body.records
        ]
    else:
        drafts = [(encode(embedded, one.key), encode(embedded, one.value)) for one in body.records]
    producer, topic = await request.client.producer(), request.params["topic"]
    waiting: list[asyncio.Future[Sent] | ClientError] = []
    for each, (key, value) in zip(body.records, drafts, strict=True):
        partition = each.partition if chosen is None else chosen
        try:
            waiting.append(await producer.submit(topic, value, key=key, partition=partition))
        except ClientError as problem:
            waiting.append(problem)
    results = await _settle(waiting)
    refused = [each for each in results if isinstance(each, KafkaError) and each.code in CODES]
    if len(refused) == len(results):  # of the topic, not of a message
        raise refused[0]
    return {
        "offsets": [_report(each) for each in results],
        "key_schema_id": key_schema and key_schema.id,
        "value_schema_id": value_schema and value_schema.id,
    }


async def _find_schemas(
    request: RestRequest, embedded: str, body: ProduceBody
) -> tuple[RegisteredSchema | None, RegisteredSchema | None]:
    """Return the schemas of keys and values, as far as the request has them; raises RestError."""

    async def find(
        text: str | None, schema_id: int | None, *, is_key: bool
    ) -> RegisteredSchema | None:
        lookup = request.schemas
        subject = lookup.find_subject(TOPIC_NAME, request.params["topic"], None, is_key=is_key)
        if schema_id is not None:
            found = await lookup.find_by_id(schema_id)
            if found.language != FORMATS[embedded]:
                raise RestError(INVALID_SCHEMA, f"Invalid schema: {schema_id} is {found.language}")
            return await lookup.find_in_subject(found, subject)
        if text is None:
            return None
        return await lookup.register(subject, FORMATS[embedded], text)

    return (
        await find(body.key_schema, body.key_schema_id, is_key=True),
        await find(body.value_schema, body.value_schema_id, is_key=False),
    )


def _encode_by(schema: RegisteredSchema | None, given: Any, missing: int) -> bytes | None:
    """Return the bytes of a key or a value with a schema; raises RestError 422 without one."""
    if given is None:
        return None
    if schema is None:
        kind = "Keys" if missing == KEY_SCHEMA_MISSING else "Values"
        reason = f"{kind} must have a schema, by its text or its id"
        raise RestError(missing, reason)
    return schema.encode(given)


async def _settle(
    waiting: list[asyncio.Future[Sent] | ClientError],
) -> list[Sent | ClientError]:
    """Return what became of messages."""
    results: list[Sent | ClientError] = []
    for each in waiting:
        if isinstance(each, ClientError):
            results.append(each)
            continue
        try:
            results.append(await each)
        except ClientError as problem:
            results.append(problem)
    return results


def _report(result: Sent | ClientError) -> dict[str, Any]:
    if isinstance(result, ClientError):
        is_retriable = not isinstance(result, KafkaError) or result.retriable
        return {
            "partition": None,
            "offset": None,
            "error_code": FAILED_FOR_NOW if is_retriable else FAILED,
            "error": str(error_of(result)),
        }
    return {
        "partition": result.partition,
        "offset": result.offset,
        "error_code": None,
        "error": None,
    }
