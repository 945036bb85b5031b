"""Validation and conversion of a batch before it is appended, as the topic's settings require.

Most topics need none: a batch is checked by its header and checksum and stored as it came. But

- what comes as a message set (Produce v0-v2) is stored as a record batch;
- `compression.type` may name the codec that batches are stored in;
- `message.timestamp.before.max.ms` and `.after.max.ms` bound the timestamps of messages;
- in a compacted topic each message needs a key.

All of these look at every message, decompressed. `validate_batch` does them in one pass and uses
nothing but its arguments, so it may run in a thread; its result is for `Partition.append`. Rules
and their order are those of Kafka's LogValidator, compared with a real 3.9.1.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trilogue.broker.errors import (
    BrokerError,
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    TooLarge,
    UnsupportedCompression,
)
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.settings.values import INT64_MAX
from trilogue.entry import entry as entries
from trilogue.entry.compression import Buffer
from trilogue.entry.entry import CODEC_MASK, NO_TIMESTAMP, CorruptEntry, EntryError, EntryHeader
from trilogue.entry.header import HEADER_SIZE, LENGTH_PREFIX, MAGIC_AT
from trilogue.entry.kafka.message_set_conversion import is_message_set, upgrade
from trilogue.entry.kafka.record_batch import (
    DECOMPRESSED_LIMIT,
    check_produced,
    read_header,
    repack,
    unpack_records,
)
from trilogue.entry.walk import RecordWalker

MESSAGES_PER_READ: Final = 1_000
REPORTED_MAX: Final = 100  # messages of a batch that an error lists
_LENGTH_AT: Final = 8


class ValidatedBatch(NamedTuple):
    """A batch that can be appended as it is, and its header."""

    records: memoryview
    header: EntryHeader


def needs_validation(settings: TopicSettings) -> bool:
    """Whether every batch for a topic with these settings has to be validated."""
    return settings.compression is not None or _reads_messages(settings)


def _reads_messages(settings: TopicSettings) -> bool:
    """Whether the messages of a batch have to be read."""
    return settings.compacts or _limits_times(settings)


def _limits_times(settings: TopicSettings) -> bool:
    if settings.log_append_time:  # the broker's timestamp replaces theirs
        return False
    return min(settings.timestamp_before_max_ms, settings.timestamp_after_max_ms) < INT64_MAX


def validate_batch(
    records: memoryview,
    settings: TopicSettings,
    *,
    now_ms: int,
    is_old: bool = False,
    limit: int = DECOMPRESSED_LIMIT,
) -> ValidatedBatch:
    """Return the batch as the topic stores it, or refuse it with a BrokerError.

    `is_old`: a message set is accepted. A batch of more than `limit` bytes, decompressed, is
    refused with TooLarge.
    """
    batch: Buffer = records
    try:
        if is_old and is_message_set(records):
            batch, header = _upgraded(records, settings, limit)
        else:
            if len(records) > settings.message_size_max:
                raise _too_large(len(records), settings)
            header = check_produced(records)
        unpacked: memoryview | None = None
        if _reads_messages(settings):
            unpacked = unpack_records(batch, header, limit=limit)
            _check_messages(RecordWalker(header, unpacked), settings, header, now_ms)
        codec = settings.compression
        if codec is not None and codec != header.attributes & CODEC_MASK:
            if unpacked is None:
                unpacked = unpack_records(batch, header, limit=limit)
            level = settings.compression_level
            batch = repack(batch, codec=codec, level=level, header=header, records=unpacked)
            header = read_header(batch)
    except EntryError as error:
        raise convert_entry_error(error, records, is_old=is_old) from error
    if len(batch) > settings.message_size_max:
        raise _too_large(len(batch), settings)
    return ValidatedBatch(memoryview(batch), header)


def _too_large(size: int, settings: TopicSettings) -> TooLarge:
    return TooLarge(f"{size} bytes, at most {settings.message_size_max} are accepted")


def _upgraded(
    records: memoryview, settings: TopicSettings, limit: int
) -> tuple[bytes, EntryHeader]:
    """Convert a message set to one batch, in the codec of the topic."""
    made = upgrade(
        records,
        size_max=settings.message_size_max,
        codec=settings.compression,
        level=settings.compression_level,
        limit=limit,
    )
    if made.claims_append_time if settings.log_append_time else made.claims_for_untimed:
        raise InvalidTimestamp("a producer may not set the timestamp type LogAppendTime")
    return made.batch, read_header(made.batch)


def _check_messages(
    walker: RecordWalker, settings: TopicSettings, header: EntryHeader, now_ms: int
) -> None:
    """Check the key and the timestamp of each message, as the topic requires.

    The error lists the first messages that are refused, each once.
    """
    keyed, timed = settings.compacts, _limits_times(settings)
    earliest = now_ms - settings.timestamp_before_max_ms
    latest = now_ms + settings.timestamp_after_max_ms
    refused: list[tuple[int, str]] = []
    times_are_wrong = False
    try:
        while found := walker.read_keys(MESSAGES_PER_READ):
            for offset, timestamp, key, _ in found:
                if keyed and key is None:
                    why = "has no key, and the topic is compacted"
                elif timed and not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
                    why = f"has time {timestamp}, from {earliest} to {latest} are taken"
                    times_are_wrong = True
                else:
                    continue
                at = offset - header.base_offset
                if len(refused) < REPORTED_MAX:
                    refused.append((at, f"message {at} {why}"))
    except CorruptEntry as error:  # its checksum is right: it was made like that
        raise InvalidRecord(f"each message is looked at here, and: {error}") from error
    if refused:
        kind = InvalidTimestamp if times_are_wrong else InvalidRecord
        problem = kind("; ".join(why for _, why in refused[:3]))
        problem.messages = tuple(refused)
        raise problem


def check_time(header: EntryHeader, settings: TopicSettings, now_ms: int) -> None:
    """Check the timestamps in the header of another protocol's entry."""
    if not _limits_times(settings):
        return
    earliest = now_ms - settings.timestamp_before_max_ms
    latest = now_ms + settings.timestamp_after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            raise InvalidTimestamp(f"time {timestamp}, from {earliest} to {latest} are taken")


def convert_entry_error(
    error: EntryError, records: memoryview, *, is_old: bool = False
) -> BrokerError:
    """Return the broker's error for an unreadable batch.

    A batch that is cut was cut by its producer: unlike after a wrong checksum, a retry cannot help.
    """
    smallest = MAGIC_AT + 1 if is_old else HEADER_SIZE
    if isinstance(error, entries.CorruptEntry) and _is_whole(records, smallest):
        return CorruptRecord(str(error))
    if isinstance(error, entries.UnsupportedCompression):
        return UnsupportedCompression(str(error))
    if isinstance(error, entries.EntryTooLarge):
        return TooLarge(str(error))
    return InvalidRecord(str(error))


def _is_whole(records: memoryview, smallest: int) -> bool:
    """Whether the first batch or message is complete."""
    if len(records) < smallest:
        return False
    length = int.from_bytes(records[_LENGTH_AT:LENGTH_PREFIX], "big", signed=True)
    return LENGTH_PREFIX + length <= len(records)
