"""Messages that are produced over HTTP: Pulsar's /topics (PIP-64).

    POST /topics/DOMAIN/TENANT/NAMESPACE/TOPIC                 to all partitions in turn
    POST /topics/DOMAIN/TENANT/NAMESPACE/TOPIC/partitions/N    to one of them

Each request has a producer of its own, which is closed before the response: none of it is in the
way of whoever deletes the topic then. The connection is of a client of Pulsar's protocol that the
requests of one login share (http/shared_clients.py).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from trilogue.client.errors import ClientError, InvalidOption
from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.errors import RETRIABLE, PulsarError
from trilogue.client.pulsar.message import MessageId
from trilogue.client.pulsar.options import Routing, Schema, SchemaType
from trilogue.client.pulsar.producer.producer import Producer
from trilogue.gateway.http.escaped_paths import SLASH, keep_escaped_slashes
from trilogue.gateway.http.node_clients import NodeClients
from trilogue.gateway.http.request_limits import HEADERS, HttpError, check_origin, read_body
from trilogue.gateway.http.shared_clients import SharedClients
from trilogue.gateway.http.websocket.session import status_of, topic_of

log = logging.getLogger(__name__)

PATH: Final = "/topics/{domain}/{tenant}/{namespace}/{topic}"
PATHS: Final = (PATH, f"{PATH}/partitions/{{partition}}")
DOMAINS: Final = ("persistent", "non-persistent")
MESSAGES_MAX: Final = 10_000  # of one request
TEXTS: Final = ("STRING", "JSON")  # types of schemas whose payloads are text
FAILED, FAILED_FOR_NOW = 2, 1
PARTITION_DIGITS: Final = 6


class PayloadSchema(msgspec.Struct):
    """A schema as administration has it: its definition in base64."""

    type: str
    name: str = ""
    schema: str = ""
    properties: Mapping[str, str] = {}


class MessageBody(msgspec.Struct, rename="camel"):
    """A message of a request."""

    payload: str = ""
    key: str | None = None
    properties: Mapping[str, str] | None = None
    event_time: int | str | None = None
    sequence_id: int | None = None
    deliver_at: int = 0
    deliver_after_ms: int = 0


class PublishBody(msgspec.Struct, rename="camel"):
    """The messages of a request, and the schema of their payloads as JSON in a text."""

    messages: list[MessageBody]
    value_schema: str | None = None
    key_schema: str | None = None
    producer_name: str | None = None
    schema_version: int = -1


def build_published_app(clients: NodeClients) -> ASGIApp:
    """Return the application."""

    async def nothing_here(request: Request, _error: Exception) -> Response:
        return _error_reply(404, f"{request.url.path}: there is nothing at this path")

    async def wrong_method(request: Request, _error: Exception) -> Response:
        return _error_reply(405, f"{request.url.path}: not by this method")

    shared = SharedClients(clients, clients.make_pulsar)
    app = Starlette(
        routes=[Route(path, _endpoint(shared), methods=["POST"]) for path in PATHS],
        exception_handlers={404: nothing_here, 405: wrong_method},
    )
    return keep_escaped_slashes(app)


def _endpoint(clients: SharedClients[PulsarClient]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            check_origin(request, changes=True)
            body = await read_body(request)
            found = _parse(body)
            async with clients.use(request.scope) as client:
                return await _publish(client, request, found)
        except HttpError as problem:
            return _error_reply(problem.status, str(problem))
        except InvalidOption as problem:
            return _error_reply(400, str(problem))
        except ClientError as problem:
            return _error_reply(status_of(problem), str(problem))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            log.exception("request.failed", extra={"listener": "http", "path": PATH})
            return _error_reply(500, "a mistake of ours; the log has it")

    return answer


def _parse(body: bytes) -> PublishBody:
    try:
        found = msgspec.json.decode(body, type=PublishBody, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise HttpError(400, f"the body cannot be read: {problem}") from problem
    if not found.messages or len(found.messages) > MESSAGES_MAX:
        raise HttpError(400, f"a request has 1 to {MESSAGES_MAX} messages")
    if found.key_schema or found.schema_version >= 0:
        raise HttpError(400, "key schemas and versions of schemas are not served here")
    return found


async def _publish(client: PulsarClient, request: Request, body: PublishBody) -> Response:
    schema = _find_schema(body.value_schema)
    payloads = [_encode(each.payload, schema) for each in body.messages]
    topic = _find_topic(request)
    producer = await client.producer(
        topic,
        name=body.producer_name,
        schema=schema,
        routing=Routing.ROUND_ROBIN,
        batching=None,
    )
    try:
        results = await _send(producer, body.messages, payloads)
        version = int.from_bytes(producer.schema_version or b"", "big")
    finally:
        await producer.close()
    reports = [_report(each) for each in results]
    content = msgspec.json.encode({"messagePublishResults": reports, "schemaVersion": version})
    return Response(content, 200, HEADERS, "application/json")


async def _send(
    producer: Producer, messages: list[MessageBody], payloads: list[bytes]
) -> list[MessageId | ClientError]:
    waiting: list[asyncio.Future[MessageId]] = []
    for message, payload in zip(messages, payloads, strict=True):
        waiting.append(
            await producer.submit(
                payload,
                key=message.key,
                properties=message.properties or {},
                event_time_ms=_event_time(message.event_time),
                sequence_id=message.sequence_id,
                deliver_at_ms=message.deliver_at,
                deliver_after_ms=message.deliver_after_ms,
            )
        )
    results: list[MessageId | ClientError] = []
    for receipt in waiting:
        try:
            results.append(await receipt)
        except ClientError as problem:
            results.append(problem)
    return results


def _find_topic(request: Request) -> str:
    params = {name: text.replace(SLASH, "/") for name, text in request.path_params.items()}
    if params["domain"] not in DOMAINS:
        raise HttpError(404, f"a topic is {' or '.join(DOMAINS)}")
    number = params.get("partition")
    if number is None:
        return topic_of(params)
    if not (number.isascii() and number.isdigit() and len(number) <= PARTITION_DIGITS):
        raise HttpError(400, "a partition is a number")
    if "-partition-" in params["topic"]:
        raise HttpError(400, "Topic name can't contain '-partition-' suffix.")
    return f"{topic_of(params)}-partition-{int(number)}"


def _find_schema(text: str | None) -> Schema:
    """Return the schema of the payloads, STRING without one; raises HttpError 400."""
    if not text:
        return Schema("String", SchemaType.STRING)
    try:
        body = msgspec.json.decode(text, type=PayloadSchema)
        data = base64.b64decode(body.schema, validate=True)
    except (msgspec.DecodeError, RecursionError, binascii.Error, ValueError) as problem:
        raise HttpError(400, f"the schema cannot be read: {problem}") from problem
    if body.type not in TEXTS:
        raise HttpError(400, f"payloads have a schema of the type {' or '.join(TEXTS)} here")
    return Schema(body.name or body.type, SchemaType[body.type], data, dict(body.properties))


def _encode(payload: str, schema: Schema) -> bytes:
    encoded = payload.encode()
    if schema.type is SchemaType.JSON:
        try:
            msgspec.json.decode(encoded)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise HttpError(400, f"a payload is no JSON: {problem}") from problem
    return encoded


def _event_time(given: int | str | None) -> int:
    if not given:
        return 0
    text = str(given)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HttpError(400, "eventTime is in ms since 1970")
    return int(text)


def _report(result: MessageId | ClientError) -> dict[str, Any]:
    if isinstance(result, MessageId):
        place = f"{result.ledger_id}:{result.entry_id}:{result.partition}"
        return {"messageId": place, "errorCode": 0}
    retriable = not isinstance(result, PulsarError) or result.error in RETRIABLE
    code = FAILED_FOR_NOW if retriable else FAILED
    return {"messageId": None, "errorCode": code, "errorMsg": str(result)}


def _error_reply(status: int, reason: str) -> Response:
    headers = {**HEADERS, "connection": "close"} if status in {408, 413} else HEADERS
    content = msgspec.json.encode({"reason": reason})
    return Response(content, status, headers, "application/json")
