"""Version 3: records that are produced: one, a stream of them, or a batch.

POST …/records          objects one after the other; of more than one each gets its line as soon
as it is stored, while the client still sends others
POST …/records:batch    {"entries": […]}, answered with what was stored and what was not
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from trilogue.client.errors import ClientError
from trilogue.client.kafka.producer.batch import Sent
from trilogue.gateway.http.kafka_rest.formats import BINARY, JSON, encode
from trilogue.gateway.http.kafka_rest.json_objects import JsonObjects
from trilogue.gateway.http.kafka_rest.links import MEDIA_TYPE, ROOT, check_cluster
from trilogue.gateway.http.kafka_rest.rest_errors import (
    INVALID_REQUEST,
    PARTITION_NOT_FOUND,
    RestError,
    error_of,
)
from trilogue.gateway.http.kafka_rest.rest_request import (
    RestReply,
    RestRequest,
    RestRoute,
    RestStream,
)
from trilogue.gateway.http.kafka_rest.schema_codecs import FORMATS, NAMES
from trilogue.gateway.http.kafka_rest.schema_lookup import (
    STRATEGIES,
    TOPIC_NAME,
    RegisteredSchema,
)
from trilogue.gateway.http.request_limits import BODY_MAX, BodyPieces, HttpError

STRING: Final = "string"
HEADERS_MAX: Final = 100
PENDING_MAX: Final = 1_000  # records of a stream that are not answered
BATCH_MAX: Final = 1_000
BATCH_ERROR: Final = 42208
ID_MAX: Final = 80


class RecordData(msgspec.Struct):
    """A key or a value, and its format or its schema."""

    type: str | None = None
    data: Any = None
    subject: str | None = None
    subject_name_strategy: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None

    @property
    def has_schema(self) -> bool:
        """Whether it names a schema in any way."""
        named = (
            self.subject, self.subject_name_strategy, self.schema_id, self.schema_version,
            self.schema,
        )  # fmt: skip
        return any(each is not None for each in named)


class RecordHeader(msgspec.Struct):
    """A header, its value in base64."""

    name: str
    value: str | None = None


class RecordBody(msgspec.Struct):
    """A record."""

    partition_id: int | None = None
    headers: list[RecordHeader] = []
    key: RecordData | None = None
    value: RecordData | None = None
    timestamp: datetime | None = None


class BatchEntry(RecordBody, kw_only=True):
    """A record of a batch, and the id by which the reply names it."""

    id: str


class BatchBody(msgspec.Struct):
    """The records of a batch."""

    entries: list[BatchEntry]


class EncodedData(NamedTuple):
    """The bytes of a key or a value, and how the reply describes them."""

    octets: bytes | None
    report: dict[str, Any] | None


class SubmittedRecord(NamedTuple):
    """A record that is on its way, or the error that it ended with."""

    stored: asyncio.Future[Sent] | RestError
    key: dict[str, Any] | None = None
    value: dict[str, Any] | None = None


def routes() -> list[RestRoute]:
    """Return the routes of records."""
    path = f"{ROOT}/{{cluster}}/topics/{{topic}}/records"
    return [
        RestRoute("POST", path, produce, streams=True),
        RestRoute("POST", f"{path}:batch", produce_batch),
    ]


# -- a stream


async def produce(request: RestRequest) -> RestReply | RestStream:
    """Store records, and return where each is."""
    cluster = await check_cluster(request)
    pieces, objects = BodyPieces(request.http), JsonObjects()
    first: list[bytes] = []
    while not first and not pieces.at_end:
        first += _cut(objects, await pieces.read(len(objects)))
    if not first:
        raise RestError(INVALID_REQUEST, "Request body is empty. Data is required.")
    if pieces.at_end and len(first) == 1 and not objects:
        answer = await _report(request, cluster.cluster_id, await _submit_text(request, first[0]))
        return RestReply(answer, MEDIA_TYPE, int(str(answer["error_code"])[:3]))
    stream = _RecordStream(request, pieces, objects, cluster.cluster_id)
    return RestStream(stream.lines(first), MEDIA_TYPE)


def _cut(objects: JsonObjects, piece: bytes) -> list[bytes]:
    """Return the objects that a piece completes; raises RestError 422."""
    try:
        found = list(objects.add(piece))
    except ValueError as problem:
        raise RestError(INVALID_REQUEST, f"the body cannot be read: {problem}") from problem
    if len(objects) > BODY_MAX:
        raise RestError(413, f"a record has at most {BODY_MAX} bytes")
    return found


class _RecordStream:
    """Records of one request: read, submitted in their order, and answered in their order."""

    def __init__(
        self,
        request: RestRequest,
        pieces: BodyPieces,
        objects: JsonObjects,
        cluster_id: str | None,
    ) -> None:
        self._request = request
        self._pieces = pieces
        self._objects = objects
        self._cluster_id = cluster_id
        self._submitted: asyncio.Queue[SubmittedRecord | None] = asyncio.Queue(PENDING_MAX)

    async def lines(self, first: list[bytes]) -> AsyncGenerator[bytes, None]:
        """Iterate over the replies; what the client sends after an error of the body is left."""
        reading = asyncio.ensure_future(self._read(first))
        try:
            while (record := await self._submitted.get()) is not None:
                answer = await _report(self._request, self._cluster_id, record)
                yield msgspec.json.encode(answer) + b"\r\n"
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, first: list[bytes]) -> None:
        try:
            texts = first
            while True:
                for text in texts:
                    await self._submitted.put(await _submit_text(self._request, text))
                if self._pieces.at_end:
                    break
                texts = _cut(self._objects, await self._pieces.read(len(self._objects)))
            if self._objects:
                raise RestError(INVALID_REQUEST, "the last record is not whole")
        except RestError as problem:
            await self._submitted.put(SubmittedRecord(problem))
        except HttpError as problem:
            await self._submitted.put(SubmittedRecord(RestError(problem.status, str(problem))))
        finally:
            await self._submitted.put(None)


async def _submit_text(request: RestRequest, text: bytes) -> SubmittedRecord:
    try:
        record = msgspec.json.decode(text, type=RecordBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        return SubmittedRecord(RestError(INVALID_REQUEST, f"the body cannot be read: {problem}"))
    return await _submit(request, record)


# -- a batch


async def produce_batch(request: RestRequest) -> RestReply:
    """Store the records of a batch, and return those that were stored and those that were not."""
    cluster = await check_cluster(request)
    entries = request.json(BatchBody).entries
    if not entries:
        raise RestError(BATCH_ERROR, "Empty batch.")
    if len(entries) > BATCH_MAX:
        raise RestError(BATCH_ERROR, f"a batch has at most {BATCH_MAX} entries")
    if len({each.id for each in entries}) != len(entries):
        raise RestError(BATCH_ERROR, "Batch entry IDs are not distinct.")
    if any(not 0 < len(each.id) <= ID_MAX for each in entries):
        raise RestError(BATCH_ERROR, f"an id has 1 to {ID_MAX} characters")
    submitted = [await _submit(request, each) for each in entries]
    successes: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    for entry, record in zip(entries, submitted, strict=True):
        report = await _report(request, cluster.cluster_id, record)
        if report["error_code"] == 200:
            del report["error_code"]
            successes.append({"id": entry.id, **report})
        else:
            failures.append({"id": entry.id, **report})
    return RestReply({"successes": successes, "failures": failures}, MEDIA_TYPE, 207)


# -- one record


async def _submit(request: RestRequest, record: RecordBody) -> SubmittedRecord:
    """Hand a record to the producer; waits for room only."""
    topic = request.params["topic"]
    try:
        if (record.partition_id or 0) < 0:
            raise RestError(PARTITION_NOT_FOUND, "Partition not found.")
        if len(record.headers) > HEADERS_MAX:
            raise RestError(INVALID_REQUEST, f"a record has at most {HEADERS_MAX} headers")
        headers = [(each.name, encode(BINARY, each.value)) for each in record.headers]
        key = await _encode(request, record.key, is_key=True)
        value = await _encode(request, record.value, is_key=False)
        producer = await request.client.producer()
        stored = await producer.submit(
            topic,
            value.octets,
            key=key.octets,
            headers=headers,
            partition=record.partition_id,
            timestamp_ms=_milliseconds(record.timestamp),
        )
    except RestError as problem:
        return SubmittedRecord(problem)
    except ClientError as problem:
        return SubmittedRecord(error_of(problem))
    return SubmittedRecord(stored, key.report, value.report)


def _milliseconds(time: datetime | None) -> int | None:
    if time is None:
        return None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return max(0, int(aware.timestamp() * 1_000))


async def _report(
    request: RestRequest, cluster_id: str | None, record: SubmittedRecord
) -> dict[str, Any]:
    """Return the answer for a record, once it is known."""
    if isinstance(record.stored, RestError):
        return {"error_code": record.stored.code, "message": str(record.stored)}
    try:
        sent = await record.stored
    except ClientError as problem:
        known = error_of(problem)
        return {"error_code": known.code, "message": str(known)}
    time = datetime.fromtimestamp(sent.timestamp / 1_000, UTC) if sent.timestamp >= 0 else None
    parts = {"timestamp": time, "key": record.key, "value": record.value}
    return {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": request.params["topic"],
        "partition_id": sent.partition,
        "offset": sent.offset,
        **{name: part for name, part in parts.items() if part is not None},
    }


async def _encode(request: RestRequest, given: RecordData | None, *, is_key: bool) -> EncodedData:
    """Return the bytes of a key or a value; raises RestError 400, 403 and 422."""
    if given is None:
        return EncodedData(None, None)
    name = None if given.type is None else given.type.lower()
    if name is not None and name not in FORMATS:
        octets = _encode_bare(given, name)
        size = 0 if octets is None else len(octets)
        return EncodedData(octets, {"type": name.upper(), "size": size})
    if given.data is None and not given.has_schema:
        return EncodedData(None, None)
    schema = await _find_schema(request, given, name, is_key=is_key)
    octets = None if given.data is None else schema.encode(given.data)
    return EncodedData(
        octets,
        {
            "type": NAMES[schema.language].upper(),
            "subject": schema.subject,
            "schema_id": schema.id,
            "schema_version": schema.version,
            "size": 0 if octets is None else len(octets),
        },
    )


def _encode_bare(given: RecordData, name: str) -> bytes | None:
    """Return the bytes of data without a schema."""
    if name not in {BINARY, JSON, STRING}:
        reason = "the type of data is BINARY, JSON, STRING, AVRO, JSONSCHEMA or PROTOBUF"
        raise RestError(INVALID_REQUEST, reason)
    if given.has_schema:
        raise RestError(400, f"'type={name.upper()}' cannot be used with a schema or a subject.")
    if name == STRING and given.data is not None:
        if not isinstance(given.data, str):
            raise RestError(INVALID_REQUEST, "data of the type STRING is a text")
        return given.data.encode()
    return encode(name, given.data)


async def _find_schema(
    request: RestRequest, given: RecordData, name: str | None, *, is_key: bool
) -> RegisteredSchema:
    """Return the schema that a key or a value names, by id, version or text, or the latest."""
    _check_schema_fields(given, name)
    topic, lookup = request.params["topic"], request.schemas
    strategy = given.subject_name_strategy or TOPIC_NAME
    if given.schema_id is not None:
        found = await lookup.find_by_id(given.schema_id)
        definition = found.language, found.definition
        subject = given.subject or lookup.find_subject(strategy, topic, definition, is_key=is_key)
        return await lookup.find_in_subject(found, subject)
    if given.schema is not None:
        assert name is not None
        definition = await lookup.define_text(name, given.schema)
        subject = given.subject or lookup.find_subject(strategy, topic, definition, is_key=is_key)
        return await lookup.register(subject, FORMATS[name], given.schema)
    subject = given.subject or lookup.find_subject(strategy, topic, None, is_key=is_key)
    version = "latest" if given.schema_version is None else str(given.schema_version)
    return await lookup.find_version(subject, version)


def _check_schema_fields(given: RecordData, name: str | None) -> None:
    """Refuse fields that contradict each other, as Confluent's proxy does; RestError 400."""
    ways = (given.schema_id, given.schema_version, given.schema)
    if sum(each is not None for each in ways) > 1:
        reason = "Only one of 'schema_id', 'schema_version' or 'schema' can be used."
        raise RestError(400, reason)
    if given.subject is not None and given.subject_name_strategy is not None:
        reason = "Only one of 'subject_name_strategy' or 'subject' can be used."
        raise RestError(400, reason)
    if (given.subject_name_strategy or TOPIC_NAME) not in STRATEGIES:
        raise RestError(400, f"a subject_name_strategy is one of {', '.join(STRATEGIES)}")
    if name is not None and given.schema is None:
        raise RestError(400, f"'type={name.upper()}' is used with 'schema' only.")
    if name is None and given.schema is not None:
        raise RestError(400, "'schema' is used with 'type' only.")
