"""The synchronous facade: the same client on a loop in its own thread, for code without asyncio.

    with TubeClient("127.0.0.1:8715") as client:
        with client.producer("orders") as producer:
            producer.send(Message("orders", b"one"))
        with client.consumer("orders", group="billing") as consumer:
            for message in consumer:
                print(message.body)

Every call may be made from any thread, but from no callback of a future: those run in the loop's
thread, which cannot wait for itself. Names, options and errors are those of the asyncio client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from trilogue.client.errors import ClientError
from trilogue.client.threads import (
    SyncClientFacade,
    SyncFacade,
    call_in_loop,
    failed_future,
    to_concurrent_future,
)
from trilogue.client.tubemq import client as asynchronous
from trilogue.client.tubemq.consumer import Consumer as AsyncConsumer
from trilogue.client.tubemq.consumer import Topics
from trilogue.client.tubemq.errors import ClosedError
from trilogue.client.tubemq.message import Message
from trilogue.client.tubemq.partition_state import Batch, Offsets
from trilogue.client.tubemq.producer import Producer as AsyncProducer
from trilogue.client.tubemq.producer import Sent


class Producer(SyncFacade[AsyncProducer]):
    """Sends messages to published topics."""

    @property
    def topics(self) -> list[str]:
        """What is published now."""
        return list(self._inner.topics)

    def publish(self, *topics: str) -> set[str]:
        """Send to these topics from now on; those of them that have partitions already."""
        return self._loop.run(self._inner.publish(*topics))

    def unpublish(self, *topics: str) -> None:
        """Send to these topics no more."""
        self._loop.run(self._inner.unpublish(*topics))

    def send(self, message: Message) -> Sent:
        """Send a message and wait until it is stored."""
        return self._loop.run(self._inner.send(message))

    def submit(self, message: Message) -> concurrent.futures.Future[Sent]:
        """Hand a message over and go on; where it is stored is the future's. Waits for room."""
        return self.submit_many([message])[0]

    def submit_many(self, messages: Iterable[Message]) -> list[concurrent.futures.Future[Sent]]:
        """Hand over many messages: one change of threads for all.

        What the client itself refuses is in its message's future.
        """
        return self._loop.run(self._submit_many(list(messages)))

    async def _submit_many(self, messages: list[Message]) -> list[concurrent.futures.Future[Sent]]:
        futures = []
        for message in messages:
            try:
                futures.append(to_concurrent_future(await self._inner.submit(message)))
            except ClientError as problem:
                futures.append(failed_future(problem))
        return futures

    def flush(self) -> None:
        """Wait until everything submitted is stored or refused."""
        self._loop.run(self._inner.flush())


class Consumer(SyncFacade[AsyncConsumer]):
    """Reads topics for a group; at its end, what is not confirmed goes to others."""

    @property
    def partitions(self) -> list[str]:
        """The keys of the partitions that are this consumer's now."""
        return self._loop.run(call_in_loop(lambda: self._inner.partitions))

    def get(self, timeout_s: float | None = None) -> Batch:
        """The next pack of messages; NoMessage when there is none in time."""
        return self._loop.run(self._inner.get(timeout_s))

    def confirm(self, batch: Batch) -> None:
        """Confirm a batch."""
        self._loop.run(self._inner.confirm(batch))

    def rollback(self, batch: Batch) -> None:
        """Return a batch: it comes again."""
        self._loop.run(self._inner.rollback(batch))

    def __iter__(self) -> Iterator[Message]:
        """Message by message, until the consumer is closed.

        A pack is confirmed after its last message, and rolled back when the loop is left before.
        """
        while True:
            try:
                batch = self.get()
            except ClosedError:
                return
            settle = self.rollback
            try:
                yield from batch
                settle = self.confirm
            finally:
                with suppress(ClientError):  # it comes again
                    settle(batch)

    def run(self, callback: Callable[[Batch], bool | None], *, at_once: int = 1) -> None:
        """Call back with pack after pack, in threads, until the consumer is closed or fails."""

        async def work(batch: Batch) -> bool | None:
            return await asyncio.to_thread(callback, batch)

        self._loop.run(self._inner.run(work, at_once=at_once))

    def offsets(self) -> dict[str, Offsets]:
        """Where the group is in each partition."""
        return self._loop.run(call_in_loop(self._inner.offsets))

    def set_offset(self, partition: str, offset: int) -> None:
        """Go on reading a partition at an offset."""
        self._loop.run(self._inner.set_offset(partition, offset))

    def pause(self, *partitions: str) -> None:
        """Get nothing from some partitions for now."""
        self._loop.run(call_in_loop(self._inner.pause, *partitions))

    def resume(self, *partitions: str) -> None:
        """Get messages from them again."""
        self._loop.run(call_in_loop(self._inner.resume, *partitions))

    def available(self) -> list[str]:
        """The keys of all partitions that may be read (not where the server balances)."""
        return self._loop.run(call_in_loop(self._inner.available))

    def connect(self, partition: str, offset: int | None = None) -> None:
        """Read a partition."""
        self._loop.run(self._inner.connect(partition, offset))

    def disconnect(self, partition: str) -> None:
        """Read a partition no more."""
        self._loop.run(self._inner.disconnect(partition))


class TubeClient(SyncClientFacade[asynchronous.TubeClient]):
    """Producers and consumers of one cluster; options as in the asyncio client."""

    def __init__(self, masters: str, **options: Any) -> None:
        super().__init__(
            "trilogue-tubemq", asynchronous.TubeClient(masters, **options), ClosedError
        )

    def producer(self, *topics: str, **options: Any) -> Producer:
        """Make a producer and publish topics."""
        return Producer(self._loop, self._loop.run(self._inner.producer(*topics, **options)))

    def consumer(self, *topics: Topics, group: str | None = None, **options: Any) -> Consumer:
        """Make a consumer of topics for a group; see the asyncio client."""
        wanted, of_group = asynchronous.consumer_arguments(topics, group, options)
        made = self._loop.run(self._inner.consumer(wanted, group=of_group, **options))
        return Consumer(self._loop, made)
