"""Subscriptions of topics over HTTP: created, deleted, moved, peeked.

Each path names a topic, and applies to every partition of it, or to the one it names. Ids and times
mean the same as for SEEK: a position by id begins with the entry that contains it, or after it
where it is excluded; a position by time begins with the first entry of that time.

`skip/N` counts messages, as consumers do; `expireMessages/S` acknowledges what was published more
than S seconds ago.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.topics.partition import Partition
from trilogue.gateway.http.administration import await_promise
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute
from trilogue.gateway.http.pulsar.messages import (
    ENTRIES_MAX,
    MessageId,
    encode_message,
    visible_entries,
)
from trilogue.gateway.http.pulsar.topics import find_or_create_topic
from trilogue.gateway.http.request_limits import HttpError, check_origin
from trilogue.gateway.pulsar.entry_reader import DispatchEntry
from trilogue.gateway.pulsar.entry_search import offset_for_publish_time
from trilogue.gateway.pulsar.message_ids import LATEST

SKIP_MAX = 2**31 - 1


def list_subscriptions(request: AdminRequest) -> object:
    """Return the subscriptions of a topic, of all its partitions."""
    readers = request.gateway.subscriptions
    return sorted(
        {
            name
            for _, partition in request.partitions
            for name in (
                *request.broker.subscriptions.of_partition(partition.partition_id),
                *readers.of(partition.partition_id),
            )
        }
    )


def _subscription_name(request: AdminRequest) -> str:
    return request.params["subscription"]


def _cursors(request: AdminRequest) -> list[tuple[Partition, Cursor]]:
    """Return the durable subscription in each partition; raises HttpError 404 if it is in none."""
    name = _subscription_name(request)
    found = [
        (partition, cursor)
        for _, partition in request.partitions
        if (cursor := request.broker.subscriptions.find_cursor(partition.partition_id, name))
        is not None
    ]
    if not found:
        raise HttpError(404, f"Subscription {name} not found for topic {request.name}")
    return found


class CreateBody(MessageId):
    """The start position of a new subscription, and its properties."""

    ledger_id: int = LATEST
    entry_id: int = LATEST
    properties: dict[str, str] | None = None


async def create_subscription(request: AdminRequest) -> None:
    """Create a subscription; without a body it begins at the end."""
    name = _subscription_name(request)
    if request.flag("replicated"):
        raise HttpError(412, "subscriptions are not replicated: there is one cluster")
    body = request.json(CreateBody) if request.body.strip() not in {b"", b"null"} else CreateBody()
    await find_or_create_topic(request)
    known, partitions = request.broker.subscriptions, request.partitions
    if any(known.find_cursor(each.partition_id, name) for _, each in partitions):
        raise HttpError(409, "Subscription already exists for topic")
    for _, partition in partitions:
        _check_one_more(request, partition)
    marks = {partition: await _find_mark(request, partition, body) for _, partition in partitions}
    made = [
        known.create(partition.partition_id, name, mark, body.properties)
        for partition, mark in marks.items()
    ]
    for promise in made:
        await await_promise(promise)


def _check_one_more(request: AdminRequest, partition: Partition) -> None:
    """Refuse one subscription too many: HttpError 412."""
    most = partition.policies.max_subscriptions
    if not most:  # there may be ten thousand, which are not to be counted for each new one
        return
    there = {
        *request.broker.subscriptions.of_partition(partition.partition_id),
        *request.gateway.subscriptions.of(partition.partition_id),
    }
    if len(there) >= most:
        raise HttpError(412, f"Exceed the maximum number of subscriptions of the topic: {most}")


async def _find_mark(request: AdminRequest, partition: Partition, message_id: MessageId) -> int:
    """Return the first offset that a subscription at this id has not acknowledged."""
    log, ledger, entry_id = partition.log, message_id.ledger_id, message_id.entry_id
    at = not message_id.after
    if LATEST in {ledger, entry_id} or ledger > partition.partition_id:
        return log.high_watermark
    if ledger < partition.partition_id or entry_id < 0:
        return log.start_offset
    if message_id.batch_index >= 0:
        return entry_id + message_id.batch_index + (0 if at else 1)
    if at or entry_id >= log.high_watermark:
        return entry_id
    async for entry in visible_entries(request, partition, max(entry_id, log.start_offset)):
        return entry.end
    return log.high_watermark


async def delete_subscription(request: AdminRequest) -> None:
    """Delete a subscription; `force` closes its consumers first."""
    name, readers = _subscription_name(request), request.gateway.subscriptions
    there = [
        partition
        for _, partition in request.partitions
        if name in readers.of(partition.partition_id)
        or request.broker.subscriptions.find_cursor(partition.partition_id, name) is not None
    ]
    if not there:
        raise HttpError(404, f"Subscription {name} not found for topic {request.name}")
    if not request.flag("force"):
        for partition in there:
            dispatcher = readers.find_dispatcher(partition.partition_id, name)
            if dispatcher is not None and dispatcher.consumers:
                raise HttpError(412, "Subscription has active connected consumers")
    for partition in there:
        await readers.delete(partition, name)


# -- moved


def skip_all_messages(request: AdminRequest) -> None:
    """Acknowledge all messages."""
    for partition, cursor in _cursors(request):
        _ack_until(request, partition, cursor, partition.log.high_watermark)


def _ack_until(request: AdminRequest, partition: Partition, cursor: Cursor, end: int) -> bool:
    moved = request.broker.subscriptions.ack_until(cursor, end)
    request.gateway.subscriptions.mark_moved(partition.partition_id, cursor.name)
    return moved


def skip_messages(request: AdminRequest) -> None:
    """Acknowledge the next N messages."""
    count = request.number("count")
    if not 0 <= count <= SKIP_MAX:
        raise HttpError(400, "how many to skip is a number from 0 on")
    _check_one_partition(request, "Skip messages")
    for partition, cursor in _cursors(request):
        _ack_until(request, partition, cursor, _offset_after(cursor, partition, count))


def _offset_after(cursor: Cursor, partition: Partition, count: int) -> int:
    """Return the offset behind the next `count` unacknowledged offsets."""
    end = partition.log.high_watermark
    at = max(cursor.mark, partition.log.start_offset)
    for start, stop in [*cursor.ranges(), (end, end)]:
        room = min(start, end) - at
        if count <= room:
            return at + count
        count -= max(0, room)
        at = max(at, min(stop, end))
    return end


async def expire_messages(request: AdminRequest) -> None:
    """Acknowledge messages of one subscription older than so many seconds."""
    await _expire_cursors(request, _cursors(request))


async def expire_all_messages(request: AdminRequest) -> None:
    """Do the same for all subscriptions of a topic."""
    known = request.broker.subscriptions
    cursors = [
        (partition, cursor)
        for _, partition in request.partitions
        for cursor in known.of_partition(partition.partition_id).values()
    ]
    for name in {cursor.name for _, cursor in cursors}:
        request.check_subscription(name)
    await _expire_cursors(request, cursors)


async def _expire_cursors(request: AdminRequest, cursors: list[tuple[Partition, Cursor]]) -> None:
    seconds = request.number("seconds")
    if seconds < 0:
        raise HttpError(412, "the age of messages is a number from 0 on")
    before_ms = request.gateway.now_ms() - seconds * 1000
    for partition, cursor in cursors:
        end = await offset_for_publish_time(request.gateway, partition, before_ms)
        _ack_until(request, partition, cursor, end)


async def expire_to_id(request: AdminRequest) -> None:
    """Acknowledge messages of one subscription up to an entry."""
    message_id = request.json(MessageId)
    _check_one_partition(request, "Expire message at position")
    for partition, cursor in _cursors(request):
        end = await _find_mark(
            request, partition, MessageId(*_id_fields(message_id), excluded=not message_id.after)
        )
        _ack_until(request, partition, cursor, end)


def _id_fields(message_id: MessageId) -> tuple[int, int, int, int]:
    return (
        message_id.ledger_id,
        message_id.entry_id,
        message_id.partition_index,
        message_id.batch_index,
    )


def _check_one_partition(request: AdminRequest, what: str) -> None:
    if request.topic.partitioned and request.name.partition is None:
        raise HttpError(405, f"{what} on a partitioned topic is not allowed")


async def reset_to_time(request: AdminRequest) -> None:
    """Move to the first message of a time, or to the end where there is none."""
    timestamp = request.number("timestamp")
    for partition, cursor in _cursors(request):
        mark = await offset_for_publish_time(request.gateway, partition, timestamp)
        await _seek(request, partition, cursor.name, mark)


async def reset_to_id(request: AdminRequest) -> None:
    """Move to a message."""
    message_id = request.json(MessageId)
    if request.topic.partitioned and request.name.partition is None and message_id.entry_id >= 0:
        raise HttpError(405, "Reset-cursor at position is not allowed for partitioned-topic")
    for partition, cursor in _cursors(request):
        await _seek(
            request, partition, cursor.name, await _find_mark(request, partition, message_id)
        )


async def _seek(request: AdminRequest, partition: Partition, name: str, mark: int) -> None:
    readers = request.gateway.subscriptions
    await readers.seek(partition, name, mark)
    readers.end_move(partition, name)


# -- looked into


async def _unacked_entries(
    request: AdminRequest, partition: Partition, cursor: Cursor
) -> AsyncIterator[DispatchEntry]:
    offset = max(cursor.mark, partition.log.start_offset)
    async for entry in visible_entries(request, partition, offset):
        if cursor.missing(entry.base, entry.end):
            yield entry


async def _find_or_create_cursor(request: AdminRequest) -> tuple[Partition, Cursor]:
    """Return the subscription; one that does not exist is created, as by a real broker.

    It begins with the first message. HttpError 404 where policies do not let it be created.
    """
    _, partition = request.partition
    known, name = request.broker.subscriptions, _subscription_name(request)
    cursor = known.find_cursor(partition.partition_id, name)
    if cursor is None and partition.policies.auto_subscription:
        check_origin(request.http, changes=True)
        _check_one_more(request, partition)
        start = partition.log.start_offset
        await await_promise(known.create(partition.partition_id, name, start, None))
        cursor = known.find_cursor(partition.partition_id, name)
    if cursor is None:
        raise HttpError(404, f"Subscription {name} not found for topic {request.name}")
    return partition, cursor


async def peek_message(request: AdminRequest) -> object:
    """Return the N-th unacknowledged entry."""
    position = request.number("position")
    if not 1 <= position <= ENTRIES_MAX:
        raise HttpError(400, f"the position is a number from 1 to {ENTRIES_MAX}")
    _check_one_partition(request, "Peek messages")
    partition, cursor = await _find_or_create_cursor(request)
    async for entry in _unacked_entries(request, partition, cursor):
        position -= 1
        if position == 0:
            return await encode_message(request, partition, entry)
    raise HttpError(404, "Message not found")


def get_properties(request: AdminRequest) -> object:
    """Return the properties of a subscription."""
    (_, cursor), *_ = _cursors(request)
    return dict(cursor.properties)


async def set_properties(request: AdminRequest) -> None:
    """Replace the properties of a subscription."""
    given = request.json(dict[str, str])
    for _, cursor in _cursors(request):
        await await_promise(request.broker.subscriptions.set_properties(cursor, given))


def get_replicated_status(request: AdminRequest) -> object:
    """Return that a subscription is not replicated, for each partition of the path."""
    _cursors(request)
    name, partitions = request.name, request.partitions
    return {
        str(name if index < 0 else name._replace(partition=index)): False for index, _ in partitions
    }


def set_replicated_status(request: AdminRequest) -> None:
    """Accept that a subscription is not replicated; refuse that it is: HttpError 412."""
    _cursors(request)
    if request.json(bool):
        raise HttpError(412, "subscriptions are not replicated: there is one cluster")


async def analyze_backlog(request: AdminRequest) -> object:
    """Count the unacknowledged entries and messages."""
    entries = messages = 0
    first = last = ""
    for partition, cursor in _cursors(request):
        messages += request.broker.subscriptions.backlog(cursor)
        async for entry in _unacked_entries(request, partition, cursor):
            entries += 1
            last = f"{partition.partition_id}:{entry.base}"
            first = first or last
    ends = {"firstMessageId": first, "lastMessageId": last} if entries else {}
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
        **ends,
    }


READ, DESCRIBE = Operation.READ, Operation.DESCRIBE
ONE = "/subscription/{subscription}"

PATHS = (
    ("GET", "/subscriptions", list_subscriptions, DESCRIBE),
    ("PUT", ONE, create_subscription, READ),
    ("DELETE", ONE, delete_subscription, READ),
    ("POST", ONE + "/skip_all", skip_all_messages, READ),
    ("POST", ONE + "/skip/{count}", skip_messages, READ),
    ("POST", ONE + "/resetcursor/{timestamp}", reset_to_time, READ),
    ("POST", ONE + "/resetcursor", reset_to_id, READ),
    ("POST", ONE + "/expireMessages/{seconds}", expire_messages, READ),
    ("POST", ONE + "/expireMessages", expire_to_id, READ),
    ("POST", "/all_subscription/expireMessages/{seconds}", expire_all_messages, READ),
    ("GET", ONE + "/position/{position}", peek_message, READ),
    ("GET", ONE + "/properties", get_properties, DESCRIBE),
    ("PUT", ONE + "/properties", set_properties, READ),
    ("GET", ONE + "/replicatedSubscriptionStatus", get_replicated_status, DESCRIBE),
    ("POST", ONE + "/replicatedSubscriptionStatus", set_replicated_status, READ),
    ("GET POST", ONE + "/analyzeBacklog", analyze_backlog, DESCRIBE),
)


def routes(one: str) -> list[AdminRoute]:
    """Return the routes of subscriptions, below the path of a topic."""
    return [
        AdminRoute(methods, one + path, handler, ResourceKind.TOPIC, operation)
        for methods, path, handler, operation in PATHS
    ]
