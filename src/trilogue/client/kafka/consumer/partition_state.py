"""The state of a partition that a consumer reads: positions and the buffer of fetched records."""

from __future__ import annotations

from collections import deque
from typing import Final

from trilogue.client.kafka.consumer.message import BadRecords, FetchedBatches, Message
from trilogue.client.kafka.model import Partition
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT

NO_OFFSET: Final = -1


class PartitionState:
    """One partition that is read."""

    __slots__ = (
        "buffer", "buffered_bytes", "consumed", "epoch", "fetch_at", "high_watermark", "is_paused",
        "log_start", "not_before", "partition", "position", "reset_to", "stable_end",
    )  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.position = NO_OFFSET
        """The next offset for the application; -1 while that is being found out."""
        self.consumed = NO_OFFSET
        """As far as the application has read for certain: it came back for more."""
        self.fetch_at = NO_OFFSET
        """The next offset to fetch: after the buffered records."""
        self.epoch = -1
        self.reset_to: int | None = None
        """The start (EARLIEST, LATEST, a time), which the server has to resolve."""
        self.is_paused = False
        self.not_before = 0.0
        self.buffer: deque[FetchedBatches] = deque()
        self.buffered_bytes = 0
        self.high_watermark = self.stable_end = self.log_start = NO_OFFSET

    def release(self) -> None:
        """Release what is decompressed."""
        if self.buffer:
            self.buffer[0].release()

    def move_to(self, offset: int) -> None:
        """Go on at an offset; what was fetched ahead is dropped, unless it begins in there."""
        self.reset_to = None
        if self.buffer and NO_OFFSET < self.position <= offset < self.fetch_at:
            self.position = self.consumed = offset
            return
        self.position = self.consumed = self.fetch_at = offset
        self.clear_buffer()

    def reset_position(self, where: int | None) -> None:
        """Resolve the start at the server (None: the committed offset); nothing is read before."""
        self.position = self.consumed = self.fetch_at = NO_OFFSET
        self.clear_buffer()
        self.reset_to = where

    def drop_fetched(self) -> None:
        """Forget what was fetched ahead: it will be fetched again."""
        self.fetch_at = self.position
        self.clear_buffer()

    def clear_buffer(self) -> None:
        """Forget what was fetched ahead."""
        self.buffer.clear()
        self.buffered_bytes = 0

    def add_fetched(self, fetched: FetchedBatches) -> None:
        """Keep what was fetched for later."""
        self.buffer.append(fetched)
        self.buffered_bytes += fetched.size
        self.fetch_at = fetched.end

    def take_messages(
        self, limit: int, decompressed_max: int = DECOMPRESSED_LIMIT
    ) -> list[Message]:
        """Messages for the application, which is behind them then.

        BatchTooLarge where the first batch decompresses to more than `decompressed_max` bytes.
        """
        taken: list[Message] = []
        while self.buffer and len(taken) < limit:
            fetched = self.buffer[0]
            fetched.decompressed_max = decompressed_max
            try:
                some, self.position, more = fetched.take_messages(self.position, limit - len(taken))
            except BadRecords:
                if taken:
                    break
                raise
            taken += some
            if fetched.epoch >= 0:
                self.epoch = fetched.epoch
            if not more:
                self.buffer.popleft()
                self.buffered_bytes -= fetched.size
        return taken
