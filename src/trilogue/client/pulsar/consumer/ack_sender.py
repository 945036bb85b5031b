"""Acknowledgements, negative acknowledgements and redelivery requests of a consumer.

Acknowledgements of one loop iteration go in one command. Without a connection they are kept and
sent after the next reconnection, before the first permits.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, Final

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.pulsar.attachment import ClientContext, TopicAttachment
from trilogue.client.pulsar.consumer.ack_tracker import (
    AckedEntries,
    AckTracker,
    EntryPosition,
    encode_entries,
)
from trilogue.client.pulsar.errors import ClosedError
from trilogue.client.pulsar.message import MessageId, TxnId
from trilogue.client.pulsar.options import ConsumerOptions, SubscriptionType
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandRedeliverUnacknowledgedMessages,
    MessageIdData,
)

IDS_IN_ONE_ACK: Final = 1000
ORDERED: Final = frozenset({SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER})


class AckSender(TopicAttachment):
    """The part of a consumer that acknowledges messages at the broker."""

    def __init__(self, core: ClientContext, topic: str, options: ConsumerOptions) -> None:
        super().__init__(core, topic)
        self.options = options
        self.epoch = 0
        """The consumer epoch (PIP-84): a redelivery of everything drops what was sent before it."""
        self._acks = AckTracker(batch_index=options.batch_index_acks)
        self._ack_handle: asyncio.Handle | None = None
        self._receipt: asyncio.Future[None] | None = None
        self._in_transactions: dict[
            tuple[TxnId, bool], tuple[AckedEntries, asyncio.Future[None]]
        ] = {}
        self._nacked: dict[EntryPosition, None] = {}
        self._nack_timer: asyncio.TimerHandle | None = None

    def ack(self, id: MessageId) -> asyncio.Future[None] | None:  # noqa: A002 - as everywhere
        """Acknowledge one message, with the others of this turn; a future where receipts are."""
        self._check()
        self._acks.add(id)
        return self._schedule_flush()

    def ack_through(self, id: MessageId) -> asyncio.Future[None] | None:  # noqa: A002
        """Acknowledge a message and all before it."""
        self._check()
        self._check_ordered()
        self._acks.add_through(id)
        return self._schedule_flush()

    async def ack_in_transaction(self, txn_id: TxnId, id: MessageId, *, through: bool) -> None:  # noqa: A002
        """Acknowledge a message in a transaction, or (`through`) all before it, too.

        Waits for the broker, with the others of this turn: TransactionConflict where another
        transaction has one of the messages.
        """
        self._check()
        if through:
            self._check_ordered()
        found, key = self._acks.find_entries(id, through=through), (txn_id, through)
        if key not in self._in_transactions:
            loop = asyncio.get_running_loop()
            self._in_transactions[key] = {}, loop.create_future()
            loop.call_soon(self._flush_transaction, txn_id, through)
        entries, receipt = self._in_transactions[key]
        for place, (unacked, size) in found.items():
            entries[place] = entries.get(place, (-1, 0))[0] & unacked, size
        await asyncio.shield(receipt)

    def _flush_transaction(self, txn_id: TxnId, through: bool) -> None:
        """Send the acks of a transaction; of cumulative ones the last."""
        entries, receipt = self._in_transactions.pop((txn_id, through))
        if through:
            entries = {max(entries): entries[max(entries)]}
        acks = [
            CommandAck(
                ack_type=CommandAck.Cumulative if through else CommandAck.Individual,
                message_id=ids,
                txnid_most_bits=txn_id.most,
                txnid_least_bits=txn_id.least,
            )
            for ids in encode_entries(entries, IDS_IN_ONE_ACK)
        ]
        self._request_acks(acks, receipt)

    def _request_acks(self, acks: list[CommandAck], receipt: asyncio.Future[None]) -> None:
        closed = ClosedError(f"consumer of {self.topic} was closed")
        task = self.core.tasks.spawn(self._await_receipt(acks, receipt))
        task.add_done_callback(lambda _: _settle(receipt, closed))  # cancelled, that is

    def on_committed(self, id: MessageId, *, through: bool) -> None:  # noqa: A002 - as everywhere
        """An ack in a transaction took effect."""
        self._acks.add_committed(id, through=through)
        if self._acks.has_news:
            self._schedule_flush()

    @abstractmethod
    def redeliver(self) -> None:
        """Have everything sent again that is not acknowledged."""

    async def _request(self, field: str, command: Any, about: str) -> Any:
        """Send a request of this consumer to where it is attached and wait for the answer."""
        await self.wait_reattached()
        if self.connection is None:
            raise ConnectionLost(f"{about} {self.topic}: not attached")
        command.consumer_id = self.id
        return await self.connection.call(field, command, f"{about} {self.topic}")

    def _check_ordered(self) -> None:
        if self.options.type not in ORDERED:
            raise ClientError(f"{self.options.type.name} subscriptions have no order to ack by")

    def _check(self) -> None:
        """Raise why no acknowledgement can be sent any more."""
        if self.failure is not None:
            raise self.failure
        if self.closed:
            raise ClosedError(f"consumer of {self.topic} is closed")

    def _schedule_flush(self) -> asyncio.Future[None] | None:
        loop = asyncio.get_running_loop()
        if self.options.ack_receipts and self._receipt is None:
            self._receipt = loop.create_future()
        if self._ack_handle is None:
            self._ack_handle = loop.call_soon(self.flush_acks)
        return self._receipt

    def flush_acks(self) -> None:
        """Send acknowledgements now; without a connection after the next reconnection."""
        self._ack_handle = None
        connection = self.connection
        if connection is None or not connection.is_open:
            return
        if not self._acks.has_news:  # as with one message of a batch: nothing to wait for
            self._settle_receipt(None)
            return
        acks = [
            CommandAck(consumer_id=self.id, ack_type=CommandAck.Individual, message_id=ids)
            for ids in self._acks.take_single(IDS_IN_ONE_ACK)
        ]
        through = self._acks.take_through()
        if through is not None:
            acks.append(
                CommandAck(
                    consumer_id=self.id, ack_type=CommandAck.Cumulative, message_id=[through]
                )
            )
        receipt, self._receipt = self._receipt, None
        if receipt is not None:
            self._request_acks(acks, receipt)
            return
        for ack in acks:
            connection.send(BaseCommand(type=BaseCommand.ACK, ack=ack))

    async def _await_receipt(self, acks: list[CommandAck], receipt: asyncio.Future[None]) -> None:
        """Send acknowledgements and wait for their receipts (protocol 17)."""
        try:
            for ack in acks:
                await self._request("ack", ack, "ack on")
        except ClientError as problem:
            _settle(receipt, problem)
        else:
            _settle(receipt, None)

    def nack(self, id: MessageId) -> None:  # noqa: A002 - as everywhere
        """Have a message sent again, after a while."""
        self._nacked.update(dict.fromkeys(self._acks.entries_of(id)))
        if self._nack_timer is None:
            loop = asyncio.get_running_loop()
            self._nack_timer = loop.call_later(self.options.nack_delay_s, self._send_nacks)

    def _send_nacks(self) -> None:
        self._nack_timer = None
        places, self._nacked = list(self._nacked), {}
        if self.connection is None or not self.connection.is_open:
            return  # they come again by themselves
        for at in range(0, len(places), IDS_IN_ONE_ACK):
            self._redeliver([MessageId(*place).data() for place in places[at : at + 1000]])

    def _redeliver(self, ids: list[MessageIdData]) -> None:
        command = CommandRedeliverUnacknowledgedMessages(consumer_id=self.id, message_ids=ids)
        if not ids and self.options.type in ORDERED:
            command.consumer_epoch = self.epoch
        if self.connection is not None and self.connection.is_open:
            kind = BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
            self.connection.send(BaseCommand(type=kind, redeliverUnacknowledgedMessages=command))

    def _ack_quietly(self, id: MessageId) -> None:  # noqa: A002 - as everywhere
        self._acks.add(id)
        self._schedule_flush()

    def _ack_bad_entry(self, place: EntryPosition, validation_error: int) -> None:
        """Acknowledge an unreadable entry with its validation error."""
        if self.connection is None or not self.connection.is_open:
            return
        id_data = MessageId(*place).data()
        ack = CommandAck(
            consumer_id=self.id, ack_type=CommandAck.Individual, message_id=[id_data],
            validation_error=validation_error,  # type: ignore[arg-type]
        )  # fmt: skip
        self.connection.send(BaseCommand(type=BaseCommand.ACK, ack=ack))

    def forget_nacks(self) -> None:
        """Everything comes again anyhow, or nothing does."""
        self._nacked.clear()
        if self._nack_timer is not None:
            self._nack_timer.cancel()
            self._nack_timer = None

    def _fail_receipt(self, problem: ClientError) -> None:
        """Fail the pending receipt: no acknowledgement can be sent any more."""
        self._settle_receipt(problem)

    def _settle_receipt(self, problem: ClientError | None) -> None:
        receipt, self._receipt = self._receipt, None
        if receipt is not None:
            _settle(receipt, problem)


def _settle(receipt: asyncio.Future[None], problem: ClientError | None) -> None:
    """Complete a receipt, once."""
    if receipt.done():
        return
    if problem is None:
        receipt.set_result(None)
    else:
        receipt.set_exception(problem)
        receipt.exception()  # the caller may be cancelled
