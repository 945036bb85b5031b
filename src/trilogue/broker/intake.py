"""What a topic's settings ask to be done with a batch before it is appended.

For most topics nothing: a batch is checked by its header and checksum and stored as it came. But

- what comes as a message set (Produce v0-v2) is stored as a record batch;
- `compression.type` may name the codec that batches are stored in;
- `message.timestamp.before.max.ms` and `.after.max.ms` bound the times of messages;
- in a compacted topic each message needs a key.

All of these look at every message, decompressed. `prepare` does them in one go and touches nothing
but its arguments, so it may run in a thread; what it gives is for `Partition.append`. Rules and
their order are those of Kafka's LogValidator, as a real 3.9.1 showed them.
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
from trilogue.broker.setting import INT64_MAX
from trilogue.broker.settings import TopicSettings
from trilogue.entry import entry as entries
from trilogue.entry.compression import Buffer
from trilogue.entry.entry import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC_AT,
    NO_TIMESTAMP,
    CorruptEntry,
    EntryError,
    EntryHeader,
)
from trilogue.entry.kafka_batch import (
    DECOMPRESSED_LIMIT,
    check_produced,
    read_header,
    repack,
    unpack_records,
)
from trilogue.entry.kafka_legacy import is_message_set, upgrade
from trilogue.entry.walk import RecordWalker

MESSAGES_AT_ONCE: Final = 1_000
TOLD_MAX: Final = 100  # messages of a batch that an answer names
_LENGTH_AT: Final = 8


class Prepared(NamedTuple):
    """A batch that may be appended as it is, and its header."""

    records: memoryview
    header: EntryHeader


def wants(settings: TopicSettings) -> bool:
    """Whether every batch for a topic with these settings has to be prepared."""
    return settings.compression is not None or _looks(settings)


def _looks(settings: TopicSettings) -> bool:
    """Whether its messages have to be looked at."""
    return settings.compacts or _limits_times(settings)


def _limits_times(settings: TopicSettings) -> bool:
    if settings.log_append_time:  # the broker's time is right whatever they say
        return False
    return min(settings.timestamp_before_max_ms, settings.timestamp_after_max_ms) < INT64_MAX


def prepare(
    records: memoryview,
    settings: TopicSettings,
    *,
    now_ms: int,
    is_old: bool = False,
    limit: int = DECOMPRESSED_LIMIT,
) -> Prepared:
    """Make what a topic takes of what a producer sent, or refuse it with a BrokerError.

    `is_old`: a message set may be sent. Of more than `limit` bytes, decompressed, nothing is made:
    `TooLarge`.
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
        if _looks(settings):
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
        raise refusal(error, records, is_old=is_old) from error
    if len(batch) > settings.message_size_max:
        raise _too_large(len(batch), settings)
    return Prepared(memoryview(batch), header)


def _too_large(size: int, settings: TopicSettings) -> TooLarge:
    return TooLarge(f"{size} bytes, at most {settings.message_size_max} are accepted")


def _upgraded(
    records: memoryview, settings: TopicSettings, limit: int
) -> tuple[bytes, EntryHeader]:
    """Make one batch of a message set, in the codec that the topic wants."""
    made = upgrade(
        records,
        size_max=settings.message_size_max,
        codec=settings.compression,
        level=settings.compression_level,
        limit=limit,
    )
    if made.claims_append_time if settings.log_append_time else made.claims_for_untimed:
        raise InvalidTimestamp("a producer may not say that its times are the broker's")
    return made.batch, read_header(made.batch)


def _check_messages(
    walker: RecordWalker, settings: TopicSettings, header: EntryHeader, now_ms: int
) -> None:
    """Look at the key and the time of each message, where the topic asks for it.

    Refuses with the first messages that the topic does not take, of which each counts once.
    """
    keyed, timed = settings.compacts, _limits_times(settings)
    earliest = now_ms - settings.timestamp_before_max_ms
    latest = now_ms + settings.timestamp_after_max_ms
    refused: list[tuple[int, str]] = []
    times_are_wrong = False
    try:
        while found := walker.read_keys(MESSAGES_AT_ONCE):
            for offset, timestamp, key, _ in found:
                if keyed and key is None:
                    why = "has no key, and the topic is compacted"
                elif timed and not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
                    why = f"has time {timestamp}, from {earliest} to {latest} are taken"
                    times_are_wrong = True
                else:
                    continue
                at = offset - header.base_offset
                if len(refused) < TOLD_MAX:
                    refused.append((at, f"message {at} {why}"))
    except CorruptEntry as error:  # its checksum is right: it was made like that
        raise InvalidRecord(f"each message is looked at here, and: {error}") from error
    if refused:
        kind = InvalidTimestamp if times_are_wrong else InvalidRecord
        problem = kind("; ".join(why for _, why in refused[:3]))
        problem.messages = tuple(refused)
        raise problem


def check_time(header: EntryHeader, settings: TopicSettings, now_ms: int) -> None:
    """Look at the times in the header of another protocol's entry, where the topic limits them."""
    if not _limits_times(settings):
        return
    earliest = now_ms - settings.timestamp_before_max_ms
    latest = now_ms + settings.timestamp_after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            raise InvalidTimestamp(f"time {timestamp}, from {earliest} to {latest} are taken")


def refusal(error: EntryError, records: memoryview, *, is_old: bool = False) -> BrokerError:
    """What is cut was cut by its sender: unlike a bad checksum, no second try can help."""
    smallest = MAGIC_AT + 1 if is_old else HEADER_SIZE
    if isinstance(error, entries.CorruptEntry) and _is_whole(records, smallest):
        return CorruptRecord(str(error))
    if isinstance(error, entries.UnsupportedCompression):
        return UnsupportedCompression(str(error))
    if isinstance(error, entries.EntryTooLarge):
        return TooLarge(str(error))
    return InvalidRecord(str(error))


def _is_whole(records: memoryview, smallest: int) -> bool:
    """Whether the first batch or message that there should be is there."""
    if len(records) < smallest:
        return False
    length = int.from_bytes(records[_LENGTH_AT:LENGTH_PREFIX], "big", signed=True)
    return LENGTH_PREFIX + length <= len(records)
