"""SEEK and GET_LAST_MESSAGE_ID.

SEEK to an id moves a subscription to the entry that contains it; the client passes over the
messages of the entry that it does not want. SEEK to a time moves it to the first entry published
then or later. All consumers of the subscription are disconnected before the answer, as by Apache
Pulsar; they subscribe again.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from trilogue.broker.errors import InvalidRequest, NotAllowed
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.dispatcher import Dispatcher
from trilogue.gateway.pulsar.entry_search import (
    find_entry,
    find_last_entry,
    find_message_id,
    offset_for_publish_time,
)
from trilogue.gateway.pulsar.errors import PulsarProtocolError
from trilogue.gateway.pulsar.last_message import LastMessage
from trilogue.gateway.pulsar.message_ids import decode_acked_ranges
from trilogue.gateway.steps import start_at_once
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandGetLastMessageId, CommandSeek


def _find_dispatcher(connection: PulsarConnection, consumer_id: int) -> Dispatcher:
    """Return the dispatcher of a consumer; raises PulsarProtocolError if there is none."""
    if consumer_id in connection.non_persistent_consumers:
        raise NotAllowed("a non-persistent topic keeps no messages")
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer.dispatcher is None:
        raise PulsarProtocolError(ServerError.MetadataError, "no such consumer")
    return consumer.dispatcher


async def handle_seek(
    connection: PulsarConnection, command: CommandSeek, _frame: memoryview
) -> None:
    """Move the subscription of a consumer."""
    if command.consumer_id in connection.non_persistent_consumers:
        # As a real broker: nothing is kept, so there is nothing to move.
        connection.send_command("success", request_id=command.request_id)
        return
    gateway, dispatcher = connection.gateway, _find_dispatcher(connection, command.consumer_id)
    partition, name = dispatcher.partition, dispatcher.name
    ranges: list[tuple[int, int]] = []
    if command.HasField("message_id"):
        message_id = command.message_id
        mark, end = await find_message_id(gateway, partition, message_id)
        if message_id.ack_set:
            ranges = decode_acked_ranges(mark, end, message_id.ack_set)
    elif command.HasField("message_publish_time"):
        mark = await offset_for_publish_time(gateway, partition, command.message_publish_time)
    else:
        raise InvalidRequest("a seek names a message or a time")
    await connection.subscriptions.seek(partition, name, mark, ranges)
    connection.subscriptions.end_move(partition, name)
    if not connection.is_gone:
        connection.send_command("success", request_id=command.request_id)


def handle_get_last_message_id(
    connection: PulsarConnection, command: CommandGetLastMessageId, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Send the id of the last message, and the position of the consumer's subscription."""
    dispatcher = _find_dispatcher(connection, command.consumer_id)
    known, mark = dispatcher.last_message, dispatcher.acked.mark
    now_s = connection.gateway.loop.time()
    if known is not None and known.holds(mark, now_s):
        known.send(connection, command.request_id)
        return None
    found = dispatcher.last_message = LastMessage(dispatcher.partition, mark, now_s)
    return start_at_once(_find_last_message(connection, dispatcher, found, command.request_id))


async def _find_last_message(
    connection: PulsarConnection, dispatcher: Dispatcher, found: LastMessage, request_id: int
) -> None:
    gateway, partition, mark = connection.gateway, dispatcher.partition, found.mark
    try:
        last = await find_last_entry(gateway, partition)
        plog = partition.log
        if last is not None and mark >= last.end:
            mark_delete = last.base  # clients compare it with the id of the last message
        else:
            if plog.start_offset <= mark < plog.stable_end:
                mark, _ = await find_entry(gateway, plog, mark)
            mark_delete = mark - 1
    except BaseException as problem:
        if dispatcher.last_message is found:
            dispatcher.last_message = None
        found.fail(problem)
        raise
    found.set(last, dispatcher.index, mark_delete)
    if not connection.is_gone:
        found.send(connection, request_id)
