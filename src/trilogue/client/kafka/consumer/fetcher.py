"""Fetches records ahead of a consumer's polls: one task, one session and one request per node.

A request names the partitions that the node leads, unless their position is unknown, they are
paused, or enough of them is buffered. The response for a partition is dropped where its position
has changed since the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trilogue.client.connection import FRAME_LIMIT
from trilogue.client.deadline_timer import DeadlineTimer
from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.consumer.fetch_session import (
    FINAL,
    FULL,
    NO_SESSION,
    FetchPosition,
    FetchSession,
    Name,
)
from trilogue.client.kafka.consumer.large_responses import LargeResponses
from trilogue.client.kafka.consumer.message import FetchedBatches
from trilogue.client.kafka.consumer.partition_state import NO_OFFSET, PartitionState
from trilogue.client.kafka.errors import KafkaError, OffsetOutOfRange, ResponseTooLarge
from trilogue.client.kafka.leader_cache import LeaderCache
from trilogue.client.kafka.model import Partition
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.client.tasks import BackgroundTasks
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import FetchRequest, FetchResponse, PartitionData

FETCH: Final = 1
BATCHES_SINCE, BY_ID_SINCE = 4, 13
NEWEST: Final = 17
NO_ID: Final = bytes(16)
MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
FetchTargets = dict[tuple[Name, int], PartitionState]


class Fetcher:
    """The fetches of one consumer."""

    def __init__(
        self,
        cluster: KafkaCluster,
        options: ConsumerOptions,
        lane: str,
        tasks: BackgroundTasks,
        *,
        on_fetched: Callable[[], None],
        on_position_lost: Callable[[], None],
        failed: Callable[[Exception], None],
        large_responses: LargeResponses | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._lane = lane
        self._tasks = tasks
        self._on_fetched = on_fetched
        self._on_position_lost = on_position_lost
        self._failed = failed
        self._large_responses = large_responses
        self._has_large = False
        """Whether the last response was too large to be received out of turn."""
        self._loop = asyncio.get_running_loop()
        self.held: dict[Partition, PartitionState] = {}
        """What is read now, in the order of serving."""
        self.idle = 0
        """How many nodes have nothing to be requested for now."""
        self._changed: dict[int, asyncio.Event] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._leaders = LeaderCache(
            cluster, tasks, create=options.create_topics, pause_s=options.retry_pause_s,
            needed=self._needed, on_learned=self.changed, on_error=self._on_metadata_error,
        )  # fmt: skip
        self._timer = DeadlineTimer(self.changed)

    def changed(self) -> None:
        """There is something else to fetch, or room for more."""
        for held in self.held.values():
            leader = self._leaders.find_leader(*held.partition)
            if leader is not None and leader not in self._changed:
                self._changed[leader] = asyncio.Event()
                self._sessions[leader] = FetchSession()
                self._tasks.spawn(self._run(leader))
        for event in self._changed.values():
            event.set()

    def _needed(self, topic: str) -> list[int]:
        return [one.number for one in self.held if one.topic == topic]

    def _on_metadata_error(self, _topic: str, problem: KafkaError) -> None:
        if problem.error not in MOVED:
            self._failed(problem)

    async def _run(self, node: int) -> None:
        """Fetch from a node, one request after the other."""
        event, session = self._changed[node], self._sessions[node]
        while True:
            event.clear()
            wanted, by_id = self._wanted(node)
            if not wanted:
                self.idle += 1
                try:
                    await event.wait()
                finally:
                    self.idle -= 1
                continue
            try:
                await self._wait_for_turn()
                connection = await self._cluster.node(node, self._lane)
                self._limit_response(connection)
                throttled_s = await self._fetch(connection, session, wanted, by_id=by_id)
                self._has_large = False
            except ResponseTooLarge:
                session.reset()
                self._has_large = True
            except ConnectionLost:
                session.reset()
                for held in wanted.values():
                    self._cluster.invalidate_leader(*held.partition)
                await asyncio.sleep(self._options.retry_pause_s)
                self.changed()
            except ClientError as problem:
                if not isinstance(problem, KafkaError) or not problem.retriable:
                    self._failed(problem)
                await asyncio.sleep(self._options.retry_pause_s)
            else:
                if throttled_s:
                    await asyncio.sleep(throttled_s)

    async def _wait_for_turn(self) -> None:
        if self._has_large and self._large_responses is not None:
            await self._large_responses.wait_for_turn()

    def _limit_response(self, connection: KafkaConnection) -> None:
        large = self._large_responses
        if large is not None:
            limit = FRAME_LIMIT if self._has_large and large.has_turn else large.limit_bytes
            connection.limit_frames(limit)

    def release_large(self) -> None:
        """Forget what is more than may be kept out of turn; it will be fetched again."""
        large = self._large_responses
        if large is None:
            return
        for node in self._sessions:
            connection = self._cluster.peek(node, self._lane)
            if connection is not None:
                connection.limit_frames(large.limit_bytes)
        if self._buffered() > large.limit_bytes:
            for held in self.held.values():
                held.drop_fetched()
            self.changed()

    def _wanted(self, node: int) -> tuple[FetchTargets, bool]:
        """The partitions of the next fetch from a node, and whether topics are named by id."""
        options, now = self._options, self._loop.time()
        if self._buffered() >= options.max_buffered_bytes:
            for held in self.held.values():  # paused ones must not keep the others waiting
                if held.is_paused:
                    held.drop_fetched()
            if self._buffered() >= options.max_buffered_bytes:
                return {}, False
        found: list[tuple[bytes, PartitionState]] = []
        for held in self.held.values():
            if (
                held.fetch_at == NO_OFFSET
                or held.is_paused
                or held.buffered_bytes >= options.max_partition_bytes
                or self._leaders.find_leader(*held.partition) != node
            ):
                continue
            if held.not_before > now:
                self._timer.schedule(held.not_before)
                continue
            found.append((self._cluster.topics[held.partition.topic].topic_id, held))
        by_id = all(topic_id != NO_ID for topic_id, _ in found)
        wanted: FetchTargets = {}
        for topic_id, held in found:
            wanted[topic_id if by_id else held.partition.topic, held.partition.number] = held
        return wanted, by_id

    def _buffered(self) -> int:
        return sum(held.buffered_bytes for held in self.held.values())

    async def _fetch(
        self,
        connection: KafkaConnection,
        session: FetchSession,
        wanted: FetchTargets,
        *,
        by_id: bool,
    ) -> float:
        """Send one fetch and take in the response; returns the throttle time in seconds."""
        version = connection.version(FETCH, NEWEST if by_id else BY_ID_SINCE - 1)
        if version < BATCHES_SINCE:
            raise ClientError("the server is older than 0.11: it gives no record batches")
        by_id = version >= BY_ID_SINCE
        requested = {
            (name if by_id else held.partition.topic, number): (held, self._fetch_position(held))
            for (name, number), held in wanted.items()
            if held.fetch_at != NO_OFFSET  # it may have gone while the connection was made
        }
        if not requested:
            return 0.0
        topics, forgotten = session.build_next(
            {key: one for key, (_, one) in requested.items()}, by_id=by_id
        )
        options = self._options
        request = FetchRequest(
            max_wait_ms=int(options.max_wait_s * 1000),
            min_bytes=options.min_bytes,
            max_bytes=options.max_bytes,
            isolation_level=options.isolation,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        answer: FetchResponse = await connection.start(
            FETCH, version, request, self._cluster.timeout_s + options.max_wait_s
        )
        was_whole = session.epoch == FULL
        if not session.on_response(answer.error_code, answer.session_id):
            if was_whole:  # there was no session that could be out of step
                raise KafkaError(answer.error_code, "fetch")
            return answer.throttle_time_ms / 1000
        for topic in answer.responses:
            name: Name = bytes(topic.topic_id) if by_id else topic.topic
            for row in topic.partitions:
                found = requested.get((name, row.partition_index))
                if found is not None:
                    self._take(*found, row)
        return answer.throttle_time_ms / 1000

    def _fetch_position(self, held: PartitionState) -> FetchPosition:
        view = self._cluster.topics.get(held.partition.topic)
        epoch = -1 if view is None else view.epochs.get(held.partition.number, -1)
        return FetchPosition(held.fetch_at, self._options.max_partition_bytes, epoch)

    def _take(self, held: PartitionState, requested: FetchPosition, row: PartitionData) -> None:
        """What came of one partition."""
        if self.held.get(held.partition) is not held or held.fetch_at != requested.offset:
            return  # given up, or moved, meanwhile
        if row.error_code:
            self._refused(held, requested, row.error_code)
            return
        held.high_watermark = row.high_watermark
        held.stable_end = row.last_stable_offset
        held.log_start = row.log_start_offset
        records = row.records
        if not isinstance(records, memoryview) or not records:
            return
        aborted = [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]
        options = self._options
        try:
            fetched = FetchedBatches(
                held.partition, records, aborted, options.isolation, check=options.check_crcs
            )
        except ClientError as problem:
            self._failed(problem)
            held.not_before = self._loop.time() + options.retry_pause_s
            return
        if fetched.end < 0:
            return
        held.add_fetched(fetched)
        del self.held[held.partition]
        self.held[held.partition] = held  # who was served goes to the end of the line
        self._on_fetched()

    def _refused(self, held: PartitionState, requested: FetchPosition, code: int) -> None:
        topic, number = held.partition
        problem = KafkaError(code, f"fetch of {topic}-{number} at {requested.offset}")
        held.not_before = self._loop.time() + self._options.retry_pause_s
        if problem.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if held.buffer:
                return  # first what is here; then it is requested for again
            if self._options.reset_to is None:
                self._failed(OffsetOutOfRange(str(problem)))
            else:
                held.reset_position(self._options.reset_to)
                self._on_position_lost()
        elif problem.error in MOVED:
            self._cluster.invalidate_leader(topic, number)
        else:
            self._failed(problem)

    def end(self) -> None:
        """Close the fetch sessions at the servers; the owner ends the tasks."""
        self._timer.cancel()
        for node, session in self._sessions.items():
            connection = self._cluster.peek(node, self._lane)
            if connection is None:
                continue
            if session.id != NO_SESSION:
                request = FetchRequest(
                    max_wait_ms=0, min_bytes=0, session_id=session.id, session_epoch=FINAL,
                    topics=[], forgotten_topics_data=[],
                )  # fmt: skip
                connection.write(FETCH, connection.version(FETCH, NEWEST), request)
            connection.close()
