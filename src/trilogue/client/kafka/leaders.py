"""Who leads partitions, for those who send and fetch in rounds: nobody waits here for an answer.

What is not known is asked for beside, once for all partitions of a topic, again and again while
one that is needed has no leader; meanwhile the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.retry import pauses
from trilogue.client.tasks import Tasks

LONGEST_PAUSE_S: Final = 0.5


class Leaders:
    """The leaders that one producer or consumer wants to know.

    `needed` says which partitions of a topic somebody waits for; `learnt` is called when there is
    something new to see, `failed` when a server refuses to tell.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        tasks: Tasks,
        *,
        create: bool,
        pause_s: float,
        needed: Callable[[str], Iterable[int]],
        learnt: Callable[[], None],
        failed: Callable[[str, KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._create = create
        self._pause_s = pause_s
        self._needed = needed
        self._learnt = learnt
        self._failed = failed
        self._learning: set[str] = set()
        self._pauses: dict[str, Iterator[float]] = {}

    def of(self, topic: str, number: int) -> int | None:
        """The node that leads a partition; None where that has to be asked for, which it is now."""
        leader = self._cluster.known_leader(topic, number)
        if leader is None and topic not in self._learning:
            self._learning.add(topic)
            self._tasks.spawn(self._learn(topic))
        return leader

    async def _learn(self, topic: str) -> None:
        try:
            await self._cluster.refresh([topic], create=self._create, led=())
        except KafkaError as problem:
            self._failed(topic, problem)
        except ClientError:
            pass  # nobody answers: later, perhaps
        if any(self._cluster.known_leader(topic, one) is None for one in self._needed(topic)):
            self._learnt()  # the others need not wait for these
            await asyncio.sleep(self._pause(topic))
        else:
            self._pauses.pop(topic, None)
        self._learning.discard(topic)
        self._learnt()

    def _pause(self, topic: str) -> float:
        if topic not in self._pauses:
            longest_s = max(LONGEST_PAUSE_S, self._pause_s)
            self._pauses[topic] = pauses(self._pause_s, longest_s, float("inf"))
        return next(self._pauses[topic])
