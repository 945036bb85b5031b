"""Share sessions (KIP-932): the partitions that a member of a share group fetches from this node.

    epoch    meaning                                  refused with
    0        open a session, in place of another one  133 there are too many
    e > 0    the next request of the session          122 no session, 123 not the next epoch
    -1       the last request of the session          122 no session

The next epoch is one more each time; after 2^31 - 1 comes 1. A session belongs to its connection:
when that closes, or with its last request, what the member has acquired is given back. Sessions are
in memory only: after a restart a client gets 122 and opens another one. A principal has as many
sessions, and partitions in them, as it leaves free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple
from typing import Protocol as Port

from trilogue.broker.creators import CreatorCounts
from trilogue.wire.kafka.errors import ErrorCode

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX: Final = 2**31 - 1
PARTITIONS_MAX: Final = 1_000_000  # of all sessions together

ReleaseMember = Callable[[str, int, str], None]  # group, partition id, member id


class ClosingConnection(Port):
    """The connection of a session; it calls back when it closes."""

    closing: dict[object, Callable[[], None]]


class ShareSessionKey(NamedTuple):
    """The member that a session belongs to."""

    group: str
    member_id: str


class TopicPartitionKey(NamedTuple):
    """A partition as requests name it."""

    topic_id: bytes
    partition: int


class ShareSession:
    """The partitions of one member, in the order in which they were added."""

    def __init__(
        self, key: ShareSessionKey, connection: ClosingConnection, creator: str = ""
    ) -> None:
        self.key = key
        self.creator = creator
        self.connection = connection
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartitionKey, None] = {}
        self.acquired: set[int] = set()  # ids of partitions of which the member acquired records

    def in_turn(self) -> list[TopicPartitionKey]:
        """Return the partitions, beginning with another one at each request."""
        every = list(self.partitions)
        first = self.epoch % len(every) if every else 0
        return every[first:] + every[:first]


class ShareSessionCache:
    """All share sessions of the gateway."""

    def __init__(self, release_member: ReleaseMember, *, sessions_max: int) -> None:
        self.sessions_max = sessions_max
        self._release_member = release_member
        self._sessions: dict[ShareSessionKey, ShareSession] = {}
        self._partitions = 0
        self._creators = CreatorCounts()
        self._partitions_by_creator: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        key: ShareSessionKey,
        epoch: int,
        connection: ClosingConnection,
        creator: str = "",
    ) -> ShareSession | ErrorCode:
        """Return the session of a request, opened if that is what it wants; or its error.

        `creator` is the principal, if it has a name.
        """
        if epoch == INITIAL_EPOCH:
            return self._open(key, connection, creator)
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def add(self, session: ShareSession, keys: list[TopicPartitionKey]) -> bool:
        """Add partitions to a session; False if there is no room."""
        added = [key for key in keys if key not in session.partitions]
        free = PARTITIONS_MAX - self._partitions - len(added)
        had = self._partitions_by_creator[session.creator] if session.creator else 0
        if free < had:
            return False
        session.partitions.update(dict.fromkeys(added))
        self._count_partitions(session, len(added))
        return True

    def forget(self, session: ShareSession, key: TopicPartitionKey) -> None:
        """Remove a partition from a session."""
        if key in session.partitions:
            del session.partitions[key]
            self._count_partitions(session, -1)

    def close(self, session: ShareSession) -> None:
        """End a session: what its member has acquired is given back."""
        if self._sessions.get(session.key) is not session:
            return
        self._drop(session)
        for partition_id in session.acquired:
            self._release_member(session.key.group, partition_id, session.key.member_id)

    def _open(
        self, key: ShareSessionKey, connection: ClosingConnection, creator: str
    ) -> ShareSession | ErrorCode:
        former = self._sessions.get(key)
        if former is None:
            free = self.sessions_max - len(self._sessions)
            if free <= 0 or not self._creators.has_room(creator, free):
                return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(key, connection, creator)
        if former is not None:
            session.acquired |= former.acquired
            self._drop(former)
        session.epoch = 1
        self._sessions[key] = session
        self._creators.add(key, creator)
        connection.closing[key] = partial(self.close, session)
        return session

    def _drop(self, session: ShareSession) -> None:
        del self._sessions[session.key]
        self._creators.remove(session.key)
        self._count_partitions(session, -len(session.partitions))
        session.connection.closing.pop(session.key, None)

    def _count_partitions(self, session: ShareSession, change: int) -> None:
        self._partitions += change
        if session.creator:
            self._partitions_by_creator[session.creator] += change
            if not self._partitions_by_creator[session.creator]:
                del self._partitions_by_creator[session.creator]
