"""Fetch sessions (KIP-227): what clients read, remembered, so that they need not say it each time.

    request (id, epoch)    what it is                         what is answered
    0, -1                  sessionless                        everything, id 0
    n, -1                  the last one: n is closed          everything, id 0
    0, 0                   full: open a session               everything, its id (0: no room)
    n, 0                   full: close n, open another        everything, its id
    n, e > 0               incremental: what changed in what  what has something new, id n
                           is wanted, and what is forgotten
    unknown n              70; the client starts over
    not the epoch awaited  71; the client starts over
    ids and names mixed    106; the client starts over

The epoch that is awaited next is one more each time; after 2^31 - 1 comes 1. A session that wants
nothing any more is closed. Sessions belong to no connection: a client may come back through another
one. They are in memory only; whoever comes after a restart is told 70 and starts over.

When there are as many as there may be, room is made by Kafka's rule: the session that was used
least recently goes if that was over two minutes ago; else the smallest of those older than that, if
the new one has more partitions. Otherwise no session is opened, which is legal. Beyond Kafka, all
sessions together are bounded in bytes, whatever they are filled with.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from trilogue.gateway.kafka.fetch_wanted import Wants
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.gateway.kafka.shared import Shared
    from trilogue.wire.kafka.fetch import FetchRequest

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
NO_SESSION: Final = 0
EPOCH_MAX: Final = 2**31 - 1
IDS_SINCE: Final = 13
REFUSALS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
EVICTABLE_AFTER_S: Final = 120.0
PARTITION_BYTES: Final = 800  # what one partition of a session takes; measured, rounded up


def next_epoch(epoch: int) -> int:
    """The epoch of the request after this one."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class FetchSession(Wants):
    """What one client reads; with id 0 for the length of one fetch only."""

    __slots__ = ("by_id", "committed", "epoch", "opened_s", "session_id", "size_bytes", "used_s")

    def __init__(self, *, by_id: bool) -> None:
        super().__init__()
        self.by_id = by_id
        self.session_id = NO_SESSION
        self.epoch = 1  # the one awaited next
        self.committed = False  # how it was read last
        self.opened_s = self.used_s = 0.0
        self.size_bytes = 0  # as the cache counts it

    @property
    def is_kept(self) -> bool:
        """Whether its client may come back to it."""
        return self.session_id != NO_SESSION

    def change(self, door: Shared, request: FetchRequest) -> None:
        """Want more, want it otherwise, or want less."""
        self.add(door, request.topics, by_id=self.by_id)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.forget((topic.topic_id if self.by_id else topic.topic, index))

    def count_bytes(self) -> int:
        """About what it takes."""
        names = sum(len(topic.name) for topic in self.topics.values())
        return PARTITION_BYTES * len(self.partitions) + 4 * names


class Begun(NamedTuple):
    """What a request turned out to be."""

    session: FetchSession
    is_full: bool
    may_open: bool = False
    epoch: int = 0  # that the session awaits after this request


class FetchSessions:
    """All sessions of a door, by id."""

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
        self.counts: Counter[str] = Counter()  # what became of requests and of sessions
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}  # the least recently used one first

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """How many partitions all sessions remember."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(
        self, door: Shared, request: FetchRequest, version: int, now_s: float
    ) -> Begun | ErrorCode:
        """Say what is to be read for a request, or why it is refused as a whole."""
        if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            return self._full(door, request, version)
        session = self._sessions.get(request.session_id)
        code = _mismatch(session, request, version)
        if session is None or code:
            self.counts[code.name] += 1
            return code
        self._touch(session, now_s)
        if request.topics or request.forgotten_topics_data:
            session.change(door, request)
            if not session.partitions:
                self.close(session)
                return self._full(door, request, version)
            if not self._counted(session, now_s):
                self.close(session)
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = next_epoch(session.epoch)
        self.counts["incremental"] += 1
        return Begun(session, is_full=False, epoch=session.epoch)

    def _full(self, door: Shared, request: FetchRequest, version: int) -> Begun:
        old = self._sessions.get(request.session_id)
        if old is not None:
            self.close(old)
        session = FetchSession(by_id=version >= IDS_SINCE)
        session.add(door, request.topics, by_id=session.by_id)
        may_open = request.session_epoch == INITIAL_EPOCH
        self.counts["full" if may_open else "sessionless"] += 1
        return Begun(session, is_full=True, may_open=may_open, epoch=session.epoch)

    def open(self, session: FetchSession, now_s: float) -> bool:
        """Keep what a full fetch asked for, if there is room."""
        if not self._make_room(len(session.partitions), now_s):
            return False
        if not self._counted(session, now_s):
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
        """Know it no longer; a fetch that it is read by now still gets its answer."""
        del self._sessions[session.session_id]
        self.size_bytes -= session.size_bytes
        session.session_id = NO_SESSION
        self.counts["closed"] += 1
        if session.on_move is None:
            session.quit()

    def _touch(self, session: FetchSession, now_s: float) -> None:
        session.used_s = now_s
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def _counted(self, session: FetchSession, now_s: float) -> bool:
        """Count its bytes anew; False when that is more than there may be."""
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
        """Kafka's rule for who goes when one more comes."""
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


def _mismatch(session: FetchSession | None, request: FetchRequest, version: int) -> ErrorCode:
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != request.session_epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.by_id != (version >= IDS_SINCE):
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    return ErrorCode.NONE


def _is_stale(session: FetchSession, now_s: float) -> bool:
    return now_s - session.used_s > EVICTABLE_AFTER_S
