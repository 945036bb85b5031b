"""ShareFetch v1-v2: a member of a share group acquires records, and acknowledges others (KIP-932).

v2 acquire modes (KIP-1206), renewed locks (KIP-1222). Sessions are in sessions.py. What a request
acknowledges is applied when it arrives; then its partitions are read (reading.py), in steps, and
those that moved again, until some of them have records or its wait is over. The first records end
the wait, whatever `min_bytes` is.

In a session the response has only partitions with records, an error, or an acknowledgement; it
leaves when the acknowledgements are durable. A request that renews locks reads nothing.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from trilogue.broker.broker import Broker
from trilogue.broker.groups.share.partition import SharePartition
from trilogue.broker.settings.offset_reset import EARLIEST, LATEST, duration_ms
from trilogue.broker.topics.partition import Partition
from trilogue.gateway.kafka import response_frames
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, to_error_code
from trilogue.gateway.kafka.offsets.list_offsets import find_timestamp
from trilogue.gateway.kafka.share.acknowledgements import (
    AcknowledgementResult,
    apply_acknowledgements,
    find_partition,
)
from trilogue.gateway.kafka.share.reading import AcquiredBatches, ShareReader
from trilogue.gateway.kafka.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSession,
    ShareSessionKey,
    TopicPartitionKey,
)
from trilogue.gateway.reply_queue import BufferedReply
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.codec.compile import gatherer
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.leader import NodeEndpoint
from trilogue.wire.kafka.share.fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
    SharePartitionLeader,
)

log = logging.getLogger(__name__)

RECORD_LIMIT = 1  # acquire mode: a batch may be acquired in part
RECORDS_MAX = 100_000  # of one response
PARTITION_BYTES = 350  # approximate memory of one partition of a request in the queue
PARTITIONS_A_STEP = 50  # that are read in one step


def handle_share_fetch(
    context: RequestContext, request: ShareFetchRequest
) -> ShareFetch | ShareFetchResponse:
    """Apply the acknowledgements of a request and begin to read."""
    group, member_id = request.group_id, request.member_id
    if group and not context.is_allowed(group):
        return ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group or not member_id:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    problem = _find_problem(request)
    if problem is not None:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    sessions = context.gateway.share_sessions
    epoch = request.share_session_epoch
    session = sessions.begin(
        ShareSessionKey(group, member_id), epoch, context.session, context.creator
    )
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    keys = [
        TopicPartitionKey(topic.topic_id, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    if epoch != FINAL_EPOCH and not sessions.add(session, keys):
        return ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            sessions.forget(session, TopicPartitionKey(topic.topic_id, index))
    may_renew = request.is_renew_ack and context.broker.share_groups.may_renew(group)
    results = apply_acknowledgements(context, session.key, request.topics, may_renew=may_renew)
    return ShareFetch(context, request, session, results)


def _find_problem(request: ShareFetchRequest) -> str | None:
    """Return what is contradictory in the request, or None."""
    acknowledges = any(
        each.acknowledgement_batches for topic in request.topics for each in topic.partitions
    )
    if request.share_session_epoch == INITIAL_EPOCH and acknowledges:
        return "the first request of a share session acknowledges records"
    if request.is_renew_ack and (request.max_bytes or request.max_records or request.max_wait_ms):
        return "a request that renews locks fetches no records"
    return None


class ShareFetch(BufferedReply):
    """One ShareFetch, from its request to its response."""

    __slots__ = (
        "_acknowledged",
        "_broker",
        "_context",
        "_deadline_s",
        "_dirty",
        "_is_durable",
        "_moved",
        "_request",
        "_session",
        "_size",
        "_watched",
    )

    def __init__(
        self,
        context: RequestContext,
        request: ShareFetchRequest,
        session: ShareSession,
        acknowledged: dict[TopicPartitionKey, AcknowledgementResult],
    ) -> None:
        super().__init__()
        self._context = context
        self._broker: Broker = context.broker
        self._request = request
        self._session = session
        self._acknowledged = acknowledged
        self._size = 0  # bytes of records
        self._moved = asyncio.Event()
        self._dirty: dict[TopicPartitionKey, None] = {}  # have moved since they were read
        self._watched: dict[TopicPartitionKey, tuple[Partition, SharePartition]] = {}
        gateway = context.gateway
        self.waiting_bytes = PARTITION_BYTES * len(session.partitions)
        wait_ms = min(request.max_wait_ms, gateway.settings.fetch_wait_max_ms)
        self._deadline_s = gateway.loop.time() + wait_ms / 1_000
        self._is_durable: asyncio.Future[BaseException | None] = gateway.loop.create_future()
        if acknowledged:
            gateway.journal.on_commit(self._committed)
        else:
            self._is_durable.set_result(None)
        gateway.spawn(self._run())

    # ---- as a place in the queue

    def hurry(self) -> None:
        """End the wait: the server drains."""
        self._deadline_s = 0.0
        self._moved.set()

    def abandon(self) -> None:
        """End the wait: the connection is gone."""
        self.hurry()

    # ---- from the request to the response

    async def _run(self) -> None:
        connection = self._context.session
        try:
            response = await self._respond()
            if not connection.is_gone:
                version = self._context.version
                frame = response_frames.gather_frame(
                    gatherer(ShareFetchResponse, version),
                    response,
                    self._context.correlation_id,
                    flexible=True,
                )
                connection.fill(self, frame)
        except Exception:
            log.exception("request.failed", extra={"api": "ShareFetch"})
            if not connection.is_gone:
                connection.stream.abort("connection.cut")

    async def _respond(self) -> ShareFetchResponse:
        session, request = self._session, self._request
        found: dict[TopicPartitionKey, SharePartitionData] = {}
        if request.share_session_epoch == FINAL_EPOCH:
            self._context.gateway.share_sessions.close(session)
        elif not request.is_renew_ack:
            found = await self._read_until_enough()
        problem = await self._is_durable
        for key, result in self._acknowledged.items():
            data = found.setdefault(
                key, SharePartitionData(partition_index=key.partition, records=b"")
            )
            code = result.code if problem is None else ErrorCode.KAFKA_STORAGE_ERROR
            data.acknowledge_error_code, data.acknowledge_error_message = code, result.text
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._broker.share_groups.limits(session.key.group).lock_ms,
            responses=_group_by_topic(found),
        )
        response.throttle_time_ms = self._context.count_fetched(self._size)
        if any(data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for data in found.values()):
            response.node_endpoints = self._name_leaders(found)
        return response

    async def _read_until_enough(self) -> dict[TopicPartitionKey, SharePartitionData]:
        """Read until there are records, an error, or no time is left."""
        loop, connection = self._context.gateway.loop, self._context.session
        found: dict[TopicPartitionKey, SharePartitionData] = {}
        keys = self._session.in_turn()
        try:
            while True:
                self._moved.clear()
                is_enough = await self._read_partitions(keys, found)
                left_s = self._deadline_s - loop.time()
                if is_enough or left_s <= 0 or connection.is_gone:
                    return found
                try:
                    async with asyncio.timeout(left_s):
                        await self._moved.wait()
                except TimeoutError:
                    self._deadline_s = 0.0
                keys = list(self._dirty)
                self._dirty.clear()
        finally:
            self._unwatch()

    async def _read_partitions(
        self, keys: list[TopicPartitionKey], found: dict[TopicPartitionKey, SharePartitionData]
    ) -> bool:
        """Read these partitions once, within the limits of the request; whether that is enough."""
        request, group = self._request, self._session.key.group
        is_first = request.share_session_epoch == INITIAL_EPOCH
        reader = ShareReader(
            self._context,
            self._session.key.member_id,
            is_committed=self._broker.share_groups.is_committed_only(group),
            is_strict=request.share_acquire_mode == RECORD_LIMIT,
        )
        gateway = self._context.gateway
        room = min(
            max(request.max_bytes, 0),
            gateway.settings.fetch_bytes_max,
            self._context.fetch_quota_bytes,
            max(PARTITION_BYTES, gateway.cold_reads.memory.free_bytes),
        )
        left = min(request.max_records, RECORDS_MAX)
        is_enough = False
        for number, key in enumerate(keys, 1):
            if number % PARTITIONS_A_STEP == 0:
                await next_step()
            data = SharePartitionData(partition_index=key.partition, records=b"")
            acquired = await self._read_one(reader, key, data, (left, room))
            left -= acquired.count
            room -= acquired.size
            self._size += acquired.size
            has_news = bool(data.error_code or acquired.ranges)
            is_enough = is_enough or has_news
            if has_news or is_first:
                found[key] = data
            if self._context.session.is_gone:
                break
        return is_enough

    async def _read_one(
        self,
        reader: ShareReader,
        key: TopicPartitionKey,
        data: SharePartitionData,
        room: tuple[int, int],
    ) -> AcquiredBatches:
        partition, code = find_partition(self._context, key)
        if partition is None:
            data.error_code = code
            return AcquiredBatches()
        try:
            share = await self._open(partition)
            mark_dirty = partial(self._mark_dirty, key)
            partition.log.watch(self, mark_dirty)
            self._watched[key] = partition, share
            acquired = AcquiredBatches()
            if not share.is_reading and min(room) > 0:
                acquired = await reader.acquire(partition, share, *room)
            share.watch(self, mark_dirty)
        except (*EXPECTED, OSError) as problem:
            data.error_code, data.error_message = to_error_code(problem), str(problem)
            return AcquiredBatches()
        if acquired.ranges:
            self._session.acquired.add(partition.partition_id)
            data.records = acquired.records
            data.acquired_records = [
                AcquiredRecords(first_offset=start, last_offset=end - 1, delivery_count=count)
                for start, end, count in acquired.ranges
            ]
        return acquired

    async def _open(self, partition: Partition) -> SharePartition:
        """Return the share partition; a new one begins where the group's setting says."""
        group, plog = self._session.key.group, partition.log
        shares = self._broker.share_partitions
        share = shares.find_partition(group, partition.partition_id)
        if share is not None:
            return share
        reset = self._broker.share_groups.offset_reset(group)
        mark = plog.high_watermark
        if reset == EARLIEST:
            mark = plog.start_offset
        elif reset != LATEST:
            wanted_ms = self._context.gateway.now_ms() - duration_ms(reset)
            found = await find_timestamp(plog, max(0, wanted_ms), self._context.gateway.in_executor)
            mark = plog.high_watermark if found.offset < 0 else found.offset
        return shares.start(group, partition.partition_id, mark)

    # ---- waiting

    def _mark_dirty(self, key: TopicPartitionKey) -> None:
        self._dirty[key] = None
        self._moved.set()

    def _unwatch(self) -> None:
        for partition, share in self._watched.values():
            partition.log.unwatch(self)
            share.unwatch(self)
        self._watched.clear()

    def _committed(self, problem: BaseException | None) -> None:
        if not self._is_durable.done():
            self._is_durable.set_result(problem)

    # ---- answering

    def _name_leaders(
        self, found: dict[TopicPartitionKey, SharePartitionData]
    ) -> list[NodeEndpoint]:
        """Name the nodes that serve the partitions of others."""
        ownership, addresses = self._broker.cluster.ownership, {}
        for key, data in found.items():
            if data.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            partition = self._broker.cluster.topic_by_id(key.topic_id).partitions[key.partition]
            node_id = ownership.partition_owner(partition.partition_id)
            epoch = ownership.partition_epoch(partition.partition_id)
            data.current_leader = SharePartitionLeader(leader_id=node_id, leader_epoch=epoch)
            addresses[node_id] = self._context.broker_address(node_id)
        return [
            NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port)
            for each in addresses.values()
            if each is not None
        ]


def _group_by_topic(
    found: dict[TopicPartitionKey, SharePartitionData],
) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for key, data in found.items():
        topic = topics.setdefault(key.topic_id, ShareFetchableTopicResponse(topic_id=key.topic_id))
        topic.partitions.append(data)
    return list(topics.values())
