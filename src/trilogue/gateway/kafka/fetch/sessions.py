"""Fetch sessions (KIP-227): the partitions of a client, kept between its fetches.

    request (id, epoch)    meaning                            response
    0, -1                  sessionless                        everything, id 0
    n, -1                  final: close n                     everything, id 0
    0, 0                   full: open a session               everything, its id (0: no room)
    n, 0                   full: close n, open another        everything, its id
    n, e > 0               incremental: changed and           what is new, id n
                           forgotten partitions
    unknown n              70; the client starts over
    not the next epoch     71; the client starts over
    ids and names mixed    106; the client starts over

The next epoch is one more each time; after 2^31 - 1 comes 1. A session without partitions is
closed. Sessions belong to no connection: a client may continue one on another connection. They are
in memory only: after a restart a client gets 70 and starts over.

A full cache makes room by Kafka's rule: it evicts the least recently used session if that was used
over two minutes ago, else the smallest of those older than two minutes, if the new one has more
partitions. Otherwise no session is opened, which the protocol allows. Beyond Kafka, the memory of
all sessions together is limited.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from trilogue.gateway.kafka.fetch.partitions import FetchContext, TopicLookup
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.wire.kafka.fetch import FetchRequest

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
NO_SESSION: Final = 0
EPOCH_MAX: Final = 2**31 - 1
IDS_SINCE: Final = 13
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
EVICTABLE_AFTER_S: Final = 120.0
PARTITION_BYTES: Final = 800  # memory of one partition of a session; measured, rounded up


def next_epoch(epoch: int) -> int:
    """Return the epoch that follows this one."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class FetchSession(FetchContext):
    """The partitions of one client; with id 0 they live for one fetch only."""

    __slots__ = ("by_id", "committed", "epoch", "opened_s", "session_id", "size_bytes", "used_s")

    def __init__(self, *, by_id: bool) -> None:
        super().__init__()
        self.by_id = by_id
        self.session_id = NO_SESSION
        self.epoch = 1  # expected in the next request
        self.committed = False  # the isolation level of the last fetch
        self.opened_s = self.used_s = 0.0
        self.size_bytes = 0  # as counted by the cache

    @property
    def is_kept(self) -> bool:
        """Whether the client can continue it."""
        return self.session_id != NO_SESSION

    def apply_request(self, topics: TopicLookup, request: FetchRequest) -> None:
        """Apply the added, changed and forgotten partitions of a request."""
        self.add(topics, request.topics, by_id=self.by_id)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.forget((topic.topic_id if self.by_id else topic.topic, index))

    def count_bytes(self) -> int:
        """Return its approximate memory."""
        names = sum(len(topic.name) for topic in self.topics.values())
        return PARTITION_BYTES * len(self.partitions) + 4 * names


class FetchPlan(NamedTuple):
    """The session of a request, and what the request may do with it."""

    session: FetchSession
    is_full: bool
    may_open: bool = False
    epoch: int = 0  # of the session after this request


class FetchSessionCache:
    """All sessions of the gateway, by id."""

    def __init__(
        self,
        *,
        sessions_max: int,
        bytes_max: int,
        new_id: Callable[[], int] = lambda: 1 + secrets.randbelow(EPOCH_MAX),
    ) -> None:
        self.sessions_max = sessions_max
        self.bytes_max = bytes_max
        self.size_bytes = 0
        # of requests by kind, and of sessions opened, closed and evicted
        self.counts: Counter[str] = Counter()
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions of all sessions together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def plan_fetch(
        self, topics: TopicLookup, request: FetchRequest, version: int, now_s: float
    ) -> FetchPlan | ErrorCode:
        """Return the plan of a request, or the error of the whole request."""
        if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            return self._plan_full(topics, request, version)
        session = self._sessions.get(request.session_id)
        code = _check_request(session, request, version)
        if session is None or code:
            self.counts[code.name] += 1
            return code
        self._touch(session, now_s)
        if request.topics or request.forgotten_topics_data:
            session.apply_request(topics, request)
            if not session.partitions:
                self.close(session)
                return self._plan_full(topics, request, version)
            if not self._update_size(session, now_s):
                self.close(session)
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = next_epoch(session.epoch)
        self.counts["incremental"] += 1
        return FetchPlan(session, is_full=False, epoch=session.epoch)

    def _plan_full(self, topics: TopicLookup, request: FetchRequest, version: int) -> FetchPlan:
        old = self._sessions.get(request.session_id)
        if old is not None:
            self.close(old)
        session = FetchSession(by_id=version >= IDS_SINCE)
        session.add(topics, request.topics, by_id=session.by_id)
        may_open = request.session_epoch == INITIAL_EPOCH
        self.counts["full" if may_open else "sessionless"] += 1
        return FetchPlan(session, is_full=True, may_open=may_open, epoch=session.epoch)

    def open(self, session: FetchSession, now_s: float) -> bool:
        """Keep the partitions of a full fetch; returns False if there is no room."""
        if not self._make_room(len(session.partitions), now_s):
            return False
        if not self._update_size(session, now_s):
            return False
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session.session_id = session_id
        session.opened_s = session.used_s = now_s
        self._sessions[session_id] = session
        self.counts["opened"] += 1
        return True

    def close(self, session: FetchSession) -> None:
        """Remove a session; a fetch that is reading it still gets its response."""
        del self._sessions[session.session_id]
        self.size_bytes -= session.size_bytes
        session.session_id = NO_SESSION
        self.counts["closed"] += 1
        if session.on_move is None:
            session.release()

    def _touch(self, session: FetchSession, now_s: float) -> None:
        session.used_s = now_s
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def _update_size(self, session: FetchSession, now_s: float) -> bool:
        """Update its memory; returns False above the limit."""
        size = session.count_bytes()
        more = size - session.size_bytes
        while more > 0 and self.size_bytes + more > self.bytes_max:
            stalest = next(iter(self._sessions.values()), None)
            if stalest is None or stalest is session or not _is_stale(stalest, now_s):
                return False
            self._evict(stalest)
        self.size_bytes += more
        session.size_bytes = size
        return True

    def _make_room(self, size: int, now_s: float) -> bool:
        """Evict by Kafka's rule for one more session; returns False if none may go."""
        if len(self._sessions) < self.sessions_max:
            return True
        stalest = next(iter(self._sessions.values()), None)
        if stalest is None:
            return False
        if not _is_stale(stalest, now_s):
            old = [
                each
                for each in self._sessions.values()
                if now_s - each.opened_s > EVICTABLE_AFTER_S
            ]
            stalest = min(old, key=lambda each: len(each.partitions), default=None)
            if stalest is None or size <= len(stalest.partitions):
                return False
        self._evict(stalest)
        return True

    def _evict(self, session: FetchSession) -> None:
        self.close(session)
        self.counts["evicted"] += 1


def _check_request(session: FetchSession | None, request: FetchRequest, version: int) -> ErrorCode:
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != request.session_epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.by_id != (version >= IDS_SINCE):
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    return ErrorCode.NONE


def _is_stale(session: FetchSession, now_s: float) -> bool:
    return now_s - session.used_s > EVICTABLE_AFTER_S
