"""Incremental fetch sessions: the server remembers the partitions of a fetch (KIP-227).

The first request of a session names all partitions; those that follow only what has changed, and
what is to be forgotten. A server that wants no session answers with the id 0: then each request
names all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
FULL: Final = 0
"""The epoch of a request that opens a session."""
FINAL: Final = -1
LAST_EPOCH: Final = (1 << 31) - 1
Name = str | bytes
"""A topic's name, or its id from version 13 on."""


class FetchPosition(NamedTuple):
    """The fetch offset and limit of a partition."""

    offset: int
    max_bytes: int
    leader_epoch: int = -1


class FetchSession:
    """The session with one node."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FULL
        self._wait_for_topic: dict[tuple[Name, int], FetchPosition] = {}
        self._requested: dict[tuple[Name, int], FetchPosition] = {}
        self._by_id = False

    def build_next(
        self, wanted: Mapping[tuple[Name, int], FetchPosition], *, by_id: bool
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """The topics and forgotten topics of the next request, for the current id and epoch."""
        if by_id != self._by_id:  # the server knows the partitions by their other names
            self._by_id = by_id
            self.reset()
        self._requested = dict(wanted)
        if self.epoch == FULL:
            return _topics(self._requested, by_id=by_id), []
        changed = {
            key: requested
            for key, requested in wanted.items()
            if self._wait_for_topic.get(key) != requested
        }
        gone: dict[Name, list[int]] = {}
        for name, number in self._wait_for_topic:
            if (name, number) not in wanted:
                gone.setdefault(name, []).append(number)
        forgotten = [
            ForgottenTopic(
                topic="" if by_id else str(name),
                topic_id=bytes(name) if isinstance(name, bytes) else bytes(16),
                partitions=numbers,
            )
            for name, numbers in gone.items()
        ]
        return _topics(changed, by_id=by_id), forgotten

    def on_response(self, error_code: int, session_id: int) -> bool:
        """Update the session by a response; False: the next request has to be a full one."""
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        if error_code:
            self.reset()
            return False
        self._wait_for_topic = self._requested
        if session_id == NO_SESSION:
            self.id, self.epoch = NO_SESSION, FULL
        else:
            self.id = session_id
            self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        return True

    def reset(self) -> None:
        """Name everything in the next request; the server drops what it remembers (epoch 0)."""
        self.epoch = FULL
        self._wait_for_topic = {}


def _topics(
    requested: Mapping[tuple[Name, int], FetchPosition], *, by_id: bool
) -> list[FetchTopic]:
    topics: dict[Name, FetchTopic] = {}
    for (name, number), one in requested.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(
                topic="" if by_id else str(name),
                topic_id=bytes(name) if isinstance(name, bytes) else bytes(16),
                partitions=[],
            )
        topic.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=one.offset,
                partition_max_bytes=one.max_bytes,
            )
        )
    return list(topics.values())
