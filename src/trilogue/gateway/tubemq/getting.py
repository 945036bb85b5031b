"""getMessagesC2B: who may read goes on where it is, and is told what is there, or waits for it.

    not registered, or somebody else is      411, 412
    faster than the rules allow              452, with the time to wait
    something is there                       messages; none of them if filters let nothing through
    the end of data                          held (holding.py), then 404

Reads of what lies in memory are answered at once, in the turn; all else is one job in the executor
per reader. What is asked for while one is at work is refused with 503, and asked for again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from google.protobuf.message import Message

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.backlog import backlog_size
from trilogue.broker.flow_control import NO_RULES, Rules, merged
from trilogue.broker.partition import Partition
from trilogue.broker.readings import Reader
from trilogue.gateway.tubemq.errors import EXPECTED, Refusal
from trilogue.gateway.tubemq.holding import PAUSE_S, PUSH, WORK_S, Holds, Wish, turn_of
from trilogue.gateway.tubemq.reading import Filters, Later, Pack, filters_of, read
from trilogue.gateway.tubemq.registering import admit, find_reader
from trilogue.wire.tubemq.broker_pb2 import GetMessageRequestC2B, GetMessageResponseB2C
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.hot import messages_answer
from trilogue.wire.tubemq.shapes import Transfer as Sent

if TYPE_CHECKING:
    from trilogue.gateway.tubemq.call import Call
    from trilogue.gateway.tubemq.door import TubeDoor

log = logging.getLogger(__name__)

EXPIRE_EVERY_S: Final = 1.0
QUIET_S: Final = 1.0  # nothing is held for a consumer that is to give partitions away
LITTLE_BYTES: Final = 256 << 10  # with filters, a read below that brings little
THE_END: Final = "The request offset reached maxOffset!"
TOO_FAST: Final = "RpcServer consume speed limit!"
CLOSED: Final = (
    "[Partition Closed] Partition has been closed, for topic={},partitionId={} of Broker=1"
)
LET_GO: Final = "the consumer was let go of meanwhile"
AT_WORK: Final = "the partition is being read for an earlier request"


class Gets:
    """What the gets of a door share: what is held, and what each consumer filters by."""

    def __init__(self, door: TubeDoor) -> None:
        self.door = door
        self.holds = Holds(
            door.settings.hold_s,
            serve=self._guarded(self._serve),
            empty=self._guarded(self._say_nothing),
            ended=self._guarded(self._say_end),
        )
        self.limited = 0  # answered with 452
        self._filters: dict[frozenset[str], Filters | None] = {}
        self._rules: dict[tuple[int, int], Rules] = {}

    def open(self) -> None:
        """Begin: know of readers that go, and let go of those who are silent."""
        readings = self.door.broker.readings
        readings.session_ms = int(self.door.settings.reader_timeout_s * 1000)
        readings.on_gone.append(self._gone)
        readings.on_moved.append(self.holds.moved)
        self.door.spawn(self._expire())

    def close(self) -> None:
        """The door closes."""
        readings = self.door.broker.readings
        readings.on_gone.remove(self._gone)
        readings.on_moved.remove(self.holds.moved)

    @property
    def now_ms(self) -> int:
        """By the clock that readers' sessions go by, which no administrator sets."""
        return int(self.door.loop.time() * 1000)

    def release(self, group: str, client_id: str) -> None:
        """A consumer is about to be told to give partitions away: answer what is held for it."""
        consumer = self.door.broker.readings.consumer(group, client_id)
        if consumer is not None:
            self.holds.release(consumer, self.door.loop.time() + QUIET_S)

    # ---- one get

    def take(self, call: Call) -> Coroutine[Any, Any, Message | None] | None:
        """Answer a get, or hold it, or return the work that answers it."""
        request: GetMessageRequestC2B = call.request
        reader = self._reader(call, request)
        self.door.broker.readings.heard(reader, self.now_ms)
        turn = self.holds.asked(reader)
        if turn.busy:
            raise Refusal(TubeCode.SERVICE_UNAVAILABLE, AT_WORK)
        manual = request.manualCommitOffset
        offset = self.door.broker.readings.begin(
            reader, consumed=request.lastPackConsumed, manual=manual
        )
        if not request.escFlowCtrl:  # a meter that measured nothing yet lets the first one through
            wait_ms = self._rules_of(reader).wait_ms(reader.meter, self.door.now_ms())
            if wait_ms > 0:
                self.limited += 1
                self.holds.answered(reader, self.door.loop, wait_ms / 1000)
                call.answer(_refusal(TubeCode.CONSUME_SPEED_LIMIT, TOO_FAST, wait_ms))
                return None
        if offset >= reader.partition.log.stable_end:
            if not self.holds.hold(call, reader, manual=manual):
                self._answer_end(call, reader)
            return None
        return self._read(call, reader, offset, manual=manual)

    def _reader(self, call: Call, request: GetMessageRequestC2B) -> Reader:
        client_id, group = request.clientId, request.groupName
        index = request.partitionId
        admit(call, None)
        reader = find_reader(call, request.topicName, index, group)
        if reader is None:
            raise Refusal(
                TubeCode.NO_NODE,
                f"UnRegistered Consumer:{client_id}, you have to register firstly!",
            )
        if reader.client_id != client_id:
            raise Refusal(
                TubeCode.DUPLICATE_PARTITION,
                f"[Duplicated Request] Partition={group}:{request.topicName}:{index} of Broker=1 "
                f"has been consumed by {reader.client_id};Current consumer {client_id}",
            )
        topic = self.door.target(request.topicName).topic
        call.check_access(Operation.READ, ResourceKind.TOPIC, topic.name)
        call.check_access(Operation.READ, ResourceKind.GROUP, group)  # whose position it moves
        rules = self.door.broker.rules
        if not rules.accepts_subscribe(topic):
            raise Refusal(TubeCode.FORBIDDEN, CLOSED.format(request.topicName, index))
        denial = rules.may_consume(group, topic.name, reader.filters)
        if denial is not None:
            raise Refusal(TubeCode(denial.code), denial.text)
        return reader

    def _read(
        self, call: Call, reader: Reader, offset: int, *, manual: bool
    ) -> Coroutine[Any, Any, None] | None:
        found = read(reader.partition.log, offset, self._filters_of(reader), self.door.conversions)
        if isinstance(found, Pack):
            self._hand_out(call, reader, offset, found, manual=manual)
            return None
        turn_of(reader).busy = True
        return self._read_later(call, reader, offset, found, manual=manual)

    async def _read_later(
        self, call: Call, reader: Reader, offset: int, later: Later, *, manual: bool
    ) -> None:
        try:
            async with call.connection.room_for_pack():
                if call.connection.is_gone:
                    return
                pack = await self.door.loop.run_in_executor(self.door.executor, later.run)
                if reader.is_gone:
                    raise Refusal(TubeCode.NO_NODE, LET_GO)
                self._hand_out(call, reader, offset, pack, manual=manual)
        finally:
            turn_of(reader).busy = False

    def _hand_out(
        self, call: Call, reader: Reader, offset: int, pack: Pack, *, manual: bool
    ) -> None:
        if call.connection.is_gone:
            return  # nobody hears of it: that is not handed out
        door = self.door
        messages, next_offset, size = pack
        door.broker.readings.handed_out(
            reader, offset, next_offset, manual=manual, is_empty=not messages
        )
        lag = lag_bytes(reader.partition, next_offset)
        little = bool(reader.filters) and size < LITTLE_BYTES
        reader.meter.read(size, lag, door.now_ms(), little=little)
        door.messages_out += len(messages)
        door.bytes_out += size
        if messages:
            self.holds.answered(reader, door.loop, WORK_S)
        end = reader.partition.log.high_watermark
        call.send(
            messages_answer(call.serial, cast("list[Sent]", messages), offset, lag, end, little)
        )

    # ---- what was held

    def _serve(self, wish: Wish) -> None:
        """Something arrived for it."""
        call, reader, manual = wish.call, wish.reader, wish.manual
        if call.connection.write_paused:
            turn_of(reader).busy = True
            self.door.spawn(self._worked(call, self._serve_later(wish)))
            return
        offset = self.door.broker.readings.begin(reader, consumed=False, manual=manual)
        if offset >= reader.partition.log.stable_end:
            if not self.holds.hold(call, reader, manual=manual):
                self._answer_end(call, reader)
            return
        try:
            work = self._read(call, reader, offset, manual=manual)
        except EXPECTED as problem:
            call.problem(problem)
            return
        if work is not None:
            self.door.spawn(self._worked(call, work))

    async def _serve_later(self, wish: Wish) -> None:
        """Something arrived, but the peer does not read: wait, or it costs a pack for each get."""
        call, reader = wish.call, wish.reader
        async with call.connection.room_for_pack():
            turn_of(reader).busy = False
            if reader.is_gone:
                raise Refusal(TubeCode.NO_NODE, LET_GO)
            if not call.connection.is_gone:
                self._serve(wish)

    async def _worked(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EXPECTED as problem:
            call.problem(problem)
        except Exception:
            log.exception("request.failed", extra={"address": call.connection.stream.peer[0]})
            call.connection.stream.abort("connection.cut")

    def _say_nothing(self, wish: Wish) -> None:
        """Success without a message: its client shall look after another partition."""
        plog = wish.reader.partition.log
        offset = wish.reader.next_offset if wish.manual else wish.reader.committed
        call = wish.call
        call.send(messages_answer(call.serial, (), offset, 0, plog.high_watermark, False))

    def _say_end(self, wish: Wish) -> None:
        """Nothing came in time. A push consumer comes again at once, if rules let it."""
        reader = wish.reader
        is_pushed = PUSH in reader.client_id and not wish.is_hurried
        if is_pushed and not self._rules_of(reader).empties and not reader.is_gone:
            self._say_nothing(wish)
            self.holds.answered(reader, self.door.loop, 0.0)
        else:
            self._answer_end(wish.call, reader)

    def _answer_end(self, call: Call, reader: Reader) -> None:
        reader.meter.found_nothing(self.door.now_ms())
        self.holds.answered(reader, self.door.loop, PAUSE_S)
        call.answer(_refusal(TubeCode.NOT_FOUND, THE_END, -1))

    def _gone(self, reader: Reader) -> None:
        wish = self.holds.gone(reader)
        if wish is not None:
            text = f"UnRegistered Consumer:{reader.client_id}, you have to register firstly!"
            wish.call.connection.guarded(partial(wish.call.refuse, TubeCode.NO_NODE, text))

    def _guarded(self, answer: Callable[[Wish], None]) -> Callable[[Wish], None]:
        return lambda wish: wish.call.connection.guarded(partial(answer, wish))

    # ---- what is known of readers

    def _filters_of(self, reader: Reader) -> Filters | None:
        if not reader.filters:
            return None
        found = self._filters.get(reader.filters)
        if found is None:
            if len(self._filters) >= 1_000:
                self._filters.clear()
            found = self._filters[reader.filters] = filters_of(reader.filters)
        return found

    def _rules_of(self, reader: Reader) -> Rules:
        rules = self.door.broker.rules
        default, group = rules.default_flow, rules.flow(reader.group)
        if group.rules is NO_RULES:
            return default.rules
        if default.rules is NO_RULES:
            return group.rules
        key = (default.id, group.id)
        found = self._rules.get(key)
        if found is None:
            if len(self._rules) >= 1_000:
                self._rules.clear()
            found = self._rules[key] = merged(default.rules, group.rules)
        return found

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            for reader in self.door.broker.readings.expire(self.now_ms):
                log.info(
                    "reader.expired",
                    extra={"group": reader.group, "client": reader.client_id},
                )


def take(call: Call) -> Coroutine[Any, Any, Message | None] | None:
    """Answer getMessagesC2B."""
    return call.door.gets.take(call)


def lag_bytes(partition: Partition, offset: int) -> int:
    """How much there is from an offset on, about: 0 at the end, and less with each message read."""
    plog = partition.log
    end = plog.high_watermark
    if offset >= end:
        return 0
    begin = plog.flushed_end
    if offset >= begin:
        return max(1, plog.tail_bytes * (end - offset) // max(1, end - begin))
    return max(1, backlog_size(partition, offset))


def _refusal(code: TubeCode, text: str, wait_ms: int) -> GetMessageResponseB2C:
    return GetMessageResponseB2C(
        success=False,
        errCode=code,
        errMsg=text,
        currOffset=-1,
        minLimitTime=wait_ms,
        escFlowCtrl=False,
        currDataDlt=-1,
    )
