"""Subscriptions of topics over HTTP: made, deleted, moved, looked into.

Each path names a topic, and does what it says to every partition of it, or to the one it names.
Ids and times mean what they mean to SEEK: a position by id begins with the entry that contains it,
or behind it where it is excluded; a position by time begins with the first entry of that time.

`skip/N` counts messages, as consumers do; `expireMessages/S` acks what was published more than S
seconds ago.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.partition import Partition
from trilogue.broker.subscriptions import Cursor
from trilogue.gateway.http.changing import kept
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.pulsar_asked import Asked, Row
from trilogue.gateway.http.pulsar_messages import (
    ENTRIES_MAX,
    MessageId,
    message,
    rows_from,
)
from trilogue.gateway.http.pulsar_topics import topic_or_made
from trilogue.gateway.pulsar.positions import LATEST
from trilogue.gateway.pulsar.reading import Row as StoredRow
from trilogue.gateway.pulsar.seek import offset_for_publish_time

SKIP_MAX = 2**31 - 1


def subscriptions(asked: Asked) -> object:
    """Name the subscriptions of a topic, of all its partitions."""
    readers = asked.door.readers
    return sorted(
        {
            name
            for _, partition in asked.partitions
            for name in (
                *asked.broker.subscriptions.of(partition.partition_id),
                *readers.of(partition.partition_id),
            )
        }
    )


def _named(asked: Asked) -> str:
    return asked.params["subscription"]


def _cursors(asked: Asked) -> list[tuple[Partition, Cursor]]:
    """The durable subscription in the path, in every partition; Problem 404 if in none."""
    name = _named(asked)
    found = [
        (partition, cursor)
        for _, partition in asked.partitions
        if (cursor := asked.broker.subscriptions.find(partition.partition_id, name)) is not None
    ]
    if not found:
        raise Problem(404, f"Subscription {name} not found for topic {asked.name}")
    return found


class CreateBody(MessageId):
    """Where a new subscription begins, and its texts."""

    ledger_id: int = LATEST
    entry_id: int = LATEST
    properties: dict[str, str] | None = None


async def create(asked: Asked) -> None:
    """Make a subscription; without a body it begins at the end."""
    name = _named(asked)
    body = asked.json(CreateBody) if asked.body.strip() not in {b"", b"null"} else CreateBody()
    await topic_or_made(asked)
    known, partitions = asked.broker.subscriptions, asked.partitions
    if any(known.find(each.partition_id, name) for _, each in partitions):
        raise Problem(409, "Subscription already exists for topic")
    for _, partition in partitions:
        most = partition.policies.max_subscriptions
        there = {*known.of(partition.partition_id), *asked.door.readers.of(partition.partition_id)}
        if most and len(there) >= most:
            reason = f"Exceed the maximum number of subscriptions of the topic: {most}"
            raise Problem(412, reason)
    marks = {partition: await _mark_of(asked, partition, body) for _, partition in partitions}
    made = [
        known.create(partition.partition_id, name, mark, body.properties)
        for partition, mark in marks.items()
    ]
    for promise in made:
        await kept(promise)


async def _mark_of(asked: Asked, partition: Partition, said: MessageId) -> int:
    """The offset of the first message that a subscription has not acked which is put at an id.

    If it is excluded that is behind it.
    """
    log, ledger, entry = partition.log, said.ledger_id, said.entry_id
    at = not said.behind
    if LATEST in {ledger, entry} or ledger > partition.partition_id:
        return log.high_watermark
    if ledger < partition.partition_id or entry < 0:
        return log.start_offset
    if said.batch_index >= 0:
        return entry + said.batch_index + (0 if at else 1)
    if at or entry >= log.high_watermark:
        return entry
    async for row in rows_from(asked, partition, max(entry, log.start_offset)):
        return row.end
    return log.high_watermark


async def delete(asked: Asked) -> None:
    """Forget a subscription; with `force` its consumers are closed first."""
    name, readers = _named(asked), asked.door.readers
    there = [
        partition
        for _, partition in asked.partitions
        if name in readers.of(partition.partition_id)
        or asked.broker.subscriptions.find(partition.partition_id, name) is not None
    ]
    if not there:
        raise Problem(404, f"Subscription {name} not found for topic {asked.name}")
    if not asked.flag("force"):
        for partition in there:
            dispatcher = readers.find(partition.partition_id, name)
            if dispatcher is not None and dispatcher.consumers:
                raise Problem(412, "Subscription has active connected consumers")
    for partition in there:
        await readers.delete(partition, name)


# -- moved


def skip_all(asked: Asked) -> None:
    """Ack everything that is there."""
    for partition, cursor in _cursors(asked):
        _ack_until(asked, partition, cursor, partition.log.high_watermark)


def _ack_until(asked: Asked, partition: Partition, cursor: Cursor, end: int) -> bool:
    moved = asked.broker.subscriptions.ack_until(cursor, end)
    asked.door.readers.moved(partition.partition_id, cursor.name)
    return moved


def skip(asked: Asked) -> None:
    """Ack the next N messages."""
    count = asked.number("count")
    if not 0 <= count <= SKIP_MAX:
        raise Problem(400, "how many to skip is a number from 0 on")
    _one_partition(asked, "Skip messages")
    for partition, cursor in _cursors(asked):
        _ack_until(asked, partition, cursor, _after(cursor, partition, count))


def _after(cursor: Cursor, partition: Partition, count: int) -> int:
    """The offset behind the next `count` offsets that are not acked."""
    end = partition.log.high_watermark
    at = max(cursor.acked.mark, partition.log.start_offset)
    for start, stop in [*cursor.acked.ranges(), (end, end)]:
        room = min(start, end) - at
        if count <= room:
            return at + count
        count -= max(0, room)
        at = max(at, min(stop, end))
    return end


async def expire(asked: Asked) -> None:
    """Ack what one subscription did not ack for longer than so many seconds."""
    await _expire(asked, _cursors(asked))


async def expire_all(asked: Asked) -> None:
    """The same for all subscriptions of a topic."""
    known = asked.broker.subscriptions
    await _expire(
        asked,
        [
            (partition, cursor)
            for _, partition in asked.partitions
            for cursor in list(known.of(partition.partition_id).values())
        ],
    )


async def _expire(asked: Asked, cursors: list[tuple[Partition, Cursor]]) -> None:
    seconds = asked.number("seconds")
    if seconds < 0:
        raise Problem(412, "the age of messages is a number from 0 on")
    before_ms = asked.door.now_ms() - seconds * 1000
    for partition, cursor in cursors:
        end = await offset_for_publish_time(asked.door, partition, before_ms)
        _ack_until(asked, partition, cursor, end)


async def expire_to_id(asked: Asked) -> None:
    """Ack what one subscription did not ack up to an entry."""
    said = asked.json(MessageId)
    _one_partition(asked, "Expire message at position")
    for partition, cursor in _cursors(asked):
        end = await _mark_of(asked, partition, MessageId(*_id(said), excluded=not said.behind))
        _ack_until(asked, partition, cursor, end)


def _id(said: MessageId) -> tuple[int, int, int, int]:
    return said.ledger_id, said.entry_id, said.partition_index, said.batch_index


def _one_partition(asked: Asked, what: str) -> None:
    if asked.topic.partitioned and asked.name.partition is None:
        raise Problem(405, f"{what} on a partitioned topic is not allowed")


async def reset_to_time(asked: Asked) -> None:
    """Begin again with the first message of a time, or after all when there is none."""
    timestamp = asked.number("timestamp")
    for partition, cursor in _cursors(asked):
        mark = await offset_for_publish_time(asked.door, partition, timestamp)
        await _seek(asked, partition, cursor.name, mark)


async def reset_to_id(asked: Asked) -> None:
    """Begin again at a message."""
    said = asked.json(MessageId)
    if asked.topic.partitioned and asked.name.partition is None and said.entry_id >= 0:
        raise Problem(405, "Reset-cursor at position is not allowed for partitioned-topic")
    for partition, cursor in _cursors(asked):
        await _seek(asked, partition, cursor.name, await _mark_of(asked, partition, said))


async def _seek(asked: Asked, partition: Partition, name: str, mark: int) -> None:
    readers = asked.door.readers
    await readers.seek(partition, name, mark)
    readers.end_move(partition, name)


# -- looked into


async def _unacked(asked: Asked, partition: Partition, cursor: Cursor) -> AsyncIterator[StoredRow]:
    offset = max(cursor.acked.mark, partition.log.start_offset)
    async for row in rows_from(asked, partition, offset):
        if cursor.acked.missing(row.base, row.end):
            yield row


async def peek(asked: Asked) -> object:
    """Show the N-th entry that is not acked."""
    position = asked.number("position")
    if not 1 <= position <= ENTRIES_MAX:
        raise Problem(400, f"the position is a number from 1 to {ENTRIES_MAX}")
    _one_partition(asked, "Peek messages")
    (partition, cursor), *_ = _cursors(asked)
    async for row in _unacked(asked, partition, cursor):
        position -= 1
        if position == 0:
            return await message(asked, partition, row)
    raise Problem(404, "Message not found")


def properties(asked: Asked) -> object:
    """Tell a subscription's own texts."""
    (_, cursor), *_ = _cursors(asked)
    return dict(cursor.properties)


async def put_properties(asked: Asked) -> None:
    """Put others in their place."""
    given = asked.json(dict[str, str])
    for _, cursor in _cursors(asked):
        await kept(asked.broker.subscriptions.set_properties(cursor, given))


async def analyze(asked: Asked) -> object:
    """Count what a subscription has not acked."""
    entries = messages = 0
    for partition, cursor in _cursors(asked):
        messages += asked.broker.subscriptions.backlog(cursor)
        async for _ in _unacked(asked, partition, cursor):
            entries += 1
    return {
        "entries": entries,
        "messages": messages,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": messages,
        "filterRescheduledMessages": 0,
        "aborted": entries >= ENTRIES_MAX,
    }


READ, DESCRIBE = Operation.READ, Operation.DESCRIBE
ONE = "/subscription/{subscription}"

PATHS = (
    ("GET", "/subscriptions", subscriptions, DESCRIBE),
    ("PUT", ONE, create, READ),
    ("DELETE", ONE, delete, READ),
    ("POST", ONE + "/skip_all", skip_all, READ),
    ("POST", ONE + "/skip/{count}", skip, READ),
    ("POST", ONE + "/resetcursor/{timestamp}", reset_to_time, READ),
    ("POST", ONE + "/resetcursor", reset_to_id, READ),
    ("POST", ONE + "/expireMessages/{seconds}", expire, READ),
    ("POST", ONE + "/expireMessages", expire_to_id, READ),
    ("POST", "/all_subscription/expireMessages/{seconds}", expire_all, READ),
    ("GET", ONE + "/position/{position}", peek, READ),
    ("GET", ONE + "/properties", properties, DESCRIBE),
    ("PUT", ONE + "/properties", put_properties, READ),
    ("GET POST", ONE + "/analyzeBacklog", analyze, DESCRIBE),
)


def rows(one: str) -> list[Row]:
    """The rows of subscriptions, below the path of a topic."""
    return [
        Row(methods, one + path, handler, ResourceKind.TOPIC, operation)
        for methods, path, handler, operation in PATHS
    ]
