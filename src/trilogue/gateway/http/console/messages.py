"""Messages of a topic: browsed, searched, and one produced.

offset      from there on; without it the newest messages are shown
time        from the first message of that time on (UTC, or ms since 1970)
key, text   only messages with this key, with this text in value, key or headers
across      on to the next partitions, for a key whose partition is not known
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.schemas.version_rows import NumberedSchema
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.entry.conversion.reserved_names import SCHEMA_VERSION
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.entry.message import Message
from trilogue.gateway.http.console.message_scan import FoundMessage, Scan, Search
from trilogue.gateway.http.console.payload_text import PayloadDecoder, describe_bytes
from trilogue.gateway.http.console.rendering import Page, Redirect
from trilogue.gateway.http.console.request import (
    PAGE_ROWS,
    ConsoleRequest,
    make_link,
    parse_number,
)
from trilogue.gateway.http.request_limits import HttpError, reserve_memory
from trilogue.gateway.kafka.offsets.list_offsets import find_timestamp

SCAN_MEMORY: Final = 4 << 20  # bytes of values that a page holds, about
VERSION_BYTES: Final = 8  # of a schema's version
HEADERS_MAX: Final = 100  # of a produced message


async def show_messages(request: ConsoleRequest) -> Page:
    """Return a page of the messages of a topic."""
    topic = request.find_topic(request.text("name"), Operation.READ)
    number = request.number("partition", 0)
    across = request.text("across") == "1"
    search = Search(request.text("key").encode(), request.text("text").encode())
    partition = request.find_partition(topic, number)
    start = await _find_start(request, partition, search)
    await reserve_memory(request.http, SCAN_MEMORY)
    scan = Scan(search, PAGE_ROWS)
    next_number, next_offset = await _scan(request, topic, scan, number, start, across=across)
    schemas = request.broker.schemas.current(topic)
    rows = await asyncio.get_running_loop().run_in_executor(
        request.gateway.executor, _describe, scan.found, schemas
    )
    plog = partition.log
    kept = {key: request.text(key) for key in ("name", "key", "text", "across")}
    older = max(plog.start_offset, start - PAGE_ROWS)
    return Page(
        "messages.html",
        {
            "topic": topic,
            "name": str(topic.name),
            "number": number,
            "partition_count": len(topic.partitions),
            "search": {"key": kept["key"], "text": kept["text"], "across": across},
            "start": start,
            "low": plog.start_offset,
            "high": plog.stable_end,
            "rows": rows,
            "unreadable": scan.unreadable,
            "scanned": scan.messages,
            "is_searched": not search.is_open,
            "newer": _link_on(request, topic, next_number, next_offset, kept),
            "older": make_link("/messages", **kept, partition=number, offset=str(older))
            if older < start
            else "",
            "can_write": request.can(Operation.WRITE, ResourceKind.TOPIC, topic.name),
        },
    )


async def _find_start(request: ConsoleRequest, partition: Partition, search: Search) -> int:
    """Return the first offset that is looked at; raises HttpError 400."""
    plog = partition.log
    text = request.text("time").strip()
    if text and not request.text("offset").strip():

        async def in_executor(work: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(request.gateway.executor, work)

        found = await find_timestamp(plog, parse_time(text), in_executor)
        return plog.stable_end if found.offset < 0 else max(found.offset, plog.start_offset)
    newest = max(plog.start_offset, plog.stable_end - PAGE_ROWS)
    default = newest if search.is_open else plog.start_offset
    offset = request.number("offset", default)
    return min(max(offset, plog.start_offset), plog.stable_end)


def parse_time(text: str) -> int:
    """Return a time in ms since 1970 of a number or of an ISO time in UTC; HttpError 400."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HttpError(400, "a time is 2026-01-31T12:00:00 in UTC, or ms since 1970") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


async def _scan(
    request: ConsoleRequest, topic: Topic, scan: Scan, number: int, start: int, *, across: bool
) -> tuple[int, int]:
    """Scan one partition, or on to the last one; return partition and offset to go on at."""
    while True:
        partition = request.find_partition(topic, number)
        plog = partition.log
        offset = plog.start_offset if start < 0 else start
        offset = await scan.read_partition(
            number, plog, offset, plog.stable_end, request.gateway.cold_reads
        )
        is_last = number + 1 >= len(topic.partitions)
        if not across or is_last or scan.is_over or topic.partitions[number + 1].is_remote:
            return number, offset
        number, start = number + 1, -1


def _link_on(
    request: ConsoleRequest, topic: Topic, number: int, offset: int, kept: dict[str, str]
) -> str:
    """Return the address that goes on behind an offset, maybe of another node; "" at the end."""
    if offset < topic.partitions[number].log.stable_end:
        return make_link("/messages", **kept, partition=number, offset=str(offset))
    if kept["across"] != "1" or number + 1 >= len(topic.partitions):
        return ""
    on: dict[str, Any] = {**kept, "partition": number + 1, "offset": "0"}
    partition = topic.partitions[number + 1]
    if not partition.is_remote:
        return make_link("/messages", **on)
    owner = request.broker.cluster.ownership.partition_owner(partition.partition_id)
    return request.link_at(owner, "/messages", **on)


def _describe(found: list[FoundMessage], schemas: Sequence[NumberedSchema]) -> list[dict[str, Any]]:
    """Return the messages as they are shown; runs in the executor."""
    decoder = PayloadDecoder(schemas)
    rows = []
    for partition, offset, name, message, size in found:
        kind, text = decoder.decode(message.value, _schema_version(message))
        rows.append(
            {
                "partition": partition,
                "offset": offset,
                "format": name,
                "time_ms": message.time_ms,
                "key": None if message.key is None else describe_bytes(message.key)[1],
                "kind": kind,
                "text": text,
                "size": size,
                "type": message.type,
                "headers": [
                    (name, "" if value is None else describe_bytes(value)[1])
                    for name, value in message.headers
                    if name != SCHEMA_VERSION
                ],
            }
        )
    return rows


def _schema_version(message: Message) -> int:
    """Return the version of a Pulsar message's schema; -1 for none."""
    for name, value in message.headers:
        if name == SCHEMA_VERSION and value is not None and len(value) == VERSION_BYTES:
            return int.from_bytes(value, "big", signed=True)
    return -1


# -- produced


async def show_produce(request: ConsoleRequest) -> Page:
    """Return the form of a message."""
    topic = request.find_topic(request.text("name"), Operation.WRITE)
    return Page(
        "produce.html",
        {
            "topic": topic,
            "name": str(topic.name),
            "partition_count": len(topic.partitions),
            "key": request.text("key"),
        },
    )


async def produce_message(request: ConsoleRequest) -> Redirect:
    """Append a message, and show it once it is durable."""
    fields = request.fields
    topic = request.find_topic(fields.get("name", ""), Operation.WRITE)
    chosen = parse_number("partition", fields.get("partition", "").strip(), -1)
    local = [number for number, each in enumerate(topic.partitions) if not each.is_remote]
    if chosen < 0 and not local:
        raise HttpError(421, "no partition of the topic is on this node")
    number = chosen if chosen >= 0 else random.choice(local)  # noqa: S311 - any will do
    partition = request.find_partition(topic, number)
    if request.gateway.log.under_pressure:
        raise HttpError(503, "the log has no room now: producers wait")
    now_ms = request.gateway.now_ms()
    key, value = fields.get("key", ""), fields.get("value", "")
    record = Record(
        0,
        now_ms,
        key.encode() if key else None,
        None if fields.get("tombstone") else value.encode(),
        parse_headers(fields.get("headers", "")),
        0,
    )
    result = partition.append(memoryview(build_batch([record])), now_ms=now_ms)
    await _wait_until_durable(request)
    request.access.record_act("produce", Resource(ResourceKind.TOPIC, str(topic.name)))
    offset = str(result.base_offset)
    return Redirect(make_link("/messages", name=topic.name, partition=number, offset=offset))


def parse_headers(text: str) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of lines `name: value`; raises HttpError 400."""
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise HttpError(400, "a header is a line `name: value`")
        found.append((name.strip(), value.strip().encode()))
    if len(found) > HEADERS_MAX:
        raise HttpError(400, f"a message has at most {HEADERS_MAX} headers here")
    return tuple(found)


async def _wait_until_durable(request: ConsoleRequest) -> None:
    """Wait for the commit of what was appended; raises HttpError 503 where it failed."""
    done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def report(failure: BaseException | None) -> None:
        if not done.done():
            done.set_result(failure)

    request.gateway.journal.on_commit(report)
    if (failure := await done) is not None:
        raise HttpError(503, f"the message is not durable: {failure}")
