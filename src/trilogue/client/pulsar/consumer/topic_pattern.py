"""Subscriptions by pattern: the matching topics of a namespace, refreshed periodically."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Callable
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.pulsar.attachment import ClientContext, log
from trilogue.client.pulsar.consumer.consumer import Consumer
from trilogue.client.pulsar.consumer.receive_queue import ReceiveQueue
from trilogue.client.pulsar.consumer.topic_consumer import TopicConsumer
from trilogue.client.pulsar.errors import PulsarError
from trilogue.client.pulsar.topic_names import full_name, namespace_of, without_partition

SPECIAL: Final = re.compile(r"[.^$*+?{}\[\]\\|()]")
MAX_TOPICS: Final = 10_000


class TopicPattern:
    """A regular expression for the names in one namespace, which it names in full.

    `persistent://public/default/orders-.*`, `tenant/namespace/.*`, or only `orders-.*`. It must
    match the whole name; partitions of a topic that matches are received from one by one.
    """

    def __init__(self, text: str) -> None:
        domain, found, rest = text.partition("://")
        head, slash, tail = (rest if found else text).rpartition("/")
        if SPECIAL.search(head) or (found and domain != "persistent"):
            raise ClientError(f"only the last part of a persistent topic's name varies: {text!r}")
        self._name = re.compile(tail)
        self._prefix = full_name(f"{head}{slash}x")[:-1]
        self.namespace = namespace_of(self._prefix + "x")

    def matches(self, topic: str) -> bool:
        """Whether a topic, or the one that a partition belongs to, is meant."""
        whole = without_partition(topic)
        rest = whole.removeprefix(self._prefix)
        return rest != whole and self._name.fullmatch(rest) is not None


class PatternConsumer(Consumer):
    """A consumer whose topics come and go; made by `PulsarClient.subscribe_pattern`."""

    def __init__(
        self,
        core: ClientContext,
        pattern: TopicPattern,
        inbox: ReceiveQueue,
        make: Callable[[str], TopicConsumer],
        period_s: float,
    ) -> None:
        super().__init__(core, [], inbox)
        self._pattern = pattern
        self._make = make
        self._period_s = period_s
        self._watching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Subscribe to all that there are now, and go on looking."""
        try:
            await self.refresh_topics()
        except BaseException:
            await self.close()
            raise
        self._watching = self._core.tasks.spawn(self._watch())

    async def look_again(self) -> None:
        """Deprecated: `refresh_topics`."""
        warnings.warn("look_again is now called refresh_topics", DeprecationWarning, stacklevel=2)
        await self.refresh_topics()

    async def refresh_topics(self) -> None:
        """Take in new topics, let go of those that are no more.

        One that is refused keeps none of the others away; it is raised at the end.
        """
        topics = await self._core.lookup.topics(self._pattern.namespace)
        wanted = {topic for topic in topics if self._pattern.matches(topic)}
        if len(wanted) > MAX_TOPICS:
            raise ClientError(f"{len(wanted)} topics match, {MAX_TOPICS} are allowed")
        problem: PulsarError | None = None
        for topic in sorted(wanted - self._parts.keys()):
            part = self._make(topic)
            try:
                await part.attach()
            except PulsarError as refused:
                problem = problem or refused
                continue
            if self.closed:
                await part.close()
                return
            self._parts[topic] = part
        for topic in self._parts.keys() - wanted:
            await self._parts.pop(topic).close()
        self._inbox.wake_all()
        if problem is not None:
            raise problem

    def _check_progress(self) -> None:
        """A topic that failed for good, deleted perhaps, is no end of the others."""
        for topic, part in list(self._parts.items()):
            if part.failure is not None:
                del self._parts[topic]  # and tried again when topics are looked for
        super()._check_progress()

    async def _watch(self) -> None:
        while not self.closed:
            await asyncio.sleep(self._period_s)
            try:
                await self.refresh_topics()
            except ClientError as problem:
                log.warning("pulsar.pattern namespace=%s why=%s", self._pattern.namespace, problem)

    async def close(self) -> None:
        """Look no more, and close."""
        if self._watching is not None:
            self._watching.cancel()
        await super().close()
