"""Fetch v0-v18: read record batches, with long polling.

v0-v3 message sets (down_convert.py) · v4 record batches, isolation level · v5 log start offset · v7
fetch sessions · v9 current leader epoch (74, 75) · v10 zstd · v11 rack id · v12 flexible, leader in
the response · v13 topic ids (100) · v15-v18 for followers.

A fetch has a place in the queue of replies. At the head of the queue it scans its partitions: with
enough bytes (min_bytes), an error, or after its wait time it responds; otherwise it waits for the
first of its partitions to move, or for its wait time. So nothing is read for a client that does not
read its responses, and a waiting fetch costs one callback per partition and one timer, no task.

The scan is in scan.py. Entries that have to be read from a file, or converted, are read in the
executor, all of a request at once. A damaged batch is an error of its partition alone.

Fetch sessions (KIP-227) are in sessions.py. In a session the response has only partitions with
records, an error, or a new high watermark or log start offset. A partition that returned records
moves to the end of the session's order, so that a busy partition does not starve the others.

Racks have no effect: there is one node, and no preferred read replica (-1). Requests of followers
(replica id >= 0) are served at the internal listener only, and refused at the others.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from trilogue.broker.quotas.topic_rates import RATE_CHECK_S
from trilogue.gateway.kafka import response_frames
from trilogue.gateway.kafka.fetch import scan as fetch_scan
from trilogue.gateway.kafka.fetch.dispatch_rates import limit_records
from trilogue.gateway.kafka.fetch.scan import FetchScan
from trilogue.gateway.reply_queue import ITERATION_WORK
from trilogue.gateway.reply_slots import ReplySlot
from trilogue.gateway.steps import next_step
from trilogue.gateway.stream import Buffer
from trilogue.gateway.telemetry.connection_log import log_once
from trilogue.wire.kafka.codec.compile import gatherer
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from trilogue.wire.kafka.leader import NodeEndpoint

if TYPE_CHECKING:
    from trilogue.gateway.kafka.context import RequestContext
    from trilogue.gateway.kafka.fetch.partitions import FetchPartition, FetchTopic
    from trilogue.gateway.kafka.fetch.scan import ReadOutcome
    from trilogue.gateway.kafka.fetch.sessions import FetchPlan

log = logging.getLogger(__name__)

FLEXIBLE_SINCE, ENDPOINTS_SINCE = 12, 16
REPLICA_STATE_SINCE = 15
# A fetch with min_bytes above 1 scans again at most this often, however fast records arrive.
SCAN_AGAIN_S = 0.002
ROOM_BYTES_MIN = 64 << 10  # per response, however much memory other connections hold
PARTITION_BYTES = 250  # approximate memory of one partition of a request in the queue


def handle_fetch(context: RequestContext, request: FetchRequest) -> Fetch | FetchResponse:
    """Queue a fetch, or refuse the whole request."""
    replica_id = request.replica_id
    if context.version >= REPLICA_STATE_SINCE:
        replica_id = request.replica_state.replica_id
    if replica_id < 0 or context.is_from_broker:
        return Fetch(context, request, is_replica=replica_id >= 0)
    # A forged follower could read records that are not synced yet.
    log_once(context.session, log, "fetch.forged_replica", replica=replica_id)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=each.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        high_watermark=-1,
                        aborted_transactions=None,
                        records=b"",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Fetch(ReplySlot):
    """One fetch, from its request to its response."""

    __slots__ = (
        "_answer",
        "_context",
        "_deadline",
        "_future",
        "_is_replica",
        "_plan",
        "_rate_timer",
        "_request",
        "_scanning",
        "_timer",
        "_waking",
    )  # fmt: skip

    def __init__(
        self, context: RequestContext, request: FetchRequest, *, is_replica: bool = False
    ) -> None:
        super().__init__()
        self.ready = True  # to scan, once at the head
        for each in request.topics:
            self.waiting_bytes += PARTITION_BYTES * len(each.partitions)
        self._context = context
        self._request = request
        self._is_replica = is_replica
        self._deadline = 0.0
        self._plan: FetchPlan | None = None
        self._scanning: tuple[FetchScan, list[FetchPartition]] | None = (
            None  # a scan that takes several loop iterations
        )
        self._timer: asyncio.TimerHandle | None = None
        self._rate_timer: asyncio.TimerHandle | None = None  # a partition is over its rate
        self._waking: asyncio.Handle | None = None
        self._future: asyncio.Future[list[ReadOutcome]] | None = None
        self._answer: list[Buffer] | None = None
        wait_ms = min(request.max_wait_ms, context.gateway.settings.fetch_wait_max_ms)
        if wait_ms > 0:
            self._deadline = context.gateway.loop.time() + wait_ms / 1000

    # ---- as a place in the queue

    def render(self) -> list[Buffer] | None:
        """Scan, and respond if there is enough or the wait time is over; else wait."""
        if self._answer is not None:
            return self._answer
        plan = self._plan or self._resolve_plan()
        if plan is None:
            return self._answer
        if plan.session.epoch != plan.epoch:
            return self._encode(self._superseded_response())
        return self._try(plan)

    def _try(self, plan: FetchPlan) -> list[Buffer] | None:
        scan = self._scan(plan)
        if scan is None:
            return None
        if not self._is_enough(scan):
            self._wait(scan)
            return None
        self._cancel_timers()
        if scan.cold:
            self._read_cold(scan)
            return None
        if scan.has_prefetched:
            self._context.session.count_reply(fetch_scan.records_size(scan.found))
            self._context.gateway.loop.call_soon(self._read_ahead, scan)
        return self._encode(self._finish(scan))

    def hurry(self) -> None:
        """Respond as soon as possible: end the wait."""
        self._deadline = 0.0
        if self._future is None:
            self.ready = True

    def abandon(self) -> None:
        """Withdraw everything: the connection is gone."""
        self._cancel_timers()
        self._detach()
        self._context.gateway.cold_reads.forget(self)
        if self._future is not None:
            self._future.cancel()

    def _scan(self, plan: FetchPlan) -> FetchScan | None:
        """Scan the dirty partitions; returns None if the rest is left to a later loop iteration."""
        gateway, session = self._context.gateway, self._context.session
        if self._scanning is None:
            room = gateway.cold_reads.memory.free_bytes
            scan = FetchScan(
                self._context,
                self._request,
                max(ROOM_BYTES_MIN, room),
                is_replica=self._is_replica,
            )
            target = plan.session.list_to_scan()
        else:
            scan, target = self._scanning
            scan.is_stepped = True
        done, share = len(scan.found), ITERATION_WORK - session.spent
        is_all = not done and len(target) <= share
        for each in target if is_all else target[done : done + max(1, share)]:
            scan.read(each)
        session.spent += len(scan.found) - done
        # Finishing a scan of several iterations takes as long as one of them, so it has its own.
        if len(scan.found) < len(target) or done < len(target) > ITERATION_WORK:
            self._scanning = scan, target
            gateway.spawn(self._continue_scan())
            return None
        self._scanning = None
        return scan

    async def _continue_scan(self) -> None:
        await next_step()  # of all large scans one goes on in a loop iteration, or ends
        self._context.session.is_ready(self)

    # ---- the session

    def _resolve_plan(self) -> FetchPlan | None:
        """Resolve the session and its partitions; None after an error, which is the response."""
        context = self._context
        gateway = context.gateway
        now_s = gateway.loop.time() if self._request.session_epoch > 0 else 0.0
        plan = gateway.fetch_sessions.plan_fetch(gateway, self._request, context.version, now_s)
        if isinstance(plan, ErrorCode):
            self._answer = self._encode(FetchResponse(error_code=plan))
            return None
        self._plan = plan
        session = plan.session
        if plan.is_full:
            # resolving them takes as long as a scan
            context.session.spent += len(session.partitions)
        other, session.on_move = session.on_move, self._schedule_scan
        if other is not None:  # an older request of the session: wake it, to respond with an error
            other()
        committed = self._request.isolation_level == fetch_scan.READ_COMMITTED
        if session.committed != committed:
            session.committed = committed
            if not session.is_new:
                session.mark_all_dirty()
        return plan

    def _superseded_response(self) -> FetchResponse:
        """Respond that a newer request of the same session arrived on another connection."""
        self._cancel_timers()
        assert self._plan is not None
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            session_id=self._plan.session.session_id,
        )

    def _detach(self) -> None:
        """Detach from the session; release one that is not kept."""
        plan = self._plan
        if plan is None or plan.session.on_move != self._schedule_scan:
            return
        plan.session.on_move = None
        if not plan.session.is_kept:
            plan.session.release()

    def _finish(self, scan: FetchScan) -> FetchResponse:
        """Select the partitions of the response, and open a session if the request wants one."""
        plan = self._plan
        assert plan is not None
        session = plan.session
        if session.epoch != plan.epoch:
            return self._superseded_response()
        if plan.is_full:
            sent = scan.found
            opened = plan.may_open and self._context.gateway.fetch_sessions.open(
                session, self._context.gateway.loop.time()
            )
        else:
            sent = [pair for pair in scan.found if _is_news(*pair)]
            opened = session.is_kept
        if scan.has_rates:
            limit_records(self._context, sent)
        response = FetchResponse(session_id=session.session_id, responses=_group_by_topic(sent))
        if self._context.metering is not None:
            response.throttle_time_ms = self._context.count_fetched(fetch_scan.records_size(sent))
        if self._context.version >= ENDPOINTS_SINCE and scan.has_error:
            response.node_endpoints = self._endpoints(scan)
        if self._context.gateway.tracer is not None:
            from trilogue.gateway.kafka.tracing import trace_fetched

            trace_fetched(self._context.gateway.tracer, self._context, sent)
        if opened:
            session.is_new = False
            for target, data in sent:
                _remember_sent(target, data)
                if data.records and not plan.is_full:  # as in Kafka, from the second response on
                    session.move_to_end(target)
            session.park(scan.found, committed=scan.committed)
        self._detach()
        return response

    # ---- waiting

    def _is_enough(self, scan: FetchScan) -> bool:
        """Whether to respond now.

        Unknown topics alone end the wait, as in Kafka: a client with only such topics would
        otherwise poll again and again without a pause.
        """
        assert self._plan is not None
        return (
            scan.has_error
            or scan.size >= min(self._request.min_bytes, self._request.max_bytes)
            or (scan.size > 0 and scan.room < self._request.min_bytes)  # never as much at once
            or not self._deadline
            or self._deadline <= self._context.gateway.loop.time()
            or (not scan.readable and len(scan.found) == len(self._plan.session.partitions))
        )

    def _wait(self, scan: FetchScan) -> None:
        plan = self._plan
        assert plan is not None
        plan.session.park(scan.found, committed=scan.committed)
        for target, _ in scan.found:
            target.watch_log()
        if self._timer is None:
            self._timer = self._context.gateway.loop.call_at(self._deadline, self._time_over)
        if scan.wait_s and self._rate_timer is None:
            self._rate_timer = self._context.gateway.loop.call_later(
                min(scan.wait_s, RATE_CHECK_S), self._rate_over
            )
        if scan.moved or (scan.is_stepped and scan.is_outdated):
            self._schedule_scan()

    def _rate_over(self) -> None:
        """A partition may be within its dispatch rate again."""
        self._rate_timer = None
        self._schedule_scan()

    def _schedule_scan(self) -> None:
        """A partition's log moved: scan once, after all logs that move together have moved."""
        if self._scanning is not None:
            self._scanning[0].moved = True
        elif self._waking is None and self._future is None:
            loop = self._context.gateway.loop
            if self._request.min_bytes > 1:
                self._waking = loop.call_later(SCAN_AGAIN_S, self._scan_again)
            else:
                self._waking = loop.call_soon(self._scan_again)

    def _time_over(self) -> None:
        """The final scan. The timer decides, since the clock may still be a tick short."""
        self._deadline = 0.0
        self._scan_again()

    def _scan_again(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        # else the scan continues by itself, a part in each loop iteration
        if self._scanning is None:
            self._context.session.is_ready(self)

    def _cancel_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._rate_timer is not None:
            self._rate_timer.cancel()
            self._rate_timer = None
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None

    # ---- cold reads

    def _read_cold(self, scan: FetchScan) -> None:
        """Read in the executor; while there is no memory for it, wait and scan again."""
        gateway, stream = self._context.gateway, self._context.session.stream
        cold_reads, conversions = gateway.cold_reads, gateway.conversions
        spare = max(0, scan.room - scan.size)

        def read() -> list[ReadOutcome]:
            room = min(spare, cold_reads.free_bytes_each)
            return fetch_scan.run_deferred_reads(scan.cold, conversions, room)

        address = stream.peer[0]
        future = cold_reads.start(self, scan.size, read, address)
        if future is None:
            cold_reads.wait(self, scan.size, self._retry_read, connection=stream, address=address)
            return
        self._future = future

        def done(future: asyncio.Future[list[ReadOutcome]]) -> None:
            if future.cancelled():
                return
            self._context.session.guarded(lambda: self._fill(scan, future.result()))

        future.add_done_callback(done)

    def _retry_read(self) -> None:
        if self._future is None:
            self._context.session.is_ready(self)

    def _fill(self, scan: FetchScan, found: list[ReadOutcome]) -> None:
        self._future = None
        scan.fill(found)
        if not scan.continues:
            self._context.session.count_reply(fetch_scan.records_size(scan.found))
            self._answer = self._encode(self._finish(scan))
        self._context.session.is_ready(self)
        self._read_ahead(scan)

    def _read_ahead(self, scan: FetchScan) -> None:
        """Read on for a quick client, or for one whose first response this is."""
        session, plan = self._context.session, self._plan
        if session.is_gone or plan is None or not (scan.next_reads or scan.left_out):
            return
        ahead = scan.is_sequential or not session.has_read_segments
        session.has_read_segments = True
        scan.read_ahead(ahead=ahead, left_out_first=plan.session.is_kept)

    # ---- answering

    def _encode(self, response: FetchResponse) -> list[Buffer]:
        version = self._context.version
        return response_frames.gather_frame(
            gatherer(FetchResponse, version),
            response,
            self._context.correlation_id,
            flexible=version >= FLEXIBLE_SINCE,
        )

    def _endpoints(self, scan: FetchScan) -> list[NodeEndpoint]:
        """Return the address of the leader that an error names."""
        if not any(data.current_leader.leader_id >= 0 for _, data in scan.found):
            return []
        host, port = self._context.advertised()
        return [NodeEndpoint(node_id=self._context.broker.cluster.node_id, host=host, port=port)]


def _is_news(target: FetchPartition, data: PartitionData) -> bool:
    """Whether a response in a session includes this partition (KIP-227)."""
    return bool(
        data.error_code
        or data.diverging_epoch.epoch >= 0
        or data.high_watermark != target.high_watermark
        or data.log_start_offset != target.start_offset
        or data.records
    )


def _remember_sent(target: FetchPartition, data: PartitionData) -> None:
    """Remember what the response carries; after an error the partition counts as never sent."""
    is_trouble = data.error_code or data.diverging_epoch.epoch >= 0
    target.high_watermark = -1 if is_trouble else data.high_watermark
    target.start_offset = data.log_start_offset


def _group_by_topic(
    sent: list[tuple[FetchPartition, PartitionData]],
) -> list[FetchableTopicResponse]:
    """Group partitions by topic, in scan order; only neighbours of one topic are joined.

    Counts what is sent of each partition, too.
    """
    responses: list[FetchableTopicResponse] = []
    last: FetchTopic | None = None
    for target, data in sent:
        topic, records = target.topic, data.records
        if records and target.partition is not None:
            size = sum(map(len, records)) if isinstance(records, list) else len(records)
            target.partition.bytes_out += size
        if topic is not last:
            last = topic
            responses.append(
                FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=[])
            )
        responses[-1].partitions.append(data)
    return responses
