# cython: annotation_typing=False, wraparound=True
"""The way of a small produce request through the door, compiled, and of its answer back.

`HotShape` and `HotConnection` are the hot halves of `Shape` (produce_shape.py) and of
`KafkaConnection` (connection.py), which derive from them: what the same producer does again and
again. Whatever is unusual goes the long way, which is theirs. Cython reads this file together with
hot.pxd, which only adds types; uncompiled it is plain Python (docs/decisions/0058).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cython

from trilogue.broker.access import Operation
from trilogue.broker.errors import BrokerError
from trilogue.gateway.hot import HotSession, Place
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.stream import STOP_BROKER, Close

if not cython.compiled:  # hot.pxd takes the compiled twins
    from trilogue.gateway.kafka.hot_memory import new_copy, put32, put64
    from trilogue.wire.memory import bytes_at, bytes_of, signed32, uint32_at

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from trilogue.broker.access import Principal, Resource
    from trilogue.broker.topic import Topic
    from trilogue.gateway.kafka.apis import Api
    from trilogue.gateway.kafka.connection import KafkaDoor
    from trilogue.gateway.kafka.metering import Metering
    from trilogue.gateway.kafka.produce_shape import Shape
    from trilogue.gateway.kafka.shared import Reply, Shared
    from trilogue.gateway.stream import Buffer
    from trilogue.log.errors import StorageFailed
    from trilogue.log.journal import Journal

HEADER_MIN = 8
PREFIX_AT = 8  # after key, version and correlation id
PRODUCE = 0
WRITE = Operation.WRITE

_HEADER_MIN = HEADER_MIN
_PREFIX_AT = PREFIX_AT
_TAGS = 3  # bytes: no tags of the partition, the topic and the request
_NUMBERS_AT_OFFSET = 6
_NUMBERS_AT_TIME = 14
_NUMBERS_AT_START = 22


class HotShape:
    """Requests of one version to one topic that differ in partition, records and correlation id."""

    __slots__ = (
        "_answer",
        "_api",
        "_flexible",
        "_numbers_at",
        "_old_codecs",
        "_resource",
        "_start",
        "_starts_told",
        "_topic",
    )

    _answer: bytes  # to be written over
    _api: Api
    _flexible: bool  # whether lengths are varints and tags follow
    _numbers_at: int  # in the answer
    _old_codecs: bool  # whether it may not hold what is compressed with zstd
    _resource: Resource
    _start: int  # where the partition's index is
    _starts_told: bool  # whether the answer has the log's start
    _topic: Topic

    def take(
        self,
        door: Shared,
        api: Api,
        frame: memoryview,
        correlation_id: int,
        principal: Principal,
    ) -> Reply | bytearray | None:
        """Append what the request brings; None: it is unusual, and nothing has happened.

        The reply waits for the commit, except a bare one, of a topic that acknowledges from memory.
        """
        if api is not self._api:
            return None
        found = self.find(frame)
        if found is None or not (
            door.is_open or door.authorizer.allowed(principal, WRITE, self._resource)
        ):
            return None
        index, records = found
        partitions = self._topic.partitions
        if index >= len(partitions) or partitions[index].prepares:
            return None
        partition = partitions[index]
        append_time_ms, patient = -1, False
        try:
            base_offset = partition.append_plain(records)
            if base_offset < 0:
                appended = partition.append_sent(records, door.now_ms)
                base_offset, append_time_ms, _, patient = appended
        except BrokerError:
            return None  # it will be refused once more in the ordinary way, which says why
        start_offset = partition.log.start_offset
        answer = self.answer(correlation_id, index, base_offset, append_time_ms, start_offset)
        if patient:
            return answer
        return answer, self.refuse, correlation_id, index

    def find(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """The partition's index and its records, if the rest of the frame is as it should be."""
        data = bytes_of(frame)
        at = self._start
        end = len(frame)
        if at + 8 > end:
            return None
        index = signed32(uint32_at(data, at))
        if self._flexible:
            end -= _TAGS
            if data[end] | data[end + 1] | data[end + 2]:
                return None
            at += 4
            size = shift = 0
            while True:
                if at >= end or shift > 28:
                    return None
                byte = data[at]
                at += 1
                size |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            size -= 1
        else:
            size = signed32(uint32_at(data, at + 4))
            at += 8
        if size != end - at or size <= 0 or index < 0:
            return None
        records = frame[at:end]
        if self._old_codecs and self.is_new_codec(records):
            return None
        return index, records

    def answer(
        self, correlation_id: int, index: int, base_offset: int, append_time_ms: int, start: int
    ) -> bytearray:
        """The whole reply to a batch that was appended."""
        out = new_copy(self._answer)
        put32(out, 4, correlation_id)
        at = self._numbers_at
        put32(out, at, index)
        put64(out, at + _NUMBERS_AT_OFFSET, base_offset)
        put64(out, at + _NUMBERS_AT_TIME, append_time_ms)
        if self._starts_told:
            put64(out, at + _NUMBERS_AT_START, start)
        return out

    def is_new_codec(self, records: memoryview) -> bool:
        """Whether a batch is compressed as clients of old versions do not know."""
        raise NotImplementedError

    def refuse(self, correlation_id: int, index: int, code: Any) -> bytearray:
        """The whole reply when the disk did not keep what was appended."""
        raise NotImplementedError


class Committing(Place):
    """Replies that wait for the same commit, and how to take them back when it fails."""

    __slots__ = ("is_last", "problem", "replies")

    problem: BaseException | None
    replies: list[Reply]
    is_last: bool  # of its turn: the places before it wait for the same commit

    def __init__(self) -> None:
        self.ready = False  # as Place does: calling it costs as much as all of this
        self.requests = 1
        self.waiting_bytes = 0
        self.problem = None
        self.replies = []
        self.is_last = False

    def render(self) -> list[Buffer] | None:
        """All of them, in order; many small ones in one buffer."""
        found: list[Buffer] = []
        if self.problem is None:
            for each in self.replies:
                found.append(each[0])  # noqa: PERF401 -- compiled it is as fast
        else:
            code = code_of(self.problem)
            for _, refuse, correlation_id, what in self.replies:
                found.append(refuse(correlation_id, what, code))
        return found if len(found) == 1 else [b"".join(found)]


class HotConnection(HotSession):
    """One client: requests in, replies out in the same order."""

    door: KafkaDoor
    principal: Principal
    _committing: deque[Committing]
    _journal: Journal
    _metering: Metering | None  # once there are quotas
    _on_commit: Callable[[StorageFailed | None], None]
    _open: Committing | None  # the last place of the queue, if it is of this kind
    _prefixes: tuple[int, ...]  # where the prefixes end that this client has sent
    _spare: Committing | None  # one to be used again
    _most_in_flight: int
    _spoken: Callable[[int], Api | None]

    def frame(self, frame: memoryview) -> bool:
        """Take one request; False when the broker has no room for what it brings."""
        size = len(frame)
        if size < _HEADER_MIN:
            raise Close("request.cut", size=size)
        number = uint32_at(bytes_of(frame), 0)  # the key and version as one
        api = self._spoken(number)
        if api is None:
            return self._take_other(frame)
        door = self.door
        if door.quotas.active:
            self._begin_metering()
        if number >> 16 == PRODUCE:
            if door.log.under_pressure:
                self.stream.stop(STOP_BROKER)
                door.wait_for_relief(self)
                return False
            if self._take_alike(api, frame):
                return True
        self._handle(api, frame)
        return True

    def _take_alike(self, api: Api, frame: memoryview) -> bool:
        """Take a request like one before by what is known of that, if there was one."""
        size = len(frame)
        data = bytes_of(frame)
        correlation_id = signed32(uint32_at(data, 4))
        door = self.door
        for start in self._prefixes:
            if start > size:
                continue
            shape = door.shapes.find(bytes_at(data, _PREFIX_AT, start - _PREFIX_AT))
            if shape is None:
                continue
            taken = shape.take(door, api, frame, correlation_id, self.principal)
            if taken is None:
                continue
            door.requests[PRODUCE] += 1
            if self._metering is not None:
                self._count(self._metering, shape, taken, size)
            if isinstance(taken, tuple):
                self.durable(taken)
            else:
                self.say(taken)
            return True
        return False

    def _take_other(self, frame: memoryview) -> bool:
        """Take a request of a kind that nobody has sent before."""
        raise NotImplementedError

    def _handle(self, api: Api, frame: memoryview) -> None:
        """Decode a request, find its answer, and answer."""
        raise NotImplementedError

    def _begin_metering(self) -> None:
        raise NotImplementedError

    def _count(self, metering: Metering, shape: Shape, taken: Reply | bytearray, size: int) -> None:
        """Count a request that took the shorter way; its answer is written already."""
        raise NotImplementedError

    def durable(self, taken: Reply) -> None:
        """Answer when the journal has committed; replies of one turn share a place and a write."""
        place = self._open
        if place is None:
            place = self._spare
            if place is None:
                place = Committing()
            else:
                self._spare = None
            self._open = place
            self._queue.append(place)
            self._committing.append(place)
        else:
            place.requests += 1
        self.in_flight += 1
        if self.in_flight >= self._most_in_flight:
            self._stop()
        place.replies.append(taken)

    def turn_over(self) -> None:
        """Ask the journal once for the whole turn, and send what is ready."""
        if self._metering is not None:
            self._metering.end()
        if self._committing:
            last = self._committing[-1]
            if not last.is_last:
                last.is_last = True
                self._open = None
                self._journal.on_commit(self._on_commit)
        if self._queue and self._queue[0].ready:
            self.flush()

    def _committed(self, problem: StorageFailed | None) -> None:
        """What the turns up to a certain one added is durable, or never will be."""
        if self._gone:
            return
        while True:
            place = self._committing.popleft()
            place.problem = problem
            place.ready = True
            if place.is_last:
                break
        queue, stream, replies = self._queue, self.stream, place.replies
        if (
            len(queue) == 1
            and len(replies) == 1
            and problem is None
            and not (stream.write_paused or self._full or self._draining)
        ):
            # By far the most common case, and the same as what `flush` would do.
            queue.popleft()
            self.in_flight -= 1
            stream.send_one(replies.pop()[0])
            place.ready = place.is_last = False
            self._spare = place
        elif queue[0].ready:
            self.guarded(self.flush)
