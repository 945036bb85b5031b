"""ACK: the messages that a consumer has processed.

An individual ack names entries by their message ids; a set of bits marks the messages of an entry
that are *not* acked. A cumulative ack names one entry: everything is acked up to its end, or up to
its first bit that is set. A consumer may ack messages that another one has, as with Apache Pulsar:
applications pass ids around. Each id is checked against the log.

ACK_RESPONSE leaves when the ack is durable, and only for an ack with a request id. A message that
the client could not read (validation_error) is counted, logged and acked: otherwise it would be
redelivered for ever.

The end of an entry that was sent a short while ago is known; for others the log is read, possibly a
segment: then the rest is done in a task.
"""

from __future__ import annotations

import logging
from typing import Final, cast

from trilogue.broker.errors import BrokerError, InvalidRequest, NotAllowed
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.consumer import BATCHES_SINCE
from trilogue.gateway.pulsar.dispatcher import Dispatcher, PulsarConsumer
from trilogue.gateway.pulsar.entry_search import find_entry
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.gateway.pulsar.message_ids import decode_acked_ranges, first_unacked, signed
from trilogue.gateway.pulsar.services import PulsarServices
from trilogue.gateway.pulsar.transactions.parts import is_ack_joined, join_before_ack
from trilogue.gateway.pulsar.transactions.transactions import ack_in_transaction
from trilogue.gateway.steps import next_step
from trilogue.gateway.stream import Close
from trilogue.gateway.telemetry.connection_log import log_once
from trilogue.log.partition_log import PartitionLog
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.message_codec import Ack, AckId, read_ack

log = logging.getLogger(__name__)

CUMULATIVE: Final = 1
IDS_A_STEP: Final = 100  # that are looked up in the log in one step
RANGES_MAX: Final = 100_000  # of one ACK
ID_BYTES: Final = 300  # of memory that one id takes while it is looked up, and its span
WORD_BYTES: Final = 40  # that a word of its bits takes
VALIDATION_ERRORS = (
    "UncompressedSizeCorruption",
    "DecompressionError",
    "ChecksumMismatch",
    "BatchDeSerializeError",
    "DecryptionError",
)


def handle_ack(connection: PulsarConnection, _command: None, frame: memoryview) -> None:
    """Ack the entries of one ACK; durable with the journal's next commit."""
    ack = read_ack(frame)
    consumer = connection.consumers.get(ack.consumer_id)
    dispatcher = None if consumer is None else consumer.dispatcher
    if consumer is None or dispatcher is None or dispatcher.closing:
        if ack.consumer_id in connection.non_persistent_consumers:
            _answer(connection, ack)  # there is nothing to ack
            return
        # Acks that come while a subscription is moved are of messages from before the move.
        _answer(connection, ack, ServerError.ConsumerNotFound, "no such consumer")
        return
    try:
        _check(dispatcher, ack)
    except BrokerError as problem:
        _refuse(connection, ack, problem)
        return
    if ack.validation_error >= 0:
        _count_bad(connection, consumer, ack)
    # The common case: entries that were sent to this consumer.
    known: list[tuple[int, int, AckId]] = []
    subscription = dispatcher.subscription
    for each in ack.ids:
        span = subscription.end_of(consumer, each.entry_id)
        if span is None:
            _spawn_ack(connection, consumer, dispatcher, ack)
            return
        known.append((*span, each))
    if not is_ack_joined(connection, dispatcher.cursor, ack):
        _spawn_ack(connection, consumer, dispatcher, ack)
        return
    try:
        _apply(consumer, dispatcher, ack, known)
    except EXPECTED as problem:
        _refuse(connection, ack, problem)
        return
    _done(connection, ack)


def _check(dispatcher: Dispatcher, ack: Ack) -> None:
    if ack.ack_type == CUMULATIVE:
        if not dispatcher.subscription.is_single:
            raise NotAllowed("cumulative acks are for exclusive and failover subscriptions")
        if len(ack.ids) != 1:
            raise InvalidRequest(f"a cumulative ack names one message, not {len(ack.ids)}")
    partition_id = dispatcher.partition.partition_id
    for each in ack.ids:
        if each.ledger_id != partition_id:
            raise InvalidRequest(f"ledger {signed(each.ledger_id)} is not one of this topic")


def _count_bad(connection: PulsarConnection, consumer: PulsarConsumer, ack: Ack) -> None:
    consumer.bad_messages += len(ack.ids)
    connection.gateway.bad_messages[VALIDATION_ERRORS[ack.validation_error]] += len(ack.ids)
    log_once(
        connection,
        log,
        "ack.validation_error",
        consumer=consumer.name,
        problem=VALIDATION_ERRORS[ack.validation_error],
        entries=[signed(each.entry_id) for each in ack.ids[:10]],
    )


def _spawn_ack(
    connection: PulsarConnection, consumer: PulsarConsumer, dispatcher: Dispatcher, ack: Ack
) -> None:
    size = ID_BYTES * len(ack.ids) + sum(WORD_BYTES * len(each.ack_set) for each in ack.ids)
    connection.spawn(_ack_later(connection, consumer, dispatcher, ack), size)


async def _ack_later(
    connection: PulsarConnection, consumer: PulsarConsumer, dispatcher: Dispatcher, ack: Ack
) -> None:
    """Ack entries whose ends have to be looked up in the log, or in another node's transaction."""
    plog, moves = dispatcher.partition.log, dispatcher.moves
    found: list[tuple[int, int, AckId]] = []
    problem: Exception | None = None
    for number, each in enumerate(ack.ids, 1):
        if number % IDS_A_STEP == 0:
            await next_step(connection)
        try:
            found += await _find_spans(connection.gateway, plog, each)
        except EXPECTED as error:
            # Its traceback would keep this frame, with all ids, until the collector runs.
            problem = error.with_traceback(None)
    try:
        await join_before_ack(connection, dispatcher.cursor, ack)
    except EXPECTED as error:
        _refuse(connection, ack, error)
        return
    if dispatcher.partition.deleted or dispatcher.moves != moves:
        return
    try:
        _apply(consumer, dispatcher, ack, found)
    except EXPECTED as error:
        problem = error.with_traceback(None)
    if problem is not None:
        _refuse(connection, ack, problem)
    else:
        _done(connection, ack)


async def _find_spans(
    gateway: PulsarServices, plog: PartitionLog, each: AckId
) -> list[tuple[int, int, AckId]]:
    """Return the spans of offsets of one id, deleted ones too; raises InvalidRequest."""
    offset, start = signed(each.entry_id), plog.start_offset
    if offset < 0:
        return []
    found: list[tuple[int, int, AckId]] = []
    if offset < start:  # it is deleted, so it is acked
        found.append((offset, start, each._replace(ack_set=())))
        if start >= plog.stable_end:
            return found
    if offset >= plog.stable_end:
        raise InvalidRequest(f"entry {offset} is beyond the last one")
    base, end = await find_entry(gateway, plog, max(offset, start))
    if base <= offset:  # else all of it is deleted, not only its head
        found.append((base, end, each))
    return found


def _apply(
    consumer: PulsarConsumer,
    dispatcher: Dispatcher,
    ack: Ack,
    found: list[tuple[int, int, AckId]],
) -> None:
    """Ack spans; raises InvalidRequest for an id of no entry after the others are acked."""
    connection = cast("PulsarConnection", consumer.connection)
    in_transaction = ack.txn_least or ack.txn_most
    if ack.ack_type == CUMULATIVE:
        for base, end, each in found:
            until = first_unacked(base, end, each.ack_set) if each.ack_set else end
            if in_transaction:
                ack_in_transaction(connection, dispatcher, ack, until, ())
            else:
                dispatcher.ack_until(until)
        dispatcher.subscription.settle_all()
        dispatcher.check_end()
        return
    ranges, wrong = _ranges(consumer, found)
    if in_transaction:
        ack_in_transaction(connection, dispatcher, ack, None, ranges)
    else:
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
    consumer: PulsarConsumer, found: list[tuple[int, int, AckId]]
) -> tuple[list[tuple[int, int]], int | None]:
    """Return the offsets of individual acks as ranges, and an id of no entry if there is one."""
    ranges: list[tuple[int, int]] = []
    wrong: int | None = None
    by_message = consumer.connection.protocol_version < BATCHES_SINCE
    for base, end, each in found:
        if each.entry_id != base:
            if by_message:  # each message was sent by itself (consumer.py)
                ranges.append((each.entry_id, each.entry_id + 1))
            else:
                wrong = each.entry_id
        elif each.ack_set:
            ranges += decode_acked_ranges(base, end, each.ack_set)
        else:
            ranges.append((base, base + 1 if by_message else end))
        if len(ranges) > RANGES_MAX:
            raise Close("ack.too_many_ranges")
    return ranges, wrong


def _done(connection: PulsarConnection, ack: Ack) -> None:
    if ack.request_id < 0:
        return

    def answer(problem: BaseException | None) -> None:
        if problem is None:
            _answer(connection, ack)
        else:
            _answer(connection, ack, ServerError.PersistenceError, "the ack could not be written")

    connection.on_commit(answer)


def _refuse(connection: PulsarConnection, ack: Ack, problem: Exception) -> None:
    log_once(connection, log, "ack.refused", problem=str(problem))
    _answer(connection, ack, code_of(problem), str(problem))


def _answer(
    connection: PulsarConnection,
    ack: Ack,
    error: ServerError | None = None,
    message: str = "",
) -> None:
    """Send ACK_RESPONSE, if the ack has a request id."""
    if ack.request_id < 0 or connection.is_gone:
        return
    more: dict[str, object] = {}
    if error is not None:
        more = {"error": error, "message": message}
    if ack.txn_least or ack.txn_most:
        more |= {"txnid_least_bits": ack.txn_least, "txnid_most_bits": ack.txn_most}
    connection.send_command(
        "ackResponse", consumer_id=ack.consumer_id, request_id=ack.request_id, **more
    )
