"""Sends what `trilogue produce` reads, and counts what becomes of it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Final

from trilogue.cli.asking import FAILED, explained
from trilogue.cli.produce_lines import Lines, LinesError
from trilogue.cli.progress import Progress
from trilogue.client.errors import ClientError

if TYPE_CHECKING:
    from trilogue.client.kafka.batch import Sent
    from trilogue.client.kafka.client import KafkaClient
    from trilogue.client.kafka.producer import Producer

ERRORS_SHOWN: Final = 5
READ_AHEAD: Final = 2
Chunk = list[tuple[str, bytes]] | Exception | None
"""Messages with where they are from, what kept us from reading on, or the end."""
LINGER_S: Final = 0.005
BATCH_BYTES: Final = 256 << 10


async def sent(
    client: KafkaClient,
    topic: str,
    lines: Lines,
    partition: int | None,
    *,
    acks: int,
    codec: str,
) -> int:
    """Send all of it; the exit code says whether all was acknowledged."""
    from trilogue.client.kafka.options import Acks
    from trilogue.entry.entry import Codec

    producer = await client.producer(
        acks=Acks(acks),
        compression=Codec[codec.upper()],
        linger_s=0.0 if lines.value is not None else LINGER_S,
        batch_bytes=BATCH_BYTES,
        create_topics=False,
    )
    run = _Run(producer, topic, lines, partition)
    if lines.is_typed and sys.stderr.isatty():
        print("one message a line; Ctrl-D ends", file=sys.stderr)
    try:
        await run.all()
    finally:
        await producer.flush()
        run.tell()
    return FAILED if run.failed else 0


class _Run:
    def __init__(self, producer: Producer, topic: str, lines: Lines, partition: int | None) -> None:
        self._producer = producer
        self._topic = topic
        self._lines = lines
        self._partition = partition
        self._progress = Progress("sent", of_bytes=lines.size_bytes)
        self.failed = 0

    async def all(self) -> None:
        """Send as it comes."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[Chunk] = asyncio.Queue(READ_AHEAD)
        threading.Thread(target=self._read, args=(loop, chunks), daemon=True).start()
        while isinstance(chunk := await chunks.get(), list):
            for where, piece in chunk:
                await self._one(where, piece)
        if chunk is not None:
            self._fail("", chunk)

    def _read(self, loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[Chunk]) -> None:
        """In a thread that nobody waits for: whoever writes may never write again."""

        def give(chunk: Chunk) -> None:
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()

        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):  # all is over
            try:
                for chunk in self._lines.chunks():
                    give(chunk)
                give(None)
            except (LinesError, OSError) as problem:
                give(problem)

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
        except (LinesError, ClientError) as problem:
            self._fail(where, problem)
            return
        size = len(piece) + 1
        future.add_done_callback(lambda done: self._settled(done, where, size))

    def _settled(self, done: asyncio.Future[Sent], where: str, size: int) -> None:
        problem = asyncio.CancelledError() if done.cancelled() else done.exception()
        if problem is None:
            self._progress.add(1, size)
        else:
            self._fail(where, problem)

    def _fail(self, where: str, problem: BaseException) -> None:
        self.failed += 1
        if self.failed <= ERRORS_SHOWN:
            said = explained(problem) if isinstance(problem, Exception) else "given up"
            print(f"trilogue: {where}: {said}" if where else f"trilogue: {said}", file=sys.stderr)

    def tell(self) -> None:
        """How it went."""
        self._progress.end("acknowledged")
        if self.failed:
            acknowledged = self._progress.count
            print(
                f"trilogue: {self.failed} messages were not sent, {acknowledged} were",
                file=sys.stderr,
            )
