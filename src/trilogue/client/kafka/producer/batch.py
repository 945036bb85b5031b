"""A batch of the producer: filled, encoded, sent, retried, completed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, cast

from trilogue.client.message_bytes import MessageBytes, message_bytes
from trilogue.entry.entry import Codec, Record
from trilogue.entry.header import HEADER_SIZE
from trilogue.entry.kafka.record_batch import iter_records, seal
from trilogue.entry.pack import RecordPacker

log = logging.getLogger("trilogue.client.kafka")
RECORD_OVERHEAD: Final = 21
"""Most bytes that a record takes beside key, value and headers: lengths, deltas, attributes."""
HEADER_OVERHEAD: Final = 10
NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
UNKNOWN_OFFSET: Final = -1
Headers = Sequence[tuple[bytes, bytes | None]]


class Sent(NamedTuple):
    """Where a message is stored."""

    topic: str
    partition: int
    offset: int
    """-1 where the server does not report it: acks=0, or a duplicate."""
    timestamp: int
    """In ms; the server's, where the topic wants its time."""


class ProducerIdentity(NamedTuple):
    """The producer id and epoch of an idempotent producer."""

    producer_id: int
    epoch: int


NO_IDENTITY: Final = ProducerIdentity(NO_PRODUCER, -1)


class RecordDraft(NamedTuple):
    """A record that is in no batch yet."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    size: int
    """The result of `record_size`."""


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most that a record can take in a batch."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD + len(name) + len(content or b"")
    return size


class BulkDelivery:
    """The outcome of messages that were submitted together; one future for all of them."""

    __slots__ = ("_left", "failures", "future", "stored")

    def __init__(self, count: int, future: asyncio.Future[BulkDelivery]) -> None:
        self._left = count
        self.future = future
        """Done, with this object as its result, when the fate of every message is known."""
        self.stored = 0
        """How many messages are stored (with acks=0: written to the connection)."""
        self.failures: dict[int, Exception] = {}
        """The error of each message that is not stored, by its index among the messages."""
        if not count:
            future.set_result(self)

    def complete_one(self) -> None:
        """Count one message that is stored."""
        self.stored += 1
        self._count_down()

    def fail_one(self, index: int, problem: Exception) -> None:
        """Keep the error of one message."""
        self.failures[index] = problem
        self._count_down()

    def _count_down(self) -> None:
        self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(self)


Completion = asyncio.Future[Sent] | tuple[BulkDelivery, int]
"""Where the outcome of a record goes: its own future, or its index in a bulk delivery."""


class ProducerBatch:
    """Records for one partition, and the completion of each record."""

    __slots__ = (
        "_base_timestamp", "_completions", "_max_timestamp", "_packer", "_settled", "_times",
        "attempts", "data", "due_at", "expires_at", "finished", "flags", "identity", "not_before",
        "partition", "place",
        "problem", "sequence", "size", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, due_at: float, expires_at: float, flags: int = 0
    ) -> None:
        """`flags`: attribute bits of the entry."""
        self.topic = topic
        self.partition = partition
        self.flags = flags
        self.due_at = due_at
        """When it has lingered enough (loop time)."""
        self.expires_at = expires_at
        self.not_before = 0.0
        """When it may be sent again."""
        self.attempts = 0
        self.problem: BaseException | None = None
        """Why it was not stored the last time."""
        self.size = HEADER_SIZE
        """How large it may be before compression."""
        self.data: bytes | None = None
        """As it is sent; None while it takes records."""
        self.identity = NO_IDENTITY
        self.sequence = NO_SEQUENCE
        self.place: tuple[int, ...] = ()
        """Its place among the batches of its partition."""
        self.finished: asyncio.Future[None] | None = None
        self._packer = RecordPacker()
        self._settled = False
        self._base_timestamp = self._max_timestamp = -1
        self._completions: list[Completion] = []
        self._times: list[int] = []

    @property
    def count(self) -> int:
        """How many records it holds."""
        return len(self._completions)

    @property
    def is_settled(self) -> bool:
        """Whether its fate is known."""
        return self._settled

    def append(self, draft: RecordDraft, completion: Completion) -> None:
        """Add a record."""
        key, value, headers, timestamp, size = draft
        count = len(self._completions)
        if not count:
            self._base_timestamp = timestamp
        self._packer.pack(count, timestamp - self._base_timestamp, key, value, headers)
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._completions.append(completion)
        self._times.append(timestamp)
        self.size += size

    def seal(self, codec: int) -> None:
        """Make the bytes that are sent, under the identity and sequence it has now."""
        if self.data is None:
            records: bytes | memoryview = self._packer.packed()
            flags = self.flags
        else:  # compressed once is enough
            records, flags = memoryview(self.data)[HEADER_SIZE:], self.flags | codec
            codec = Codec.NONE
        self.data = seal(
            records,
            record_count=self.count,
            last_offset_delta=self.count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            codec=codec,
            flags=flags,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
        )
        self._packer.clear()

    def split(self) -> list[ProducerBatch]:
        """Its records in two batches: the server finds it too large."""
        assert self.data is not None
        records = list(iter_records(self.data))
        half = len(records) // 2
        made = []
        for which, some in enumerate((range(half), range(half, len(records)))):
            batch = ProducerBatch(
                self.topic, self.partition, self.due_at, self.expires_at, self.flags
            )
            batch.place = (*self.place, which)
            for at in some:
                batch._take(records[at], self._times[at], self._completions[at])
            made.append(batch)
        self._completions, self._times = [], []
        self._finish()
        return made

    def _take(self, record: Record, timestamp: int, completion: Completion) -> None:
        headers = [(name.encode(), content) for name, content in record.headers]
        size = record_size(record.key, record.value, headers)
        self.append(RecordDraft(record.key, record.value, headers, timestamp, size), completion)

    def succeed(self, base_offset: int, append_time: int) -> None:
        """It is stored from this offset on (-1: somewhere)."""
        topic, partition, times = self.topic, self.partition, self._times
        step = 1 if base_offset >= 0 else 0
        for at, completion in enumerate(self._completions):
            if type(completion) is tuple:
                if not self._settled:
                    completion[0].complete_one()
                continue
            future = cast("asyncio.Future[Sent]", completion)
            if not future.done():
                time = times[at] if append_time < 0 else append_time
                future.set_result(Sent(topic, partition, base_offset + at * step, time))
        self._finish()

    def fail(self, problem: Exception) -> None:
        """Fail the messages: the batch is not stored, or the client does not know."""
        if self._settled:  # its delivery time-out was over before
            return
        log.warning(
            "kafka.not-stored topic=%s partition=%d messages=%d problem=%s",
            self.topic, self.partition, self.count, problem,
        )  # fmt: skip
        for completion in self._completions:
            if type(completion) is tuple:
                delivery, index = completion
                delivery.fail_one(index, problem)
                continue
            future = cast("asyncio.Future[Sent]", completion)
            if not future.done():
                future.set_exception(problem)
                future.exception()  # logged once above; not every future is awaited
        self._finish()

    def wait(self) -> asyncio.Future[None]:
        """A future that is done when its fate is known."""
        if self.finished is None:
            self.finished = asyncio.get_running_loop().create_future()
            if self._settled:
                self.finished.set_result(None)
        return self.finished

    def _finish(self) -> None:
        self._settled = True
        if self.finished is not None and not self.finished.done():
            self.finished.set_result(None)


def encode_headers(headers: Iterable[tuple[str, MessageBytes | None]]) -> Headers:
    """Headers as they stand in a record; InvalidOptionType for a value that is no bytes or text."""
    return [
        (
            message_bytes("name of a header", name),
            content
            if content is None or type(content) is bytes
            else message_bytes(f"header {name}", content),
        )
        for name, content in headers
    ]
