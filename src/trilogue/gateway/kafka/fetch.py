"""Fetch v0-v18: read record batches, waiting for them if need be.

v0-v3 message sets (fetch_old.py) · v4 batches, isolation · v5 log starts · v7 sessions · v9 the
leader epoch a client knows (74, 75) · v10 zstd · v11 racks · v12 flexible, leaders in the answer ·
v13 topics by id (100) · v15-v18 for followers.

A fetch is a place in the order of replies. When it is at the head of the queue it looks: is there
enough (min_bytes), an error, or is its time over? Then it answers; otherwise it waits for the first
of its partitions to move, or for its time. So nothing is read for a peer that is not being
answered, and a wait costs a callback per partition and one timer, no task.

What a look finds is fetch_look.py; entries that have to be read from a file, or converted, are read
in the executor, all of a request at once. A damaged batch is an error of its partition alone.

Fetch sessions (KIP-227) are fetch_sessions.py. In a session the answer names only partitions that
have messages, an error, or another high watermark or log start than the client was told; who got
messages is served last the next time, so that one busy partition does not starve the others.

Racks change nothing: there is one node, and its answer names no better replica (-1). Followers
(replica id >= 0) are refused: there are none.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from trilogue.gateway.kafka import fetch_look, replies
from trilogue.gateway.kafka.fetch_look import Look
from trilogue.gateway.session import TURN_WORK, Place
from trilogue.gateway.stream import Buffer
from trilogue.wire.kafka.compile import gatherer
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from trilogue.gateway.kafka.fetch_look import Outcome
    from trilogue.gateway.kafka.fetch_sessions import Begun
    from trilogue.gateway.kafka.fetch_wanted import Wanted, WantedTopic
    from trilogue.gateway.kafka.shared import Call

log = logging.getLogger(__name__)

FLEXIBLE_SINCE, ENDPOINTS_SINCE = 12, 16
REPLICA_STATE_SINCE = 15
# A poll that wants more than one byte looks again at most this often, however fast bytes come.
LOOK_AGAIN_S = 0.002
ROOM_BYTES_MIN = 64 << 10  # of an answer, however much others have not read yet
PARTITION_BYTES = 250  # about what one partition of a request takes while it waits for its turn


def handle(call: Call, request: FetchRequest) -> Fetch | FetchResponse:
    """Take a place in the queue, or refuse the whole request."""
    replica_id = request.replica_id
    if call.version >= REPLICA_STATE_SINCE:
        replica_id = request.replica_state.replica_id
    if replica_id < 0:
        return Fetch(call, request)
    # Nobody is a follower here, and who says so may be after unsynced data.
    peer = call.session.stream.peer[0]
    log.warning("fetch.forged_replica", extra={"address": peer, "replica": replica_id})
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


class Fetch(Place):
    """One fetch, from its arrival to its answer."""

    __slots__ = (
        "_answer",
        "_begun",
        "_call",
        "_deadline",
        "_future",
        "_looking",
        "_request",
        "_timer",
        "_waking",
    )  # fmt: skip

    def __init__(self, call: Call, request: FetchRequest) -> None:
        super().__init__()
        self.ready = True  # to look, once at the head
        for each in request.topics:
            self.waiting_bytes += PARTITION_BYTES * len(each.partitions)
        self._call = call
        self._request = request
        self._deadline = 0.0
        self._begun: Begun | None = None
        self._looking: tuple[Look, list[Wanted]] | None = None  # at more than fit in a turn
        self._timer: asyncio.TimerHandle | None = None
        self._waking: asyncio.Handle | None = None
        self._future: asyncio.Future[list[Outcome]] | None = None
        self._answer: list[Buffer] | None = None
        wait_ms = min(request.max_wait_ms, call.door.settings.fetch_wait_max_ms)
        if wait_ms > 0:
            self._deadline = call.door.loop.time() + wait_ms / 1000

    # ---- as a place in the queue

    def render(self) -> list[Buffer] | None:
        """Look, and answer if there is enough or no more time; else wait."""
        if self._answer is not None:
            return self._answer
        begun = self._begun or self._begin()
        if begun is None:
            return self._answer
        if begun.session.epoch != begun.epoch:
            return self._encode(self._overtaken())
        return self._try(begun)

    def _try(self, begun: Begun) -> list[Buffer] | None:
        look = self._look(begun)
        if look is None:
            return None
        if not self._enough(look):
            self._wait(look)
            return None
        self._rest()
        if look.cold:
            self._read_cold(look)
            return None
        return self._encode(self._finish(look))

    def hurry(self) -> None:
        """Wait no longer."""
        self._deadline = 0.0
        if self._future is None:
            self.ready = True

    def abandon(self) -> None:
        """Nobody waits for this any more."""
        self._rest()
        self._leave()
        if self._future is not None:
            self._future.cancel()

    def _look(self, begun: Begun) -> Look | None:
        """Look at everything that may have something; None: the rest in another turn."""
        door, session = self._call.door, self._call.session
        session.unsent = door.unsent
        if self._looking is None:
            room = door.settings.unsent_bytes_max - door.unsent.size_bytes
            look = Look(self._call, self._request, max(ROOM_BYTES_MIN, room))
            wanted = begun.session.in_order()
        else:
            look, wanted = self._looking
            look.in_turns = True
        done, share = len(look.found), TURN_WORK - session.spent
        is_all = not done and len(wanted) <= share
        for each in wanted if is_all else wanted[done : done + max(1, share)]:
            look.read(each)
        session.spent += len(look.found) - done
        # To finish what many turns looked at is as long as one of them: it has one of its own.
        if len(look.found) < len(wanted) or done < len(wanted) > TURN_WORK:
            self._looking = look, wanted
            door.call_soon(self._look_on)
            return None
        self._looking = None
        return look

    def _look_on(self) -> None:
        self._call.session.is_ready(self)

    # ---- the session

    def _begin(self) -> Begun | None:
        """Know what is to be read; without a session that it names the answer is an error."""
        call = self._call
        door = call.door
        now_s = door.loop.time() if self._request.session_epoch > 0 else 0.0
        begun = door.fetch_sessions.begin(door, self._request, call.version, now_s)
        if isinstance(begun, ErrorCode):
            self._answer = self._encode(FetchResponse(error_code=begun))
            return None
        self._begun = begun
        session = begun.session
        if begun.is_full:
            call.session.spent += len(session.partitions)  # knowing them takes as long as a look
        other, session.on_move = session.on_move, self._moved
        if other is not None:  # it has been overtaken, and may say so
            other()
        committed = self._request.isolation_level == fetch_look.READ_COMMITTED
        if session.committed != committed:
            session.committed = committed
            if not session.is_new:
                session.awake_all()
        return begun

    def _overtaken(self) -> FetchResponse:
        """Another request of the same session came meanwhile, over another connection."""
        self._rest()
        assert self._begun is not None
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            session_id=self._begun.session.session_id,
        )

    def _leave(self) -> None:
        """Nothing is wanted of the session any more; one that is not kept ends."""
        begun = self._begun
        if begun is None or begun.session.on_move != self._moved:
            return
        begun.session.on_move = None
        if not begun.session.is_kept:
            begun.session.quit()

    def _finish(self, look: Look) -> FetchResponse:
        """Choose what of a look is told, and open the session if one is asked for."""
        begun = self._begun
        assert begun is not None
        session = begun.session
        if session.epoch != begun.epoch:
            return self._overtaken()
        if begun.is_full:
            told = look.found
            opened = begun.may_open and self._call.door.fetch_sessions.open(
                session, self._call.door.loop.time()
            )
        else:
            told = [pair for pair in look.found if _is_news(*pair)]
            opened = session.is_kept
        response = FetchResponse(session_id=session.session_id, responses=_by_topic(told))
        if self._call.metering is not None:
            response.throttle_time_ms = self._call.fetched(fetch_look.records_size(told))
        if self._call.version >= ENDPOINTS_SINCE and look.urgent:
            response.node_endpoints = self._endpoints(look)
        if opened:
            session.is_new = False
            for wanted, data in told:
                _remember(wanted, data)
                if data.records and not begun.is_full:  # as in Kafka, from the second answer on
                    session.to_the_end(wanted)
            session.rest(look.found, committed=look.committed)
        self._leave()
        return response

    # ---- waiting

    def _enough(self, look: Look) -> bool:
        """Whether to answer now.

        Names that are unknown here are told with the rest, as in Kafka: a client that asks for one
        would otherwise ask again and again without a pause.
        """
        assert self._begun is not None
        return (
            look.urgent
            or look.size >= min(self._request.min_bytes, self._request.max_bytes)
            or (look.size > 0 and look.room < self._request.min_bytes)  # never as much at once
            or not self._deadline
            or self._deadline <= self._call.door.loop.time()
            or (not look.readable and len(look.found) == len(self._begun.session.partitions))
        )

    def _wait(self, look: Look) -> None:
        begun = self._begun
        assert begun is not None
        begun.session.rest(look.found, committed=look.committed)
        for wanted, _ in look.found:
            wanted.wait()
        if self._timer is None:
            self._timer = self._call.door.loop.call_at(self._deadline, self._time_over)
        if look.moved or (look.in_turns and look.is_past):
            self._moved()

    def _moved(self) -> None:
        """The end of a partition moved: look once, after all that move together have moved."""
        if self._looking is not None:
            self._looking[0].moved = True
        elif self._waking is None and self._future is None:
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
        if self._looking is None:  # else it goes on by itself, with a share of each turn
            self._call.session.is_ready(self)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None

    # ---- cold reads

    def _read_cold(self, look: Look) -> None:
        door = self._call.door
        spare = max(0, look.room - look.size)
        read = partial(fetch_look.run, look.cold, door.conversions, spare)
        future = door.loop.run_in_executor(door.executor, read)
        self._future = future

        def done(future: asyncio.Future[list[Outcome]]) -> None:
            if future.cancelled():
                return
            self._call.session.guarded(lambda: self._fill(look, future.result()))

        future.add_done_callback(done)

    def _fill(self, look: Look, found: list[Outcome]) -> None:
        self._future = None
        look.fill(found)
        if not look.goes_on:
            self._answer = self._encode(self._finish(look))
        self._call.session.is_ready(self)

    # ---- answering

    def _encode(self, response: FetchResponse) -> list[Buffer]:
        version = self._call.version
        return replies.gathered(
            gatherer(FetchResponse, version),
            response,
            self._call.correlation_id,
            flexible=version >= FLEXIBLE_SINCE,
        )

    def _endpoints(self, look: Look) -> list[NodeEndpoint]:
        """Where the leader is that an error told about."""
        if not any(data.current_leader.leader_id >= 0 for _, data in look.found):
            return []
        host, port = self._call.door.advertised()
        return [NodeEndpoint(node_id=self._call.broker.cluster.node_id, host=host, port=port)]


def _is_news(wanted: Wanted, data: PartitionData) -> bool:
    """Whether an answer of a session names this partition (KIP-227)."""
    return bool(
        data.error_code
        or data.diverging_epoch.epoch >= 0
        or data.high_watermark != wanted.high_watermark
        or data.log_start_offset != wanted.start_offset
        or data.records
    )


def _remember(wanted: Wanted, data: PartitionData) -> None:
    """Know what was told; an error is forgotten, so that its end is told."""
    is_trouble = data.error_code or data.diverging_epoch.epoch >= 0
    wanted.high_watermark = -1 if is_trouble else data.high_watermark
    wanted.start_offset = data.log_start_offset


def _by_topic(told: list[tuple[Wanted, PartitionData]]) -> list[FetchableTopicResponse]:
    """In the order in which they were looked at; neighbours of one topic together."""
    responses: list[FetchableTopicResponse] = []
    last: WantedTopic | None = None
    for wanted, data in told:
        topic = wanted.topic
        if topic is not last:
            last = topic
            responses.append(
                FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=[])
            )
        responses[-1].partitions.append(data)
    return responses
