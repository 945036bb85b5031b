"""Gets messages of the registered partitions, and confirms them.

Gets are sent only while the application waits, to at most `fetch_at_once` partitions at a time. All
of it is callbacks: there is no task that reads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message as Proto

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.pool import Address
from trilogue.client.tubemq.errors import NoMessage, TubeError
from trilogue.client.tubemq.message import Message, decode_message
from trilogue.client.tubemq.options import Confirm, ConsumerOptions
from trilogue.client.tubemq.partition_registrar import LOST, NOT_REGISTERED, PartitionRegistrar
from trilogue.client.tubemq.partition_state import Batch, FetchState, Offsets, PartitionState
from trilogue.client.tubemq.server_connections import log
from trilogue.client.tubemq.session import RETRIABLE, MasterSession, request_checked
from trilogue.wire.tubemq.broker_pb2 import (
    CommitOffsetRequestC2B,
    CommitOffsetResponseB2C,
    GetMessageRequestC2B,
    GetMessageResponseB2C,
)
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.methods import BY_NAME

GET: Final = BY_NAME["getMessagesC2B"]
PAUSES_S: Final = {TubeCode.FORBIDDEN: 2.0, TubeCode.MOVED: 0.2}
"""How long a partition is left alone after a refusal; else PAUSE_S."""
PAUSE_S: Final = 0.3
NO_PARTITION: Final = (
    "no partition is assigned to this consumer: the topic may not exist, or other consumers of the "
    "group hold all its partitions"
)
MILLISECOND: Final = 0.001
PROBLEMS_MAX: Final = 100


class PartitionReader(PartitionRegistrar):
    """The partitions of one consumer, and the messages on their way from them."""

    def __init__(
        self,
        session: MasterSession,
        group: str,
        topics: Mapping[str, frozenset[str]],
        options: ConsumerOptions,
    ) -> None:
        super().__init__(session, group, topics, options)
        self.settled = asyncio.Event()
        """Set whenever a pack was confirmed or rolled back."""
        self.problems: deque[ClientError] = deque(maxlen=PROBLEMS_MAX)
        """What the next `get` raises, once."""
        self.dropped = 0
        """Messages with a wrong checksum."""
        self._loop = asyncio.get_running_loop()
        self._connecting: set[Address] = set()
        self._full: deque[Batch] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wanted = 0
        self._timer: asyncio.TimerHandle | None = None

    # Getting messages.

    async def get(self, timeout_s: float | None) -> Batch:
        """The next pack of messages; NoMessage if none is there in time, or a lasting refusal.

        Where brokers refuse every partition it does not wait longer than for an answer.
        """
        request_s = self._session.core.options.request_timeout_s
        limit_s = request_s if timeout_s is None else timeout_s
        deadline = self._loop.time() + limit_s
        self._wanted += 1
        try:
            while True:
                self._session.check()
                if self.problems:
                    raise self.problems.popleft()
                batch = self._take_batch()
                if batch is not None:
                    return batch
                self._pump()
                waiter = self._loop.create_future()
                self._waiting.append(waiter)
                try:
                    async with asyncio.timeout_at(min(deadline, self._loop.time() + request_s)):
                        await waiter
                except BaseException as problem:
                    if waiter.done() and not waiter.cancelled():
                        self._wake_one()  # this waiter was woken and cancelled
                    with suppress(ValueError):
                        self._waiting.remove(waiter)
                    if not isinstance(problem, TimeoutError):
                        raise
                    self._check_not_refused()
                    if self._loop.time() < deadline:
                        continue
                    self._session.check_reachable(limit_s)
                    if timeout_s is not None:
                        raise self._no_message() from None
                    deadline = self._loop.time() + limit_s
        finally:
            self._wanted -= 1

    def _check_not_refused(self) -> None:
        """Raise a broker's refusal where it is the reason that there is no partition to read."""
        if self._refused and not len(self.holding):
            raise next(iter(self._refused.values())) from None

    def _no_message(self) -> TubeError:
        """The reason, with the codes of the Java client; a broker's refusal instead of 404."""
        helds = self.holding.all()
        if not helds:
            return NoMessage(TubeCode.NO_PARTITION_ASSIGNED, NO_PARTITION)
        if all(held.paused for held in helds):
            return NoMessage(TubeCode.ALL_PARTITIONS_FROZEN, "all partitions are paused")
        if all(held.state is FetchState.IN_HAND for held in helds):
            return NoMessage(TubeCode.ALL_PARTITIONS_IN_USE, "confirm what you have first")
        for held in helds:
            if held.refusal is not None:
                return held.refusal
        return NoMessage(TubeCode.NOT_FOUND, "nothing new in time")

    def _take_batch(self) -> Batch | None:
        """A pack that is there; it must be confirmed from now on."""
        while self._full:
            batch = self._full.popleft()
            held = batch.held
            if held.batch is batch and held.state is FetchState.FULL:
                held.state = FetchState.IN_HAND
                held.timer = self._loop.call_later(
                    self._options.confirm_timeout_s, self._on_confirm_timeout, batch
                )
                return batch
        return None

    def _on_confirm_timeout(self, batch: Batch) -> None:
        log.warning("tubemq.not_confirmed_in_time", extra={"partition": batch.partition})
        self._release(batch.held, consumed=False)

    def _release(self, held: PartitionState, *, consumed: bool, pause_s: float = 0.0) -> None:
        held.release(consumed=consumed, ready_at=self._loop.time() + pause_s)
        self.settled.set()
        self._pump()

    def _pump(self) -> None:
        """Send gets to idle partitions while the application waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._wanted or self._session.closed:
            return
        now = self._loop.time()
        while self.holding.busy() < self._options.fetch_at_once:
            held = self.holding.next(now)
            if held is None:
                break
            self._request_messages(held, now)
        else:
            return  # an answer will come first
        at = self.holding.next_at()
        if at is not None:
            self._timer = self._loop.call_at(at, self._pump)

    def _request_messages(self, held: PartitionState, now: float) -> None:
        place = held.place
        request = GetMessageRequestC2B(
            clientId=self._session.client_id,
            partitionId=place.partition_id,
            groupName=self._group,
            topicName=place.topic,
            lastPackConsumed=held.consumed,
            manualCommitOffset=False,
            escFlowCtrl=self._options.skip_flow_control,
        )
        held.requested_at = now
        try:
            connection = self._session.servers.peek(place.address)
            if connection is not None:
                connection.send_request(GET, request, partial(self._on_answer, held))
                held.state = FetchState.READING
                return
        except ConnectionLost:
            pass  # it is about to be made again
        except ClientError as problem:
            self.report(problem)
        held.ready_at = now + PAUSE_S
        if place.address not in self._connecting:
            self._connecting.add(place.address)
            self._session.spawn(self._connect(place.address))

    async def _connect(self, address: Address) -> None:
        """Connect to a broker again; its partitions stay ours as long as it thinks so."""
        try:
            await self._session.servers.get(address)
        except ClientError as problem:
            log.info("tubemq.no_connection", extra={"server": address, "problem": str(problem)})
        else:
            for held in self.holding.at(address):
                if held.state is FetchState.IDLE:
                    held.ready_at = 0.0
        finally:
            self._connecting.discard(address)
        self._pump()

    def _on_answer(
        self, held: PartitionState, answer: Proto | None, problem: Exception | None
    ) -> None:
        if self.holding.get(held.key) is not held or held.state is not FetchState.READING:
            return  # given back in the meantime
        if problem is not None:
            # The confirmation in this get may have arrived or not: sent again, it could confirm
            # a batch that was never returned.
            if isinstance(problem, ClientError) and not isinstance(problem, RETRIABLE):
                self.report(problem)
            self._release(held, consumed=False, pause_s=PAUSE_S)
            return
        assert isinstance(answer, GetMessageResponseB2C)
        in_order = answer.success or answer.errCode == TubeCode.NOT_FOUND
        held.served |= in_order
        if in_order:
            held.refusal = None
        if not answer.success:
            self._on_refused(held, answer)
            return
        held.offset, held.max_offset = answer.currOffset, answer.maxOffset
        held.unread = answer.currDataDlt
        messages = self._read(held, answer)
        if messages:
            held.batch = Batch(held, messages, held.offset, held.max_offset, held.unread)
            held.state = FetchState.FULL
            self._full.append(held.batch)
            self._wake_one()
            self._pump()
            return
        slow = answer.requireSlow and not answer.messages
        self._release(held, consumed=True, pause_s=self._options.not_found_wait_s if slow else 0.0)

    def _read(self, held: PartitionState, answer: GetMessageResponseB2C) -> list[Message]:
        """The messages that are whole and of a type that is wanted.

        A broker filters by the hash of the type; two types may share one.
        """
        found = []
        for one in answer.messages:
            message = decode_message(
                held.place.topic, one.messageId, one.checkSum, one.payLoadData, one.flag
            )
            if message is None:
                self.dropped += 1
                log.warning(
                    "tubemq.bad_message",
                    extra={"partition": held.key, "message_id": one.messageId},
                )
            elif not held.filters or message.type in held.filters:
                found.append(message)
        return found

    def _on_refused(self, held: PartitionState, answer: GetMessageResponseB2C) -> None:
        problem = TubeError(answer.errCode, answer.errMsg, f"get from {held.key}")
        if problem.error is TubeCode.NOT_FOUND:
            held.at_end = True
            # A broker that holds a get at the end of the data has done the waiting.
            elapsed_s = self._loop.time() - held.requested_at
            pause_s = max(0.0, self._options.not_found_wait_s - elapsed_s)
            self._release(held, consumed=False, pause_s=pause_s)
        elif problem.error is TubeCode.CONSUME_SPEED_LIMIT:
            wait_ms = max(0, answer.minLimitTime)
            self._release(held, consumed=held.consumed, pause_s=wait_ms * MILLISECOND)
        elif problem.error in LOST or problem.error in NOT_REGISTERED:
            log.info("tubemq.lost", extra={"partition": held.key, "problem": str(problem)})
            if problem.error is TubeCode.CERTIFICATE_FAILURE:
                self._note_refusal(held.key, problem)
            self._on_partition_lost(held, again=problem.error in NOT_REGISTERED)
            self._session.wake()
            self._pump()
        else:
            log.info("tubemq.get_refused", extra={"partition": held.key, "problem": str(problem)})
            held.refusal = problem
            pause_s = PAUSES_S.get(problem.error, PAUSE_S)
            self._release(held, consumed=held.consumed, pause_s=pause_s)

    def report(self, problem: ClientError) -> None:
        """Have the application know, with its next `get`."""
        self.problems.append(problem)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake all waiting calls: the state has changed."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    # Confirming.

    async def settle(self, batch: Batch, *, consumed: bool) -> None:
        """Confirm a pack or have it come again; TubeError where it is not in hand any more."""
        held = batch.held
        if held.batch is not batch or held.state is not FetchState.IN_HAND:
            raise TubeError(
                TubeCode.BAD_REQUEST, "its time is over, or its partition is gone", repr(batch)
            )
        if self._options.confirm is Confirm.NEXT_GET:
            self._release(held, consumed=consumed)
            return
        held.state, was_confirmed = FetchState.CONFIRMING, False
        if held.timer is not None:
            held.timer.cancel()
        place = held.place
        request = CommitOffsetRequestC2B(
            clientId=self._session.client_id,
            topicName=place.topic,
            partitionId=place.partition_id,
            groupName=self._group,
            lastPackConsumed=consumed,
        )
        try:
            connection = await self._session.servers.get(place.address)
            answer: Any = await request_checked(
                connection, "consumerCommitC2B", request, CommitOffsetResponseB2C
            )
            was_confirmed = True
            held.offset, held.max_offset = answer.currOffset, answer.maxOffset
        except TubeError as problem:
            if problem.error in NOT_REGISTERED:
                self._on_partition_lost(held, again=True)
            raise
        finally:
            if held.batch is batch:
                self._release(held, consumed=was_confirmed and consumed)

    def offsets(self) -> dict[str, Offsets]:
        """Where the group is in every partition that is held."""
        return {
            held.key: Offsets(held.offset, held.max_offset, held.unread)
            for held in self.holding.all()
        }

    def pause(self, keys: Iterable[str], *, paused: bool) -> None:
        """Pause or resume partitions; keys that are not held are ignored."""
        for key in keys:
            held = self.holding.get(key)
            if held is not None:
                held.paused = paused
        self._pump()
