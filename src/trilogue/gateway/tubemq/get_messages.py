"""getMessagesC2B: messages of a registered partition from its position on, or a held response.

    not registered, or by another client     411, 412
    faster than the flow control rules       452, with the time to wait
    over the client's quota                  the same
    over the topic's dispatch rate           the same
    there are messages                       messages; none of them if filters let nothing through
    the end of the data                      held (held_gets.py), then 404

What is in memory is read at once, in the same loop iteration; everything else is one job in the
executor per registration. A get during such a job is answered with 503, and the client repeats it.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from math import ceil
from typing import Any, Final, cast

from google.protobuf.message import Message

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.quotas.topic_rates import RATE_CHECK_S, PartitionRates
from trilogue.broker.subscriptions.backlog import backlog_size
from trilogue.broker.topics.partition import Partition
from trilogue.broker.tubemq.registrations import Registration
from trilogue.gateway.tubemq.errors import EXPECTED, TubeRequestError
from trilogue.gateway.tubemq.held_gets import PUSH, HeldGet, get_state
from trilogue.gateway.tubemq.master import check_consume_rules
from trilogue.gateway.tubemq.message_reader import MESSAGES, Pack, PendingPack, read
from trilogue.gateway.tubemq.registrations import admit, find_registration
from trilogue.gateway.tubemq.request_context import RequestContext
from trilogue.wire.tubemq.broker_pb2 import GetMessageRequestC2B, GetMessageResponseB2C
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.rpc_codec import encode_get_response
from trilogue.wire.tubemq.rpc_types import MessageTransfer

log = logging.getLogger(__name__)

LITTLE_BYTES: Final = 256 << 10  # with filters, a read below that brings little
END_OF_DATA: Final = "The request offset reached maxOffset!"
TOO_FAST: Final = "RpcServer consume speed limit!"
CLOSED: Final = (
    "[Partition Closed] Partition has been closed, for topic={},partitionId={} of Broker={}"
)
REMOVED: Final = "the registration was removed meanwhile"
BUSY: Final = "the partition is being read for an earlier request"
UNREGISTERED: Final = "UnRegistered Consumer:{}, you have to register firstly!"


def get_messages(context: RequestContext) -> Coroutine[Any, Any, Message | None] | None:
    """Answer getMessagesC2B, or hold it, or return the coroutine that answers it."""
    request: GetMessageRequestC2B = context.request
    gateway = context.gateway
    registration, topic = _check_registration(context, request)
    gateway.broker.registrations.touch(registration, gateway.monotonic_ms)
    state = gateway.held_gets.begin_get(registration)
    if state.busy:
        raise TubeRequestError(TubeCode.SERVICE_UNAVAILABLE, BUSY)
    manual_commit = request.manualCommitOffset
    offset = gateway.broker.registrations.begin_read(
        registration, consumed=request.lastPackConsumed, manual=manual_commit
    )
    wait_ms = 0
    if not request.escFlowCtrl:  # a meter without measurements lets the first get through
        rules = gateway.flow_rules(registration.group)
        wait_ms = rules.wait_ms(registration.meter, gateway.now_ms())
    if gateway.quotas.active:
        wait_ms = max(wait_ms, ceil(1_000 * context.connection.byte_quotas.fetching.left_s))
    if registration.partition.rates is not None:
        wait_ms = max(wait_ms, _rate_wait_ms(context, registration))
    if wait_ms > 0:
        _respond_too_fast(context, registration, wait_ms)
        return None
    get = _MessageGet(context, registration, topic, manual_commit=manual_commit)
    if offset >= registration.partition.log.stable_end:
        get.hold_at_end()
        return None
    return get.read_messages(offset)


def _check_registration(
    context: RequestContext, request: GetMessageRequestC2B
) -> tuple[Registration, Resource]:
    """Return the client's registration for the partition, and the topic to check access to.

    Raises where the client may not read it.
    """
    client_id, group = request.clientId, request.groupName
    index = request.partitionId
    broker_id = context.gateway.brokers.own_id
    admit(context, None)
    context.check_topic(Operation.READ, request.topicName)
    context.check_access(Operation.READ, ResourceKind.GROUP, group)  # whose position it moves
    registration = find_registration(context, request.topicName, index, group)
    if registration is None:
        raise TubeRequestError(TubeCode.NO_NODE, UNREGISTERED.format(client_id))
    if registration.client_id != client_id:
        raise TubeRequestError(
            TubeCode.DUPLICATE_PARTITION,
            f"[Duplicated Request] Partition={group}:{request.topicName}:{index} "
            f"of Broker={broker_id} "
            f"has been consumed by {registration.client_id};Current consumer {client_id}",
        )
    target = context.gateway.find_target(request.topicName)
    topic = target.topic
    if not context.gateway.broker.rules.accepts_subscribe(topic):
        raise TubeRequestError(
            TubeCode.FORBIDDEN, CLOSED.format(request.topicName, index, broker_id)
        )
    check_consume_rules(context.gateway.broker, group, topic.name, registration.filters)
    return registration, target.resource


def _rate_wait_ms(context: RequestContext, registration: Registration) -> int:
    """Return for how long the dispatch rate of a topic is used up; a changed one is seen soon."""
    rates = registration.partition.rates
    if rates is None:
        return 0
    wait_s = get_state(registration).limiter.wait_s(rates, context.gateway.loop.time())
    return ceil(1_000 * min(wait_s, RATE_CHECK_S))


def _respond_too_fast(context: RequestContext, registration: Registration, wait_ms: int) -> None:
    """Answer with 452 and the time to wait."""
    gateway = context.gateway
    gateway.throttled_gets += 1
    gateway.held_gets.response_sent(registration, gateway.loop, wait_ms / 1_000)
    context.respond(_error_response(TubeCode.CONSUME_SPEED_LIMIT, TOO_FAST, wait_ms))


class _MessageGet:
    """One get of a registered partition; the `GetResponder` while it is held."""

    __slots__ = ("context", "gateway", "manual_commit", "registration", "topic")

    def __init__(
        self,
        context: RequestContext,
        registration: Registration,
        topic: Resource,
        *,
        manual_commit: bool,
    ) -> None:
        self.context = context
        self.gateway = context.gateway
        self.registration = registration
        self.topic = topic
        self.manual_commit = manual_commit

    # ---- reading

    def read_messages(self, offset: int) -> Coroutine[Any, Any, None] | None:
        """Answer with what is in memory, or return the coroutine that reads segments."""
        filters = self.gateway.compile_filters(self.registration.filters)
        partition = self.registration.partition
        found = read(
            partition.log,
            offset,
            filters,
            self.gateway.conversions,
            MESSAGES if partition.rates is None else self._dispatch_room(partition.rates),
        )
        if isinstance(found, Pack):
            self._deliver(offset, found)
            return None
        get_state(self.registration).busy = True
        return self._read_in_executor(offset, found)

    def _dispatch_room(self, rates: PartitionRates) -> int:
        limiter = get_state(self.registration).limiter
        return limiter.room(rates, self.gateway.loop.time())[0]

    async def _read_in_executor(self, offset: int, later: PendingPack) -> None:
        connection, gateway = self.context.connection, self.gateway
        try:
            async with connection.read_slot():
                if connection.is_gone:
                    return
                messages = await gateway.cold_reads.run(
                    later.size_hint,
                    later.run,
                    connection=connection.stream,
                    address=connection.stream.peer[0],
                )
                if self.registration.is_gone:
                    raise TubeRequestError(TubeCode.NO_NODE, REMOVED)
                self._deliver(offset, messages)
        finally:
            get_state(self.registration).busy = False

    def _deliver(self, offset: int, pack: Pack) -> None:
        """Send messages and move the temporary position behind them."""
        if self.context.connection.is_gone:
            return  # no client receives them, so the position stays
        gateway, registration = self.gateway, self.registration
        # The right may have been taken away while the get was held.
        self.context.check_access(Operation.READ, *self.topic)
        self.context.check_access(Operation.READ, ResourceKind.GROUP, registration.group)
        messages, next_offset, size = pack
        gateway.broker.registrations.record_read(
            registration,
            offset,
            next_offset,
            manual=self.manual_commit,
            is_empty=not messages,
        )
        lag = lag_bytes(registration.partition, next_offset)
        little = bool(registration.filters) and size < LITTLE_BYTES
        registration.meter.read(size, lag, gateway.now_ms(), little=little)
        gateway.messages_out += len(messages)
        gateway.bytes_out += size
        registration.partition.bytes_out += size
        if gateway.quotas.active:
            self.context.connection.byte_quotas.count_fetched(
                self.context.principal.name, registration.client_id, size
            )
        rates = registration.partition.rates
        if rates is not None:
            limiter = get_state(registration).limiter
            limiter.count(rates, len(messages), size, gateway.loop.time())
        if messages:
            gateway.held_gets.messages_sent(registration, gateway.loop)
        end = registration.partition.log.high_watermark
        transfers = cast("list[MessageTransfer]", messages)
        self.context.send_frame(
            encode_get_response(self.context.serial, transfers, offset, lag, end, little)
        )
        if gateway.tracer is not None:
            from trilogue.gateway.telemetry.tubemq_messages import trace_delivered

            trace_delivered(
                gateway.tracer,
                self.topic.name,
                self.context.request.partitionId,
                messages,
                registration.client_id,
            )

    # ---- held at the end of the data

    def hold_at_end(self) -> None:
        """Hold the response until messages arrive, or send 404 where it cannot be held."""
        context, gateway = self.context, self.gateway
        limit_s = gateway.held_gets.limit_s(
            context.request.clientId,
            context.timeout_ms,
            gateway.loop.time() - context.arrived_s,
        )
        if not gateway.held_gets.hold(
            self,
            self.registration,
            gateway.loop,
            limit_s=limit_s,
            manual_commit=self.manual_commit,
            in_turns=len(gateway.brokers.broker_ids) > 1,
        ):
            self._respond_end_of_data()

    def attach(self, held_get: HeldGet) -> None:
        """Register the held get with the connection."""
        self.context.hold(held_get)

    def serve(self, held_get: HeldGet) -> None:
        """Answer with the messages that arrived."""
        del held_get
        self.context.connection.guarded(self._serve)

    def respond_empty(self, held_get: HeldGet) -> None:
        """Answer with success and without messages: the client tries another partition."""
        del held_get
        self.context.connection.guarded(self._respond_empty)

    def respond_timeout(self, held_get: HeldGet) -> None:
        """Answer that no message arrived in time.

        A push consumer gets a success without messages instead, so that it comes again at once,
        unless flow control rules limit how often it may; so does one that has to try other brokers.
        """
        self.context.connection.guarded(partial(self._respond_timeout, held_get))

    def respond_unregistered(self, held_get: HeldGet) -> None:
        """Answer that the registration was removed."""
        del held_get
        text = UNREGISTERED.format(self.registration.client_id)
        self.context.connection.guarded(partial(self.context.respond_error, TubeCode.NO_NODE, text))

    def _serve(self) -> None:
        if self.context.connection.write_paused:
            get_state(self.registration).busy = True
            self._spawn(self._serve_when_writable())
            return
        wait_ms = _rate_wait_ms(self.context, self.registration)
        if wait_ms:
            _respond_too_fast(self.context, self.registration, wait_ms)
            return
        offset = self.gateway.broker.registrations.begin_read(
            self.registration, consumed=False, manual=self.manual_commit
        )
        if offset >= self.registration.partition.log.stable_end:
            self.hold_at_end()
            return
        try:
            work = self.read_messages(offset)
        except EXPECTED as problem:
            self.context.respond_exception(problem)
            return
        if work is not None:
            self._spawn(work)

    async def _serve_when_writable(self) -> None:
        """Wait until the peer reads: else each of its gets would keep messages in memory."""
        async with self.context.connection.read_slot():
            get_state(self.registration).busy = False
            if self.registration.is_gone:
                raise TubeRequestError(TubeCode.NO_NODE, REMOVED)
            if not self.context.connection.is_gone:
                self._serve()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.gateway.spawn(self._run_guarded(work))

    async def _run_guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EXPECTED as problem:
            self.context.respond_exception(problem)
        except Exception:
            stream = self.context.connection.stream
            log.exception("request.failed", extra={"address": stream.peer[0]})
            stream.abort("connection.cut")

    def _respond_empty(self) -> None:
        registration = self.registration
        offset = registration.next_offset if self.manual_commit else registration.committed
        end = registration.partition.log.high_watermark
        serial = self.context.serial
        self.context.send_frame(encode_get_response(serial, (), offset, 0, end, False))

    def _respond_timeout(self, held_get: HeldGet) -> None:
        registration = self.registration
        is_pushed = PUSH in registration.client_id and not held_get.is_early
        limits_empty = self.gateway.flow_rules(registration.group).empties
        if (is_pushed or held_get.is_turn) and not limits_empty and not registration.is_gone:
            self._respond_empty()
            self.gateway.held_gets.response_sent(registration, self.gateway.loop)
        else:
            self._respond_end_of_data()

    def _respond_end_of_data(self) -> None:
        self.registration.meter.found_nothing(self.gateway.now_ms())
        self.gateway.held_gets.end_sent(self.registration, self.gateway.loop)
        self.context.respond(_error_response(TubeCode.NOT_FOUND, END_OF_DATA, -1))


def lag_bytes(partition: Partition, offset: int) -> int:
    """Return about how many bytes there are from an offset on; 0 at the end of the data."""
    plog = partition.log
    end = plog.high_watermark
    if offset >= end:
        return 0
    begin = plog.flushed_end
    if offset >= begin:
        return max(1, plog.tail_bytes * (end - offset) // max(1, end - begin))
    return max(1, backlog_size(partition, offset))


def _error_response(code: TubeCode, text: str, wait_ms: int) -> GetMessageResponseB2C:
    return GetMessageResponseB2C(
        success=False,
        errCode=code,
        errMsg=text,
        currOffset=-1,
        minLimitTime=wait_ms,
        escFlowCtrl=False,
        currDataDlt=-1,
    )
