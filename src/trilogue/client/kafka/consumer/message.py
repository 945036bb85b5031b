"""Messages, and the record batches of a fetch that they are decoded from."""

from __future__ import annotations

from typing import Final, NamedTuple

from trilogue.client.errors import ClientError
from trilogue.client.kafka.model import READ_COMMITTED, Partition
from trilogue.entry.control import Outcome, read_marker
from trilogue.entry.entry import EntryError, EntryTooLarge, Record
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT, check_crc, walk_records
from trilogue.entry.walk import RecordWalker, read_header, walk_headers

_new = tuple.__new__
AT_ONCE: Final = 500
"""Messages that are made of a batch's bytes at a time."""


class Message(NamedTuple):
    """A message and its place in the log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """In ms; -1 where it has none."""
    key: bytes | None
    value: bytes | None
    """None is a tombstone."""
    headers: tuple[tuple[str, bytes | None], ...]


class BadRecords(ClientError):
    """Records from `offset` to `last` cannot be decoded; `seek` past them to go on."""

    def __init__(self, partition: Partition, offset: int, why: str, last: int = -1) -> None:
        super().__init__(f"{partition.topic}-{partition.number} at {offset}: {why}")
        self.partition = partition
        self.offset = offset
        self.last = max(offset, last)


class BatchTooLarge(BadRecords):
    """The next batch decompresses to more than a poll may decompress now."""


class FetchedBatches:
    """The batches of one partition in one fetch response, decoded on demand.

    Markers are passed over, and for who reads committed data only, what was aborted: records of a
    producer from the first offset of its aborted transaction to the marker that ends it.
    """

    __slots__ = (
        "_aborted", "_batches", "_check", "_isolation", "_next_batch", "_partition",
        "_producers", "_view", "_walker", "decompressed_max", "end", "epoch", "size",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        records: memoryview,
        aborted: list[tuple[int, int]],
        isolation: int,
        *,
        check: bool,
    ) -> None:
        self._partition = partition
        self._view = records
        try:
            self._batches = walk_headers(records, cut_is_end=True)
        except EntryError as problem:
            raise BadRecords(partition, -1, str(problem)) from problem
        self._aborted = sorted((first, producer) for producer, first in aborted)
        self._producers: set[int] = set()
        self._isolation = isolation
        self._check = check
        self._next_batch = 0
        self._walker: RecordWalker | None = None
        self.decompressed_max = DECOMPRESSED_LIMIT
        """Bytes that a batch may decompress to."""
        self.size = len(records)
        self.epoch = -1
        """The leader's epoch of the batch that messages come from."""
        last = self._batches[-1] if self._batches else None
        self.end = last[2] + last[3] + 1 if last else -1
        """The offset behind all of it; -1 where there is nothing whole."""

    def take_messages(self, position: int, limit: int) -> tuple[list[Message], int, bool]:
        """Messages from a position on, where to go on, and whether there may be more.

        BadRecords where the first of them cannot be read: each time, until the position is past it.
        """
        topic, number = self._partition
        taken: list[Message] = []
        while len(taken) < limit:
            try:
                records = self._records(position, limit - len(taken))
            except BadRecords:
                if taken:
                    return taken, position, True
                raise
            if records is None:
                return taken, max(position, self.end), False
            for record in records:
                offset, timestamp, key, value, headers, _ = record
                if offset >= position:
                    taken.append(
                        _new(Message, (topic, number, offset, timestamp, key, value, headers))
                    )
            if taken:
                position = taken[-1].offset + 1
        return taken, position, True

    def release(self) -> None:
        """Release the batch that messages come from; what is left of it is decompressed again."""
        if self._walker is not None:
            self._walker = None
            self._next_batch -= 1

    def _records(self, position: int, limit: int) -> list[Record] | None:
        """Some of the next records; None at the end."""
        while True:
            if self._walker is not None:
                try:
                    records = self._walker.read_records(min(limit, AT_ONCE))
                except EntryError as problem:
                    self._walker = None
                    self._next_batch -= 1
                    _, _, base, last_delta = self._batches[self._next_batch][:4]
                    raise self._bad_records(position, problem, base + last_delta) from problem
                if records:
                    return records
                self._walker = None
            if self._next_batch >= len(self._batches):
                return None
            at, length, base, last_delta = self._batches[self._next_batch][:4]
            if base + last_delta >= position:
                try:
                    self._walker = self._opened(self._view[at : at + length])
                except EntryError as problem:
                    raise self._bad_records(base, problem, base + last_delta) from problem
            self._next_batch += 1

    def _bad_records(self, offset: int, problem: EntryError, last: int) -> BadRecords:
        is_bounded = self.decompressed_max < DECOMPRESSED_LIMIT
        is_large = is_bounded and isinstance(problem, EntryTooLarge)
        kind = BatchTooLarge if is_large else BadRecords
        return kind(self._partition, offset, str(problem), last)

    def _opened(self, batch: memoryview) -> RecordWalker | None:
        """What steps through a batch; None where it has nothing for the application."""
        header = check_crc(batch) if self._check else read_header(batch)
        while self._aborted and self._aborted[0][0] <= header.last_offset:
            self._producers.add(self._aborted.pop(0)[1])
        if header.is_control:
            marker = read_marker(batch, header) if header.is_transactional else None
            if marker is not None and marker.outcome is Outcome.ABORT:
                self._producers.discard(header.producer_id)
            return None
        if (
            self._isolation == READ_COMMITTED
            and header.is_transactional
            and header.producer_id in self._producers
        ):
            return None
        self.epoch = header.leader_epoch
        return walk_records(batch, limit=self.decompressed_max, header=header)
