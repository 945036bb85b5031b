"""Sends the messages of `trilogue produce` and counts the outcomes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Final

from trilogue.cli.cluster import FAILED, describe_error
from trilogue.cli.messages.produce_lines import MESSAGE_BYTES, Lines, LinesError
from trilogue.cli.messages.progress import Progress, count_messages
from trilogue.client.errors import ClientError

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient
    from trilogue.client.kafka.producer.batch import Sent
    from trilogue.client.kafka.producer.producer import Producer

ERRORS_SHOWN: Final = 5
READ_AHEAD: Final = 2
MAX_MESSAGE: Final = "max.message.bytes"
Chunk = list[tuple[str, bytes]] | Exception | None
"""Messages with their origins, an error of the input, or None at its end."""
LINGER_S: Final = 0.005
BATCH_BYTES: Final = 256 << 10
MEMORY_BYTES: Final = 64 << 20
OVERHEAD_BYTES: Final = 64 << 10
"""What a request has besides the value of a message of the largest size."""


async def send_all(
    client: KafkaClient,
    topic: str,
    lines: Lines,
    partition: int | None,
    *,
    acks: int,
    codec: str,
) -> int:
    """Send all messages; return 0 if all were acknowledged."""
    from trilogue.client.kafka.options import Acks
    from trilogue.entry.entry import Codec

    limit = MESSAGE_BYTES
    if lines.may_exceed:
        limit = max(limit, await message_limit(client, topic) + OVERHEAD_BYTES)
        lines.size_limit = limit
    producer = await client.producer(
        acks=Acks(acks),
        compression=Codec[codec.upper()],
        linger_s=0.0 if lines.value is not None else LINGER_S,
        batch_bytes=BATCH_BYTES,
        max_request_bytes=limit,
        max_memory_bytes=max(MEMORY_BYTES, limit),
        create_topics=False,
    )
    run = _Run(producer, topic, lines, partition)
    if lines.is_typed and sys.stderr.isatty():
        print("one message a line; Ctrl-D ends", file=sys.stderr)
    try:
        await run.send_input()
    finally:
        await producer.flush()
        run.print_summary()
    return FAILED if run.failed else 0


async def message_limit(client: KafkaClient, topic: str) -> int:
    """Return the topic's `max.message.bytes`; 0 if the server does not return it."""
    from trilogue.client.kafka.admin.configs import ConfigAdmin
    from trilogue.client.kafka.admin.model import Resource, ResourceType
    from trilogue.client.kafka.errors import KafkaError

    resource = Resource(ResourceType.TOPIC, topic)
    try:
        settings = ConfigAdmin(client.cluster).describe_configs([resource], names=[MAX_MESSAGE])
        found = (await settings)[resource]
    except ClientError:
        return 0
    if isinstance(found, KafkaError) or MAX_MESSAGE not in found:
        return 0
    text = found[MAX_MESSAGE].value or ""
    return int(text) if text.isdigit() else 0


class _Run:
    def __init__(self, producer: Producer, topic: str, lines: Lines, partition: int | None) -> None:
        self._producer = producer
        self._topic = topic
        self._lines = lines
        self._partition = partition
        self._progress = Progress("sent", of_bytes=lines.size_bytes)
        self.failed = 0

    async def send_input(self) -> None:
        """Send messages as the input gives them."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[Chunk] = asyncio.Queue(READ_AHEAD)
        threading.Thread(target=self._read, args=(loop, chunks), daemon=True).start()
        while isinstance(chunk := await chunks.get(), list):
            for where, piece in chunk:
                await self._one(where, piece)
        if chunk is not None:
            self._fail("", chunk)

    def _read(self, loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[Chunk]) -> None:
        """Read in a daemon thread: input may block for ever."""

        def enqueue_chunk(chunk: Chunk) -> None:
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()

        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):  # all is over
            try:
                for chunk in self._lines.chunks():
                    enqueue_chunk(chunk)
                enqueue_chunk(None)
            except (LinesError, OSError) as error:
                enqueue_chunk(error)

    async def _one(self, where: str, piece: bytes) -> None:
        try:
            key, value, headers, timestamp, partition = self._lines.message(piece)
            future = await self._producer.submit(
                self._topic,
                value,
                key=key,
                headers=headers,
                partition=self._partition if partition is None else partition,
                timestamp_ms=timestamp,
            )
        except (LinesError, ClientError) as error:
            self._fail(where, error)
            return
        size = len(piece) + 1
        future.add_done_callback(lambda done: self._complete(done, where, size))

    def _complete(self, done: asyncio.Future[Sent], where: str, size: int) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._progress.add(1, size)
        else:
            self._fail(where, error)

    def _fail(self, where: str, error: BaseException) -> None:
        self.failed += 1
        if self.failed <= ERRORS_SHOWN:
            detail = describe_error(error) if isinstance(error, Exception) else "given up"
            print(
                f"trilogue: {where}: {detail}" if where else f"trilogue: {detail}", file=sys.stderr
            )

    def print_summary(self) -> None:
        """Print the counts."""
        self._progress.end("acknowledged")
        if self.failed:
            acknowledged = self._progress.count
            print(
                f"trilogue: {count_messages(self.failed)} not sent, {acknowledged:,} acknowledged",
                file=sys.stderr,
            )
