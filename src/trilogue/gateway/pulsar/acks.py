"""ACK: what a consumer is done with.

An individual ack names entries, each by the id that its message had; a set of bits says which
messages of it are *not* acked. A cumulative one names the entry up to whose end, or up to whose
first bit that is set, everything is acked. Anybody may ack what another consumer has, as with a
real Pulsar: applications pass ids around. Nothing is believed before it is compared with the log.

ACK_RESPONSE leaves when the ack is durable, and only where a request id was given. A message that
the client could not read (validation_error) is counted, logged and acked: it would come for ever.

Where an entry ends is known of those that were handed out a short while ago; of others the log is
asked, which may take a segment: then the rest is done in a task.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from trilogue.broker.errors import BrokerError, InvalidRequest, NotAllowed, NotServed
from trilogue.gateway.pulsar.consumer import Consumer
from trilogue.gateway.pulsar.dispatch import Dispatcher
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.gateway.pulsar.old_clients import BATCHES_SINCE
from trilogue.gateway.pulsar.positions import acked_ranges, first_kept, signed
from trilogue.gateway.pulsar.seek import locate
from trilogue.gateway.stream import Close
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.hot import Ack, AckId, read_ack

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection
    from trilogue.gateway.pulsar.shared import Shared
    from trilogue.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

CUMULATIVE: Final = 1
IDS_MAX: Final = 100_000  # of one ACK; Java sends a list as long as its application made it
IDS_A_TURN: Final = 100  # that the log is asked for before others have their turn
RANGES_MAX: Final = 100_000  # of one ACK
VALIDATION_ERRORS = (
    "UncompressedSizeCorruption",
    "DecompressionError",
    "ChecksumMismatch",
    "BatchDeSerializeError",
    "DecryptionError",
)


def take(connection: PulsarConnection, _command: None, frame: memoryview) -> None:
    """Take note of what is acked; the journal makes it durable with what else it writes."""
    ack = read_ack(frame)
    consumer = connection.consumers.get(ack.consumer_id)
    dispatcher = None if consumer is None else consumer.dispatcher
    if consumer is None or dispatcher is None or dispatcher.closing:
        # While a subscription is moved, acks are of what was before: they would take from after.
        _answer(connection, ack, ServerError.ConsumerNotFound, "no such consumer")
        return
    try:
        _check(dispatcher, ack)
    except BrokerError as problem:
        _refuse(connection, ack, problem)
        return
    if ack.validation_error >= 0:
        _note_bad(consumer, ack)
    # By far the most common: entries that this consumer has.
    known: list[tuple[int, int, AckId]] = []
    subscription = dispatcher.subscription
    for each in ack.ids:
        span = subscription.end_of(consumer, each.entry_id)
        if span is None:
            connection.spawn(_take_later(connection, consumer, dispatcher, ack))
            return
        known.append((*span, each))
    try:
        _apply(consumer, dispatcher, ack, known)
    except EXPECTED as problem:
        _refuse(connection, ack, problem)
        return
    _done(connection, ack)


def _check(dispatcher: Dispatcher, ack: Ack) -> None:
    if ack.txn_least or ack.txn_most:
        raise NotServed("acks within transactions are not served: transactions are not")
    if ack.ack_type == CUMULATIVE:
        if not dispatcher.subscription.is_single:
            raise NotAllowed("cumulative acks are for exclusive and failover subscriptions")
        if len(ack.ids) != 1:
            raise InvalidRequest(f"a cumulative ack names one message, not {len(ack.ids)}")
    if len(ack.ids) > IDS_MAX:
        raise Close("ack.too_many_ids", count=len(ack.ids))
    partition_id = dispatcher.partition.partition_id
    for each in ack.ids:
        if each.ledger_id != partition_id:
            raise InvalidRequest(f"ledger {signed(each.ledger_id)} is not one of this topic")


def _note_bad(consumer: Consumer, ack: Ack) -> None:
    consumer.bad_messages += len(ack.ids)
    consumer.connection.door.bad_messages[VALIDATION_ERRORS[ack.validation_error]] += len(ack.ids)
    log.warning(
        "ack.validation_error",
        extra={
            "address": consumer.connection.stream.peer[0],
            "consumer": consumer.name,
            "problem": VALIDATION_ERRORS[ack.validation_error],
            "entries": [signed(each.entry_id) for each in ack.ids[:10]],
        },
    )


async def _take_later(
    connection: PulsarConnection, consumer: Consumer, dispatcher: Dispatcher, ack: Ack
) -> None:
    """The same, where the log has to be asked for entries."""
    plog, moves = dispatcher.partition.log, dispatcher.moves
    found: list[tuple[int, int, AckId]] = []
    problem: Exception | None = None
    for number, each in enumerate(ack.ids, 1):
        if number % IDS_A_TURN == 0:
            await asyncio.sleep(0)
        try:
            found += await _spans(connection.door, plog, each)
        except EXPECTED as refusal:
            problem = refusal
    if dispatcher.partition.deleted or dispatcher.moves != moves:
        return
    try:
        _apply(consumer, dispatcher, ack, found)
    except EXPECTED as refusal:
        problem = refusal
    if problem is not None:
        _refuse(connection, ack, problem)
    else:
        _done(connection, ack)


async def _spans(door: Shared, plog: PartitionLog, each: AckId) -> list[tuple[int, int, AckId]]:
    """Say what one id means: a span, with it the part that is gone; InvalidRequest."""
    offset, start = signed(each.entry_id), plog.start_offset
    if offset < 0:
        return []
    found: list[tuple[int, int, AckId]] = []
    if offset < start:  # whoever has it is done with it
        found.append((offset, start, each._replace(ack_set=())))
        if start >= plog.stable_end:
            return found
    if offset >= plog.stable_end:
        raise InvalidRequest(f"entry {offset} is beyond the last one")
    base, end = await locate(door, plog, max(offset, start))
    if base <= offset:  # else all of it is gone, not only its head
        found.append((base, end, each))
    return found


def _apply(
    consumer: Consumer,
    dispatcher: Dispatcher,
    ack: Ack,
    found: list[tuple[int, int, AckId]],
) -> None:
    """Ack what was found; a name that is none is refused after the others were taken."""
    if ack.ack_type == CUMULATIVE:
        for base, end, each in found:
            dispatcher.ack_until(first_kept(base, end, each.ack_set) if each.ack_set else end)
        dispatcher.subscription.settle_all()
        dispatcher.check_end()
        return
    ranges, wrong = _ranges(consumer, found)
    dispatcher.ack(ranges)
    subscription = dispatcher.subscription
    for base, _, _ in found:
        subscription.settle(consumer, base)
    if not subscription.is_single:
        dispatcher.wake()
    dispatcher.check_end()
    if wrong is not None:
        raise InvalidRequest(f"no entry begins at {wrong}")


def _ranges(
    consumer: Consumer, found: list[tuple[int, int, AckId]]
) -> tuple[list[tuple[int, int]], int | None]:
    """Say which offsets individual acks mean, and one that is no entry's id, if there is one."""
    ranges: list[tuple[int, int]] = []
    wrong: int | None = None
    by_message = consumer.connection.protocol_version < BATCHES_SINCE
    for base, end, each in found:
        if each.entry_id != base:
            if by_message:  # it was given each message for itself: dispatch.py
                ranges.append((each.entry_id, each.entry_id + 1))
            else:
                wrong = each.entry_id
        elif each.ack_set:
            ranges += acked_ranges(base, end, each.ack_set)
        else:
            ranges.append((base, base + 1 if by_message else end))
        if len(ranges) > RANGES_MAX:
            raise Close("ack.too_many_ranges")
    return ranges, wrong


def _done(connection: PulsarConnection, ack: Ack) -> None:
    if ack.request_id < 0:
        return

    def settled(problem: BaseException | None) -> None:
        if problem is None:
            _answer(connection, ack)
        else:
            _answer(connection, ack, ServerError.PersistenceError, "it could not be written")

    connection.on_commit(settled)


def _refuse(connection: PulsarConnection, ack: Ack, problem: Exception) -> None:
    log.warning(
        "ack.refused",
        extra={"address": connection.stream.peer[0], "problem": str(problem)},
    )
    _answer(connection, ack, code_of(problem), str(problem))


def _answer(
    connection: PulsarConnection,
    ack: Ack,
    error: ServerError | None = None,
    message: str = "",
) -> None:
    """Say what became of it, where the client wants to know."""
    if ack.request_id < 0 or connection.is_gone:
        return
    more: dict[str, object] = {}
    if error is not None:
        more = {"error": error, "message": message}
    if ack.txn_least or ack.txn_most:
        more |= {"txnid_least_bits": ack.txn_least, "txnid_most_bits": ack.txn_most}
    connection.say("ackResponse", consumer_id=ack.consumer_id, request_id=ack.request_id, **more)
