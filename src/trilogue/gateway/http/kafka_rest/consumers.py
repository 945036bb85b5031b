"""Consumer instances (v2): members of a group that a client of HTTP reads by.

An instance is a consumer inside of the node that made it, with the login of the request that made
it; only requests of the same principal find it. One that no request uses for `IDLE_S` is closed. A
principal has as many as it leaves free.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import msgspec

from trilogue.broker.access.authorizer import ANONYMOUS
from trilogue.broker.creators import CreatorCounts
from trilogue.client.errors import InvalidOption, InvalidOptionType
from trilogue.client.kafka.admin.model import GroupOffset
from trilogue.client.kafka.client import KafkaClient
from trilogue.client.kafka.consumer.consumer import Consumer
from trilogue.client.kafka.consumer.message import BatchTooLarge, Message
from trilogue.client.kafka.model import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT
from trilogue.gateway.http.kafka_rest.clients import CLIENT_ID
from trilogue.gateway.http.kafka_rest.formats import BINARY, FORMATS, decode_stored, media_type
from trilogue.gateway.http.kafka_rest.large_turns import TURN_S, InstanceTurn, LargeTurns
from trilogue.gateway.http.kafka_rest.rest_errors import (
    FORMAT_MISMATCH,
    ILLEGAL_STATE,
    INSTANCE_EXISTS,
    INSTANCE_NOT_FOUND,
    INVALID_CONSUMER,
    INVALID_REQUEST,
    TOO_MANY,
    RestError,
)
from trilogue.gateway.http.kafka_rest.rest_request import (
    RestReply,
    RestRequest,
    RestRoute,
)
from trilogue.gateway.http.kafka_rest.schema_lookup import SchemaLookup
from trilogue.gateway.http.node_clients import NodeClients
from trilogue.gateway.http.request_limits import reserve_memory

INSTANCES_MAX: Final = 500
IDLE_S: Final = 300.0
SWEEP_S: Final = 10.0
NAME_MAX: Final = 255
TIMEOUT_MS: Final = 1_000
TIMEOUT_MAX_MS: Final = 30_000
REPLY_BYTES: Final = 1 << 20  # of keys and values in one reply, if the client gives no less
REPLY_RECORDS: Final = 10_000
BUFFERED_BYTES: Final = 1 << 20
DECOMPRESSED_MAX: Final = 1 << 20  # of a batch, for which no reply waits
LARGE_BATCH_BYTES: Final = 4 * DECOMPRESSED_LIMIT  # a batch, its messages, and their JSON
EXISTS_TEXT: Final = (
    "Consumer with specified consumer ID already exists in the specified consumer group."
)
EXCLUSIVE_TEXT: Final = "Subscription to topics, partitions and pattern are mutually exclusive"
MIN_BYTES_MAX: Final = 10_000_000
TOPICS, PATTERN, PARTITIONS = "topics", "pattern", "partitions"  # ways to choose what is read
RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}
ISOLATIONS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
InstanceKey = tuple[str, str, str]  # the principal, the group, the name


class InstanceBody(msgspec.Struct, rename={
    "auto_offset_reset": "auto.offset.reset",
    "auto_commit_enable": "auto.commit.enable",
    "fetch_min_bytes": "fetch.min.bytes",
    "request_timeout_ms": "consumer.request.timeout.ms",
    "isolation_level": "isolation.level",
}):  # fmt: skip
    """What an instance is made with."""

    name: str = ""
    format: str = BINARY
    auto_offset_reset: str = "latest"
    auto_commit_enable: str | bool = "true"
    fetch_min_bytes: str | int = 1
    request_timeout_ms: str | int = TIMEOUT_MS
    isolation_level: str = "read_uncommitted"


class TopicPartition(msgspec.Struct):
    """A partition."""

    topic: str
    partition: int


class Position(TopicPartition):
    """A partition and an offset."""

    offset: int
    metadata: str = ""


class SubscriptionBody(msgspec.Struct):
    """Topics, or a pattern of their names."""

    topics: list[str] = []
    topic_pattern: str | None = None


class AssignmentBody(msgspec.Struct):
    """Partitions."""

    partitions: list[TopicPartition]


class OffsetsBody(msgspec.Struct):
    """Partitions and offsets."""

    offsets: list[Position]


class Instance:
    """One consumer, its client and its format."""

    def __init__(
        self,
        client: KafkaClient,
        body: InstanceBody,
        options: Mapping[str, Any],
        turn: InstanceTurn,
    ) -> None:
        self.client = client
        self.consumer: Consumer
        self.turn = turn
        self._options = options
        self.format = body.format
        self.timeout_ms = _whole(body.request_timeout_ms, "consumer.request.timeout.ms")
        self.way = ""  # TOPICS, PATTERN or PARTITIONS, until it is unsubscribed
        self.uses = 0
        self.used_s = time.monotonic()
        self.lock = asyncio.Lock()  # a consumer serves one request at a time

    def check_way(self, way: str) -> None:
        """Refuse another way to choose what is read than before, as Java's consumer: RestError."""
        if self.way not in {"", way}:
            raise RestError(ILLEGAL_STATE, EXCLUSIVE_TEXT)

    async def open(self) -> None:
        """Make the consumer; InvalidOption or InvalidOptionType."""
        self.consumer = await self.client.consumer(large_responses=self.turn, **self._options)

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing."""
        self.way = ""
        await self.consumer.close()
        await self.open()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Consumer]:
        """Return the consumer for a request that reads messages, which keeps little of them."""
        self.turn.begin_request()
        try:
            yield self.consumer
        finally:
            self.consumer.release_large()
            self.turn.end_request()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at an offset; RestError where the consumer does not read the partition."""
        if (topic, partition) not in self.consumer.assignment:
            reason = f"No current assignment for partition {topic}-{partition}"
            raise RestError(ILLEGAL_STATE, reason)
        self.consumer.seek((topic, partition), offset)


class Instances:
    """All consumer instances of this node."""

    def __init__(self, clients: NodeClients | None) -> None:
        self._clients = clients
        self._known: dict[InstanceKey, Instance] = {}
        self._making: set[InstanceKey] = set()
        self._turns = LargeTurns()
        self._creators = CreatorCounts()
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def routes(self) -> list[RestRoute]:
        """Return the routes of consumers."""
        instance = "/consumers/{group}/instances/{instance}"
        return [
            RestRoute("POST", "/consumers/{group}", self.create),
            RestRoute("DELETE", instance, self.delete),
            RestRoute("GET", f"{instance}/subscription", self.get_subscription),
            RestRoute("POST", f"{instance}/subscription", self.subscribe),
            RestRoute("DELETE", f"{instance}/subscription", self.unsubscribe),
            RestRoute("GET", f"{instance}/assignments", self.get_assignments),
            RestRoute("POST", f"{instance}/assignments", self.assign),
            RestRoute("POST", f"{instance}/positions", self.seek),
            RestRoute("POST", f"{instance}/positions/beginning", self.seek_to_beginning),
            RestRoute("POST", f"{instance}/positions/end", self.seek_to_end),
            RestRoute("GET", f"{instance}/offsets", self.get_committed),
            RestRoute("POST", f"{instance}/offsets", self.commit),
            RestRoute("GET", f"{instance}/records", self.read_records),
        ]

    # -- instances

    async def create(self, request: RestRequest) -> Any:
        """Make an instance, and return its name and address."""
        group = request.params["group"]
        body = request.json(InstanceBody) if request.body else InstanceBody()
        if body.format not in FORMATS:
            raise RestError(INVALID_REQUEST, f"the format is one of {', '.join(FORMATS)}")
        if body.auto_offset_reset not in RESETS:
            raise RestError(INVALID_REQUEST, f"auto.offset.reset is one of {', '.join(RESETS)}")
        if body.isolation_level not in ISOLATIONS:
            raise RestError(INVALID_REQUEST, f"isolation.level is one of {', '.join(ISOLATIONS)}")
        min_bytes = _whole(body.fetch_min_bytes, "fetch.min.bytes")
        if min_bytes != -1 and not 1 <= min_bytes <= MIN_BYTES_MAX:
            reason = f"fetch.min.bytes is -1, or from 1 to {MIN_BYTES_MAX}"
            raise RestError(INVALID_CONSUMER, f"Invalid consumer configuration: {reason}")
        name = body.name or f"rest-consumer-{secrets.token_hex(8)}"
        if len(name) > NAME_MAX or "/" in name:
            raise RestError(INVALID_REQUEST, "a name has at most 255 characters, and no slash")
        key = str(request.principal), group, name
        if key in self._known or key in self._making:
            raise RestError(INSTANCE_EXISTS, EXISTS_TEXT)
        creator = "" if request.principal == ANONYMOUS else str(request.principal)
        self._check_room(creator)
        self._making.add(key)
        self._creators.add(key, creator)
        try:
            self._known[key] = await self._make(request, group, body, min_bytes)
        except BaseException:
            self._creators.remove(key)
            raise
        finally:
            self._making.discard(key)
        self._start_sweeper()
        base = str(request.http.url.replace(query="", fragment="")).rstrip("/")
        return {"instance_id": name, "base_uri": f"{base}/instances/{name}"}

    def _check_room(self, creator: str) -> None:
        """Refuse one instance too many of all, or of a principal: RestError 42901."""
        free = INSTANCES_MAX - len(self._known) - len(self._making)
        if free <= 0:
            raise RestError(TOO_MANY, f"there are {INSTANCES_MAX} consumer instances already")
        if not self._creators.has_room(creator, free):
            count = self._creators.count(creator)
            raise RestError(TOO_MANY, f"{creator} has {count} consumer instances, {free} are free")

    async def _make(
        self, request: RestRequest, group: str, body: InstanceBody, min_bytes: int
    ) -> Instance:
        assert self._clients is not None
        client = self._clients.make_kafka(self._clients.identify(request.http.scope), CLIENT_ID)
        try:
            options = {
                "group": group,
                "reset_to": RESETS[body.auto_offset_reset],
                "auto_commit_s": 5.0 if str(body.auto_commit_enable).lower() == "true" else None,
                "min_bytes": max(1, min_bytes),
                "max_bytes": BUFFERED_BYTES,
                "max_buffered_bytes": BUFFERED_BYTES,
                "isolation": ISOLATIONS[body.isolation_level],
            }
            made = Instance(client, body, options, self._turns.make_turn())
            await made.open()
        except BaseException as problem:
            await client.close()
            if isinstance(problem, InvalidOption | InvalidOptionType):
                raise RestError(INVALID_REQUEST, str(problem)) from problem
            raise
        return made

    async def delete(self, request: RestRequest) -> None:
        """Close an instance: it leaves its group."""
        key, _ = self._find(request)
        await self._remove(key).client.close()

    def _remove(self, key: InstanceKey) -> Instance:
        self._creators.remove(key)
        return self._known.pop(key)

    @contextlib.asynccontextmanager
    async def _use(self, request: RestRequest) -> AsyncIterator[Instance]:
        """Return the instance of the path, which no other request uses meanwhile."""
        _, found = self._find(request)
        found.uses += 1
        try:
            async with found.lock:
                yield found
        finally:
            found.uses -= 1
            found.used_s = time.monotonic()

    def _find(self, request: RestRequest) -> tuple[InstanceKey, Instance]:
        key = str(request.principal), request.params["group"], request.params["instance"]
        found = self._known.get(key)
        if found is None:
            raise RestError(INSTANCE_NOT_FOUND, "Consumer instance not found.")
        return key, found

    def _start_sweeper(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        end_s = time.monotonic() - IDLE_S
        for key, instance in list(self._known.items()):
            if not instance.uses and instance.used_s < end_s:
                self._remove(key)
                task = asyncio.ensure_future(instance.client.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        if self._known:
            self._start_sweeper()

    # -- what is read

    async def get_subscription(self, request: RestRequest) -> Any:
        """Return the topics of an instance."""
        async with self._use(request) as found:
            return {"topics": sorted(found.consumer.topics)}

    async def subscribe(self, request: RestRequest) -> None:
        """Subscribe to topics, or to a pattern; to no topic is to unsubscribe, as in Java."""
        body = request.json(SubscriptionBody)
        if body.topics and body.topic_pattern is not None:
            raise RestError(ILLEGAL_STATE, EXCLUSIVE_TEXT)
        async with self._use(request) as found:
            if not body.topics and body.topic_pattern is None:
                await found.unsubscribe()
                return
            way = TOPICS if body.topic_pattern is None else PATTERN
            found.check_way(way)
            await found.consumer.subscribe(*body.topics, pattern=body.topic_pattern)
            found.way = way

    async def unsubscribe(self, request: RestRequest) -> None:
        """Leave the group, and read nothing."""
        async with self._use(request) as found:
            await found.unsubscribe()

    async def get_assignments(self, request: RestRequest) -> Any:
        """Return the partitions that an instance reads."""
        async with self._use(request) as found:
            assigned = sorted(found.consumer.assignment)
        return {"partitions": [{"topic": topic, "partition": each} for topic, each in assigned]}

    async def assign(self, request: RestRequest) -> None:
        """Read these partitions, whatever the group does."""
        body = request.json(AssignmentBody)
        async with self._use(request) as found:
            found.check_way(PARTITIONS)
            await found.consumer.assign((each.topic, each.partition) for each in body.partitions)
            found.way = PARTITIONS

    # -- positions

    async def seek(self, request: RestRequest) -> None:
        """Go on at these offsets."""
        body = request.json(OffsetsBody)
        async with self._use(request) as found:
            for each in body.offsets:
                if each.offset < 0:
                    raise RestError(INVALID_REQUEST, "an offset is at least 0")
                found.seek(each.topic, each.partition, each.offset)

    async def seek_to_beginning(self, request: RestRequest) -> None:
        """Go on at the first messages of partitions."""
        await self._seek_all(request, EARLIEST)

    async def seek_to_end(self, request: RestRequest) -> None:
        """Go on behind the last messages of partitions."""
        await self._seek_all(request, LATEST)

    async def _seek_all(self, request: RestRequest, where: int) -> None:
        body = request.json(AssignmentBody)
        async with self._use(request) as found:
            for each in body.partitions:
                found.seek(each.topic, each.partition, where)

    async def get_committed(self, request: RestRequest) -> Any:
        """Return the committed offsets of partitions."""
        body = request.json(AssignmentBody)
        wanted = [(each.topic, each.partition) for each in body.partitions]
        async with self._use(request) as found:
            offsets = await found.consumer.committed(wanted)
        return {
            "offsets": [
                {
                    "topic": partition.topic,
                    "partition": partition.number,
                    "offset": offset.offset,
                    "metadata": offset.metadata,
                }
                for partition, offset in sorted(offsets.items())
            ]
        }

    async def commit(self, request: RestRequest) -> None:
        """Commit these offsets, or what was read."""
        chosen = None
        if request.body.strip() not in {b"", b"{}"}:
            body = request.json(OffsetsBody)
            chosen = {
                (each.topic, each.partition): GroupOffset(each.offset + 1, each.metadata)
                for each in body.offsets
            }
        async with self._use(request) as found:
            await found.consumer.commit(chosen)

    # -- messages

    async def read_records(self, request: RestRequest) -> Any:
        """Return the next messages; none, where none came within the time-out."""
        most = request.query_number("max_bytes", REPLY_BYTES, REPLY_BYTES)
        async with self._use(request) as found:
            accept = request.http.headers.get("accept", "")
            if not _accepts(accept, found.format):
                raise RestError(
                    FORMAT_MISMATCH,
                    "The requested embedded data format does not match the deserializer for this "
                    "consumer instance",
                )
            timeout_ms = request.query_number("timeout", found.timeout_ms, TIMEOUT_MAX_MS)
            with found.reading():
                records = await _read(found, request, timeout_ms / 1_000, most)
            return RestReply(records, media_type(found.format))


async def _read(
    instance: Instance, request: RestRequest, timeout_s: float, most: int
) -> list[dict[str, Any]]:
    """Return messages of up to `most` bytes, at least one if there is one.

    A batch that decompresses to much waits for the node's memory, and comes alone.
    """
    schemas = request.schemas
    consumer, records, size = instance.consumer, list[dict[str, Any]](), 0
    consumer.decompressed_max = DECOMPRESSED_MAX
    while size < most and len(records) < REPLY_RECORDS:
        try:
            messages = await _poll(instance, 0 if records else timeout_s)
        except BatchTooLarge:
            if records:  # these first
                break
            await reserve_memory(request.http, LARGE_BATCH_BYTES)
            consumer.decompressed_max = DECOMPRESSED_LIMIT
            continue
        if not messages:
            break
        message = messages[0]
        if instance.turn.has_turn:
            await reserve_memory(request.http, LARGE_BATCH_BYTES)
        try:
            records.append(await _describe(schemas, instance.format, message))
        except RestError:
            consumer.seek((message.topic, message.partition), message.offset)
            if records:  # these first
                break
            raise
        size += len(message.key or b"") + len(message.value or b"")
    return records


async def _poll(instance: Instance, timeout_s: float) -> list[Message]:
    """Return the next message, if there is one in time; a large one may come later, in turn."""
    messages = await instance.consumer.poll(timeout_s, 1)
    if not messages and timeout_s and instance.turn.is_needed:
        messages = await instance.consumer.poll(TURN_S, 1)
    return messages


async def _describe(schemas: SchemaLookup, embedded: str, message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "key": await decode_stored(schemas, embedded, message.key),
        "value": await decode_stored(schemas, embedded, message.value),
        "partition": message.partition,
        "offset": message.offset,
    }


def _accepts(accept: str, embedded: str) -> bool:
    """Return whether a client accepts the media type of a format."""
    names = {each.partition(";")[0].strip().lower() for each in accept.split(",")}
    general = {"", "*/*", "application/*", "application/json", "application/vnd.kafka.v2+json"}
    return bool(names & {*general, media_type(embedded)})


def _whole(given: str | int, name: str) -> int:
    """Return a number that may be given as a text; raises RestError 422."""
    text = str(given)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise RestError(INVALID_REQUEST, f"{name} is a number")
    return int(text)
