"""The synchronous face: the same client on a loop in a thread of its own, for code without asyncio.

    with PulsarClient("pulsar://127.0.0.1:6650") as client:
        with client.producer("orders") as producer:
            producer.send(b"one")
        with client.subscribe("orders", "billing") as consumer:
            for message in consumer:
                consumer.ack(message)

Every call may be made from any thread, but from no callback of a future: those run in the loop's
thread, which cannot wait for itself. Names, options and errors are those of the asyncio client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from trilogue.client.errors import ClientError
from trilogue.client.pulsar import client as asynchronous
from trilogue.client.pulsar.consumer import Consumer as AsyncConsumer
from trilogue.client.pulsar.errors import ClosedError, EndOfTopic
from trilogue.client.pulsar.message import EARLIEST, Message, MessageId
from trilogue.client.pulsar.producer import Producer as AsyncProducer

Result = TypeVar("Result")
AT_ONCE = 1000
"""Messages that an iteration takes over from the loop at a time."""
LAST_WORDS_S = 1.0
"""How long calls of other threads have to end by themselves when the client was closed."""


class _Loop:
    """A loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="trilogue-pulsar", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Start something there; ClosedError."""
        with self._lock:  # after it there is nobody who would do it
            if not self._stopped:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise ClosedError("the client is closed")

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something there and wait for it; an interrupt here cancels it there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientError("a callback may not wait: it runs in the thread that it waits for")
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClosedError("the client is closed") from None
        finally:
            future.cancel()

    def stop(self) -> None:
        """End what still runs there, and the thread."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            ending = asyncio.run_coroutine_threadsafe(_end_others(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    """Let everybody else have its answer, or be cancelled: nobody may wait in another thread."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=LAST_WORDS_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


class _Closing:
    """What is used in a `with`."""

    def close(self) -> None:
        """Close it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Producer(_Closing):
    """Sends messages to one topic."""

    def __init__(self, loop: _Loop, inner: AsyncProducer) -> None:
        self._loop = loop
        self._inner = inner

    @property
    def name(self) -> str:
        """The name it sends under."""
        return self._inner.name

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that is known to be stored; -1 is none."""
        return self._inner.last_sequence_id

    def send(self, value: bytes | None, **more: Any) -> MessageId:
        """Send a message and wait for its receipt; more as in the asyncio client."""
        return self._loop.run(self._inner.send(value, **more))

    def submit(self, value: bytes | None, **more: Any) -> concurrent.futures.Future[MessageId]:
        """Hand a message over and go on; the receipt is in the future. Waits for room only."""
        return self.submit_many([(value, more)])[0]

    def submit_many(
        self, messages: Iterable[tuple[bytes | None, dict[str, Any]]]
    ) -> list[concurrent.futures.Future[MessageId]]:
        """Hand over many messages, each with its options: one change of threads for all."""
        return self._loop.run(self._submit_many(list(messages)))

    async def _submit_many(
        self, messages: list[tuple[bytes | None, dict[str, Any]]]
    ) -> list[concurrent.futures.Future[MessageId]]:
        futures = []
        for value, more in messages:
            future = await self._inner.submit(value, **more)
            outside: concurrent.futures.Future[MessageId] = concurrent.futures.Future()
            outside.set_running_or_notify_cancel()  # what was handed over is not taken back
            future.add_done_callback(_copied(outside))
            futures.append(outside)
        return futures

    def flush(self) -> None:
        """Wait until everything submitted has its receipt or its error."""
        self._loop.run(self._inner.flush())

    def close(self) -> None:
        """Wait for what is under way, then close."""
        self._loop.run(self._inner.close())


def _copied(outside: concurrent.futures.Future[MessageId]) -> Any:
    def copy(inside: asyncio.Future[MessageId]) -> None:
        problem = inside.exception()
        if problem is not None:
            outside.set_exception(problem)
        else:
            outside.set_result(inside.result())

    return copy


class Consumer(_Closing):
    """Receives the messages of a subscription; a reader too."""

    def __init__(self, loop: _Loop, inner: AsyncConsumer) -> None:
        self._loop = loop
        self._inner = inner

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        """The next message; the iteration ends with the topic, or when the consumer is closed."""
        try:
            return self.receive()
        except (EndOfTopic, ClosedError):
            raise StopIteration from None

    @property
    def topics(self) -> list[str]:
        """The topics and partitions it receives from, in full."""
        return self._inner.topics

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message; TimedOut, EndOfTopic."""
        return self._loop.run(self._inner.receive(timeout_s))

    def receive_many(self, most: int = AT_ONCE, timeout_s: float | None = None) -> list[Message]:
        """The messages that are there, at most so many; waits for the first one only."""
        return self._loop.run(self._inner.receive_many(most, timeout_s))

    def ack(self, what: Message | MessageId) -> None:
        """Acknowledge one message."""
        self._loop.run(self._inner.ack(what))

    def ack_many(self, what: Iterable[Message | MessageId]) -> None:
        """Acknowledge many: one change of threads, and few commands, for all."""
        self._loop.run(self._ack_many(list(what)))

    async def _ack_many(self, what: list[Message | MessageId]) -> None:
        await asyncio.gather(*(self._inner.ack(one) for one in what))

    def ack_through(self, what: Message | MessageId) -> None:
        """Acknowledge a message and all before it."""
        self._loop.run(self._inner.ack_through(what))

    def nack(self, what: Message | MessageId) -> None:
        """Have a message sent again."""
        self._loop.run(_called(self._inner.nack, what))

    def redeliver(self) -> None:
        """Have everything sent again that is not acknowledged."""
        self._loop.run(_called(self._inner.redeliver))

    def seek(
        self,
        where: MessageId | None = None,
        *,
        time_ms: int | None = None,
        inclusive: bool = False,
    ) -> None:
        """Move the subscription."""
        self._loop.run(self._inner.seek(where, time_ms=time_ms, inclusive=inclusive))

    def has_message_available(self) -> bool:
        """Whether a message is there after the last one received."""
        return self._loop.run(self._inner.has_message_available())

    def last_message_ids(self) -> list[MessageId]:
        """The id of the last message of each topic."""
        return self._loop.run(self._inner.last_message_ids())

    def stats(self) -> dict[str, Any]:
        """What the broker counts about this consumer."""
        return self._loop.run(self._inner.stats())

    def unsubscribe(self) -> None:
        """Remove the subscription."""
        self._loop.run(self._inner.unsubscribe())

    def close(self) -> None:
        """Close; what is not acknowledged goes to others."""
        self._loop.run(self._inner.close())


async def _called(function: Any, *arguments: Any) -> None:
    function(*arguments)


class PulsarClient(_Closing):
    """Connections to the brokers of one cluster; options as in the asyncio client."""

    def __init__(self, url: str, **options: Any) -> None:
        self._inner = asynchronous.PulsarClient(url, **options)
        self._loop = _Loop()
        self._closing = threading.Lock()

    def producer(self, topic: str, **options: Any) -> Producer:
        """Make a producer."""
        return Producer(self._loop, self._loop.run(self._inner.producer(topic, **options)))

    def subscribe(self, topics: str | Iterable[str], subscription: str, **options: Any) -> Consumer:
        """Make a consumer of a topic, or of several."""
        made = self._loop.run(self._inner.subscribe(topics, subscription, **options))
        return Consumer(self._loop, made)

    def subscribe_pattern(self, pattern: str, subscription: str, **options: Any) -> Consumer:
        """Make a consumer of all topics of a namespace that match."""
        made = self._loop.run(self._inner.subscribe_pattern(pattern, subscription, **options))
        return Consumer(self._loop, made)

    def reader(self, topic: str, start: MessageId = EARLIEST, **options: Any) -> Consumer:
        """Read from a message on."""
        return Consumer(self._loop, self._loop.run(self._inner.reader(topic, start, **options)))

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 is one without."""
        return self._loop.run(self._inner.partitions(topic))

    def topics(self, namespace: str = "public/default") -> list[str]:
        """The persistent topics of a namespace."""
        return self._loop.run(self._inner.topics(namespace))

    def close(self) -> None:
        """Close what was made, the connections, and the thread."""
        with self._closing:  # who comes second waits for the first
            try:
                self._loop.run(self._inner.close())
            except ClosedError:
                return
            finally:
                self._loop.stop()
