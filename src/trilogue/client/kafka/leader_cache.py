"""Partition leaders for the sender and the fetcher, which never wait for metadata.

Unknown leaders are requested in the background, once for all partitions of a topic, and again
while a needed one has no leader; other partitions go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.retry import pauses
from trilogue.client.tasks import BackgroundTasks

LONGEST_PAUSE_S: Final = 0.5


class LeaderCache:
    """The partition leaders that one producer or consumer needs.

    `needed` returns the partitions of a topic that wait for a leader. `on_learned` is called after
    new metadata, `on_error` when a server refuses the request.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        tasks: BackgroundTasks,
        *,
        create: bool,
        pause_s: float,
        needed: Callable[[str], Iterable[int]],
        on_learned: Callable[[], None],
        on_error: Callable[[str, KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._create = create
        self._pause_s = pause_s
        self._needed = needed
        self._on_learned = on_learned
        self._on_error = on_error
        self._refreshing: set[str] = set()
        self._pauses: dict[str, Iterator[float]] = {}

    def find_leader(self, topic: str, number: int) -> int | None:
        """The leader of a partition; None where it is unknown, which starts a request."""
        leader = self._cluster.known_leader(topic, number)
        if leader is None and topic not in self._refreshing:
            self._refreshing.add(topic)
            self._tasks.spawn(self._refresh(topic))
        return leader

    async def _refresh(self, topic: str) -> None:
        try:
            await self._refresh_once(topic)
        finally:
            self._refreshing.discard(topic)
        self._on_learned()

    async def _refresh_once(self, topic: str) -> None:
        try:
            await self._cluster.refresh([topic], create=self._create, needed_leaders=())
        except KafkaError as problem:
            self._on_error(topic, problem)
        except ClientError:
            pass  # no server answers: another attempt follows after the pause
        if any(self._cluster.known_leader(topic, one) is None for one in self._needed(topic)):
            self._on_learned()  # the others need not wait for these
            await asyncio.sleep(self._pause(topic))
        else:
            self._pauses.pop(topic, None)

    def _pause(self, topic: str) -> float:
        if topic not in self._pauses:
            longest_s = max(LONGEST_PAUSE_S, self._pause_s)
            self._pauses[topic] = pauses(self._pause_s, longest_s, float("inf"))
        return next(self._pauses[topic])
