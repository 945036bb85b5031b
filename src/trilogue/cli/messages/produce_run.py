"""Sends the messages of `trilogue produce` and counts the outcomes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from trilogue.cli.cluster import FAILED, describe_error
from trilogue.cli.messages.produce_lines import MESSAGE_BYTES, InputChunk, Lines, LinesError
from trilogue.cli.messages.progress import Progress
from trilogue.cli.tables import spell_count
from trilogue.client.errors import ClientError

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient
    from trilogue.client.kafka.producer.batch import BulkDelivery
    from trilogue.client.kafka.producer.producer import BulkRecord, Producer

ERRORS_SHOWN: Final = 5
READ_AHEAD: Final = 2
MAX_MESSAGE: Final = "max.message.bytes"
Chunk = InputChunk | Exception | None
"""Messages, an error of the input, or None at its end."""
LINGER_S: Final = 0.005
BATCH_BYTES: Final = 256 << 10
MEMORY_BYTES: Final = 16 << 20
"""What waits to be sent has to be stored within the time-out, also by a slow connection."""
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
    timeout_s: float,
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
        delivery_timeout_s=timeout_s,
    )
    run = _Run(producer, topic, lines, partition)
    if lines.is_typed and sys.stderr.isatty():
        print("one message a line; Ctrl-D ends", file=sys.stderr)
    try:
        await run.send_input()
    finally:
        await producer.flush()
        await run.wait_until_counted()
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
        self._deliveries: set[asyncio.Future[BulkDelivery]] = set()
        self.failed = 0

    async def send_input(self) -> None:
        """Send messages as the input gives them."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[Chunk] = asyncio.Queue(READ_AHEAD)
        threading.Thread(target=self._read, args=(loop, chunks), daemon=True).start()
        while isinstance(chunk := await chunks.get(), InputChunk):
            await self._send_chunk(chunk)
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

    async def _send_chunk(self, chunk: InputChunk) -> None:
        origins: Sequence[int] = range(len(chunk.pieces))
        records: Sequence[bytes | BulkRecord] = chunk.pieces
        if not self._lines.are_values:
            parsed = dict(self._parse(chunk))
            origins, records = list(parsed), list(parsed.values())
        try:
            future = await self._producer.submit_bulk(
                self._topic, records, partition=self._partition
            )
        except ClientError as error:
            for index in origins:
                self._fail(chunk.origin(index), error)
            return
        self._deliveries.add(future)
        future.add_done_callback(lambda done: self._complete(done, chunk, origins))

    async def wait_until_counted(self) -> None:
        """Wait for the outcome of each chunk: one that fails at once is none of the producer's."""
        while self._deliveries:
            await asyncio.wait(self._deliveries)

    def _parse(self, chunk: InputChunk) -> Iterator[tuple[int, BulkRecord]]:
        """Yield the messages of a chunk by index; those that are invalid are counted as failed."""
        from trilogue.client.kafka.producer.producer import BulkRecord

        for index, piece in enumerate(chunk.pieces):
            try:
                key, value, headers, timestamp, partition = self._lines.message(piece)
            except LinesError as error:
                self._fail(chunk.origin(index), error)
            else:
                yield index, BulkRecord(value, key, headers, partition, timestamp)

    def _complete(
        self, done: asyncio.Future[BulkDelivery], chunk: InputChunk, origins: Sequence[int]
    ) -> None:
        self._deliveries.discard(done)
        delivery = done.result()
        failed = {origins[index]: error for index, error in delivery.failures.items()}
        size = sum(len(chunk.pieces[at]) + 1 for at in origins if at not in failed)
        self._progress.add(delivery.stored, size)
        for index, error in sorted(failed.items()):
            self._fail(chunk.origin(index), error)

    def _fail(self, where: str, error: Exception) -> None:
        self.failed += 1
        if self.failed <= ERRORS_SHOWN:
            detail = describe_error(error)
            print(
                f"trilogue: {where}: {detail}" if where else f"trilogue: {detail}", file=sys.stderr
            )

    def print_summary(self) -> None:
        """Print the counts."""
        self._progress.end("acknowledged")
        if self.failed:
            acknowledged = self._progress.count
            print(
                f"trilogue: {spell_count(self.failed, 'message')} not sent, "
                f"{acknowledged:,} acknowledged",
                file=sys.stderr,
            )
