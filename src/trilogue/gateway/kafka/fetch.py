"""Fetch v4-v18: read record batches, waiting for them if need be.

v5 log starts · v7 sessions · v9 the leader epoch a client knows (74, 75) · v10 zstd · v11 racks ·
v12 flexible, leaders in the answer · v13 topics by id (100) · v15-v18 for followers.

A fetch is a place in the order of replies. When it is at the head of the queue it looks: is there
enough (min_bytes), an error, or is its time over? Then it answers; otherwise it waits for the first
of its partitions to move, or for its time. So nothing is read for a peer that is not being
answered, and a wait costs a callback per partition and one timer, no task.

Partitions are filled in the order of the request; the first batch that is found is sent whole, even
above the limits. Bytes near the end come as views of the tail and leave without a copy; older ones
are read, checked and decompressed nowhere near the loop: in the executor, all of a request at once.
A damaged batch is an error of its partition alone.

Entries of other protocols go out as batches with the same offsets, converted in the executor; what
is in the way of that is an empty batch, counted and logged. In partitions that hold none nobody
pays for that: one look at the tail's formats, or a walk over headers beside a read from a file.

read_committed reads up to the last stable offset and is told which aborted transactions have
something in just the batches that it gets; their markers may lie in segments far behind.

Sessions (KIP-227): we open none (id 0), which is legal: clients go on with full fetches. Followers
(replica id >= 0) are refused: there are none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from trilogue.broker.errors import BrokerError, StaleEpoch, UnknownTopic, UnknownTopicId
from trilogue.broker.partition import Partition
from trilogue.broker.topic import Topic
from trilogue.entry.walk import walk_headers
from trilogue.gateway.conversions import KAFKA_ONLY, Conversions, is_kafka
from trilogue.gateway.kafka import replies
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.session import Place
from trilogue.gateway.stream import Buffer
from trilogue.log.errors import OffsetOutOfRange
from trilogue.log.partition_log import Cold, Hot, LaterAborted, PartitionLog
from trilogue.log.segment import AbortedTransaction
from trilogue.wire.kafka.compile import gatherer
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import (
    AbortedTransaction as Passed,
)
from trilogue.wire.kafka.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

log = logging.getLogger(__name__)

IDS_SINCE, FLEXIBLE_SINCE, ENDPOINTS_SINCE = 13, 12, 16
REPLICA_STATE_SINCE = 15
READ_COMMITTED = 1
Read: TypeAlias = tuple[list[Buffer], list[AbortedTransaction]]  # batches, what to pass over
# A poll that wants more than one byte looks again at most this often, however fast bytes come.
LOOK_AGAIN_S = 0.002


def handle(call: Call, request: FetchRequest) -> Fetch | FetchResponse:
    """Take a place in the queue, or refuse the whole request."""
    if request.session_epoch > 0 or request.session_epoch < -1:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return Fetch(call, request)


class Wanted(NamedTuple):
    """One partition of the request: where to read, or why that is not possible."""

    request: FetchPartition
    partition: Partition | None
    log: PartitionLog | None
    code: ErrorCode


class Reading(NamedTuple):
    """What is to be read, or converted, in the executor for one partition of the answer."""

    data: PartitionData
    source: Cold | Hot
    aborted: LaterAborted | list[AbortedTransaction] | None  # None: not asked for
    partition_id: int
    room: int  # bytes that the partition may have in the answer

    @property
    def size_hint(self) -> int:
        """Bytes of the answer that were set aside for it."""
        return self.source.size if isinstance(self.source, Hot) else self.source.size_hint

    def run(self, conversions: Conversions, spare: int) -> Read:
        """Read the batches, then look for aborted transactions with something in just these.

        Entries of other protocols are converted; what that makes larger may take `spare` bytes
        beyond those that were set aside.
        """
        is_hot = isinstance(self.source, Hot)
        parts: list[Buffer] = []
        parts += self.source.slices if isinstance(self.source, Hot) else [self.source.run()]
        aborted = self.aborted
        passed: list[AbortedTransaction] = []
        if isinstance(aborted, LaterAborted):
            if parts[-1]:
                _, _, base_offset, last_offset_delta, *_ = walk_headers(parts[-1])[-1]
                passed = aborted.run(base_offset + last_offset_delta + 1)
        elif aborted is not None and parts[-1]:
            passed = aborted
        if not is_kafka(parts):
            room = min(self.room, self.size_hint + spare)
            parts = conversions.for_kafka(self.partition_id, parts, room, keep=is_hot)
        return parts, passed


class Look:
    """What one look at all partitions found."""

    __slots__ = ("cold", "size", "topics", "urgent")

    def __init__(self) -> None:
        self.topics: list[FetchableTopicResponse] = []
        self.size = 0
        self.urgent = False  # an error: it is told at once
        self.cold: list[Reading] = []


class Fetch(Place):
    """One fetch, from its arrival to its answer."""

    __slots__ = (
        "_answer",
        "_call",
        "_deadline",
        "_future",
        "_request",
        "_subscriptions",
        "_timer",
        "_waking",
        "_wanted",
    )  # fmt: skip

    def __init__(self, call: Call, request: FetchRequest) -> None:
        super().__init__()
        self.ready = True  # to look, once at the head
        self._call = call
        self._request = request
        self._deadline = 0.0
        self._wanted = [(topic, _wanted(call, request, topic)) for topic in request.topics]
        self._subscriptions: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._waking: asyncio.Handle | None = None
        self._future: asyncio.Future[list[Read | Exception]] | None = None
        self._answer: list[Buffer] | None = None
        wait_ms = min(request.max_wait_ms, call.door.settings.fetch_wait_max_ms)
        if wait_ms > 0:
            self._deadline = call.door.loop.time() + wait_ms / 1000

    # ---- as a place in the queue

    def render(self) -> list[Buffer] | None:
        """Look, and answer if there is enough or no more time; else wait."""
        if self._answer is not None:
            return self._answer
        look = self._look()
        if not self._enough(look):
            self._wait()
            return None
        self._rest()
        if look.cold:
            self._read_cold(look)
            return None
        return self._encode(look)

    def hurry(self) -> None:
        """Wait no longer."""
        self._deadline = 0.0
        if self._future is None:
            self.ready = True

    def abandon(self) -> None:
        """Nobody waits for this any more."""
        self._rest()
        if self._future is not None:
            self._future.cancel()

    # ---- looking

    def _look(self) -> Look:
        look = Look()
        left = max(0, min(self._request.max_bytes, self._call.door.settings.fetch_bytes_max))
        for topic, wanted in self._wanted:
            partitions: list[PartitionData] = []
            for each in wanted:
                data = self._read(each, left, look)
                partitions.append(data)
            look.topics.append(
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
            )
        return look

    def _read(self, wanted: Wanted, limit: int, look: Look) -> PartitionData:
        """Read one partition as far as what the request may have in all allows."""
        request, partition, plog, code = wanted
        data = PartitionData(
            partition_index=request.partition,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=[] if self._request.isolation_level == READ_COMMITTED else None,
            records=b"",
        )
        if code or partition is None or plog is None:
            look.urgent = True
            return data
        try:
            if partition.deleted:
                raise UnknownTopic
            partition.check_epoch(request.current_leader_epoch)
            room = min(request.partition_max_bytes, limit - look.size)
            if look.size == 0 or room > 0:
                self._take(plog, data, request.fetch_offset, max(0, room), look)
        except EXPECTED as problem:
            data.error_code = code_of(problem)
            look.urgent = True
            if isinstance(problem, StaleEpoch):
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=self._call.broker.cluster.node_id, leader_epoch=partition.owner_epoch
                )
            if isinstance(problem, OffsetOutOfRange):  # a real Kafka leaves these at -1
                data.log_start_offset = plog.start_offset
            return data
        data.high_watermark = plog.high_watermark
        data.last_stable_offset = plog.stable_end
        data.log_start_offset = plog.start_offset
        return data

    def _take(
        self, plog: PartitionLog, data: PartitionData, offset: int, room: int, look: Look
    ) -> None:
        """Take what there is from an offset on into the answer, or what has to be read for it."""
        is_committed = self._request.isolation_level == READ_COMMITTED
        until = plog.stable_end if is_committed else None
        found = plog.read(offset, room, at_least_one=look.size == 0, until=until)
        if isinstance(found, Hot) and not found.size:
            return
        end = found.next_offset if until is None or isinstance(found, Hot) else until
        aborted = plog.aborted(offset, end) if is_committed else None
        if isinstance(found, Cold) or (
            plog.tail_formats & ~KAFKA_ONLY and not is_kafka(found.slices)
        ):
            reading = Reading(data, found, aborted, plog.partition_id, room)
            look.cold.append(reading)
            look.size += max(1, reading.size_hint)
            return
        assert not isinstance(aborted, LaterAborted), "what is read from memory ended there"
        data.records = found.slices
        look.size += found.size
        if aborted:
            data.aborted_transactions = _passed(aborted)

    def _enough(self, look: Look) -> bool:
        return (
            look.urgent
            or look.size >= min(self._request.min_bytes, self._request.max_bytes)
            or not any(wanted for _, wanted in self._wanted)
            or self._deadline <= self._call.door.loop.time()
        )

    # ---- waiting

    def _wait(self) -> None:
        self._unsubscribe()
        loop = self._call.door.loop
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._time_over)
        for _, wanted in self._wanted:
            for each in wanted:
                if each.log is not None:
                    self._subscriptions.append(each.log.wait(self._moved))

    def _moved(self) -> None:
        """The end of a partition moved: look once, after all that move together have moved."""
        if self._waking is None:
            loop = self._call.door.loop
            if self._request.min_bytes > 1:
                self._waking = loop.call_later(LOOK_AGAIN_S, self._look_again)
            else:
                self._waking = loop.call_soon(self._look_again)

    def _time_over(self) -> None:
        """The last look; by the timer's word, since the clock may still be a tick short."""
        self._deadline = 0.0
        self._look_again()

    def _look_again(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        self._call.session.is_ready(self)

    def _unsubscribe(self) -> None:
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._subscriptions.clear()

    def _rest(self) -> None:
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None

    # ---- cold reads

    def _read_cold(self, look: Look) -> None:
        door = self._call.door
        spare = max(0, min(self._request.max_bytes, door.settings.fetch_bytes_max) - look.size)
        future = door.loop.run_in_executor(door.executor, _run, look.cold, door.conversions, spare)
        self._future = future

        def done(future: asyncio.Future[list[Read | Exception]]) -> None:
            if future.cancelled():
                return
            self._call.session.guarded(lambda: self._fill(look, future.result()))

        future.add_done_callback(done)

    def _fill(self, look: Look, found: list[Read | Exception]) -> None:
        for (data, *_), result in zip(look.cold, found, strict=True):
            if isinstance(result, Exception):
                data.error_code = code_of(result)
                log.error(
                    "fetch.cold_read_failed",
                    extra={"partition": data.partition_index, "problem": str(result)},
                )
            else:
                data.records, aborted = result
                if aborted:
                    data.aborted_transactions = _passed(aborted)
        self._answer = self._encode(look)
        self._call.session.is_ready(self)

    # ---- answering

    def _encode(self, look: Look) -> list[Buffer]:
        version = self._call.version
        response = FetchResponse(responses=look.topics)
        if version >= ENDPOINTS_SINCE and look.urgent:
            response.node_endpoints = self._endpoints(look)
        return replies.gathered(
            gatherer(FetchResponse, version),
            response,
            self._call.correlation_id,
            flexible=version >= FLEXIBLE_SINCE,
        )

    def _endpoints(self, look: Look) -> list[NodeEndpoint]:
        """Where the leader is that an error told about."""
        told = any(
            data.current_leader.leader_id >= 0 for topic in look.topics for data in topic.partitions
        )
        if not told:
            return []
        host, port = self._call.door.advertised()
        return [NodeEndpoint(node_id=self._call.broker.cluster.node_id, host=host, port=port)]


def _passed(aborted: list[AbortedTransaction]) -> list[Passed]:
    return [Passed(producer_id=row.producer_id, first_offset=row.first_offset) for row in aborted]


def _run(readings: list[Reading], conversions: Conversions, spare: int) -> list[Read | Exception]:
    """In the executor: every read, each with its own outcome."""
    found: list[Read | Exception] = []
    for reading in readings:
        try:
            read = reading.run(conversions, spare)
            found.append(read)
            spare = max(0, spare - max(0, sum(map(len, read[0])) - reading.size_hint))
        except (*EXPECTED, OSError) as problem:
            found.append(problem)
    return found


def _wanted(call: Call, request: FetchRequest, topic: FetchTopic) -> list[Wanted]:
    """Find the partitions of one topic, or the error that they share."""
    code = ErrorCode.NONE
    found: Topic | None = None
    replica_id = request.replica_id
    if call.version >= REPLICA_STATE_SINCE:
        replica_id = request.replica_state.replica_id
    if replica_id >= 0:  # nobody is a follower here, and who says so may be after unsynced data
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        log.warning(
            "fetch.forged_replica",
            extra={"address": call.session.stream.peer[0], "replica": replica_id},
        )
    else:
        try:
            found = (
                call.door.topic(topic.topic)
                if call.version < IDS_SINCE
                else call.door.topic_by_id(topic.topic_id)
            )
        except UnknownTopicId:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        except BrokerError:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            if not call.allowed(found.name):
                code, found = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    return [_one(call, found, each, code) for each in topic.partitions]


def _one(call: Call, topic: Topic | None, request: FetchPartition, code: ErrorCode) -> Wanted:
    if topic is None:
        return Wanted(request, None, None, code)
    if not 0 <= request.partition < len(topic.partitions):
        return Wanted(request, None, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[request.partition]
    return Wanted(request, partition, call.door.log.partition(partition.partition_id), code)
