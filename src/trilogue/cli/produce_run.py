"""Sends what `trilogue produce` reads, and counts what becomes of it."""

from __future__ import annotations

import asyncio
import sys
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
        """Read in a thread, since whoever writes may take its time; send as it comes."""
        chunks = self._lines.chunks()
        while True:
            try:
                chunk = await asyncio.to_thread(next, chunks, None)
            except LinesError as problem:
                self._fail("", problem)
                return
            if chunk is None:
                return
            for where, piece in chunk:
                await self._one(where, piece)

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
