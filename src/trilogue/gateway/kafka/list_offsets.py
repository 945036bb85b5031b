"""ListOffsets v0-v11: the first offset, the last, the one of a time.

v1 one offset with its time (v0: a list) · v2 isolation: to readers of committed data the log ends
at the last stable offset · v4 leader epochs (74, 75) · v6 flexible · v7 -3 · v8 -4 · v9 -5 · v10 a
timeout for tiers (there are none) · v11 -6.

    -1 latest: the high watermark      -2 earliest      -3 the message with the largest time
    -4 earliest local: as -2           -5 last tiered, -6 earliest to be tiered: none (-1)
    t >= 0 the first message with that time or a later one, -1 when there is none

A special time is served from the version on that defines it; before, and for other negative times,
the answer is 35; partitions named twice are refused (42). To find a time one looks into entries:
what lies in a file, or is large, is read and decompressed in the executor. What Pulsar clients
wrote is found by its entry's publish time, and is the entry's first offset, as a Pulsar client's
seek by time finds it. v0 asked by time gets the first offset, which is before any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from trilogue.broker.topic import Topic
from trilogue.entry.compression import Buffer
from trilogue.entry.entry import Format
from trilogue.entry.kafka_batch import first_record_at_or_after, read_header
from trilogue.gateway.kafka.by_topic import AT_ONCE, by_topic
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.turns import at_once_or_in_turns
from trilogue.log.partition_log import Cold, Hot, PartitionLog
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, LARGEST_TIME = -1, -2, -3
EARLIEST_LOCAL, LAST_TIERED, EARLIEST_PENDING = -4, -5, -6
SINCE = {
    LATEST: 0, EARLIEST: 0, LARGEST_TIME: 7, EARLIEST_LOCAL: 8, LAST_TIERED: 9, EARLIEST_PENDING: 11
}  # fmt: skip
READ_COMMITTED = 1
INLINE_BYTES = 16 << 10  # an entry up to this size is looked into on the loop
LOOKS_MAX = 100_000  # entries that promise a time and do not have it
NAMED_AT_ONCE = 5_000

EPOCH, EPOCH_AT = Struct(">i"), 12  # where a batch, and every entry, has it

T = TypeVar("T")


class Found(NamedTuple):
    """An offset, the time of its message and the owner's epoch it is of; -1 is none."""

    offset: int
    timestamp: int = -1
    epoch: int = -1


class Search(NamedTuple):
    """A time that has to be looked for."""

    result: ListOffsetsPartitionResponse
    log: PartitionLog
    wanted: int
    is_committed: bool


NONE = Found(-1)


def handle(
    call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Answer at once unless a time has to be looked for, or there is much to be looked at."""
    searches: list[Search] = []
    found = at_once_or_in_turns(_steps(call, request, searches))
    if isinstance(found, ListOffsetsResponse) and not searches:
        return found
    return _search(call, found, searches)


def _steps(
    call: Call, request: ListOffsetsRequest, searches: list[Search]
) -> Steps[ListOffsetsResponse]:
    """Look at all that is asked for, some partitions in a step."""
    is_committed = request.isolation_level == READ_COMMITTED
    twice = (yield from _named_twice(request)) if call.version else set()
    tell = partial(_topic, call, searches=searches, twice=twice, is_committed=is_committed)
    return ListOffsetsResponse(topics=(yield from by_topic(request.topics, tell)))


def _named_twice(request: ListOffsetsRequest) -> Steps[set[tuple[str, int]]]:
    """Which partitions a request asks for more than once."""
    named: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    seen = 0
    for topic in request.topics:
        for each in topic.partitions:
            key = topic.name, each.partition_index
            (twice if key in named else named).add(key)
            seen += 1
            if seen % NAMED_AT_ONCE == 0:
                yield
    return twice


def _topic(
    call: Call,
    asked: ListOffsetsTopic,
    *,
    searches: list[Search],
    twice: set[tuple[str, int]],
    is_committed: bool,
) -> Steps[ListOffsetsTopicResponse]:
    topic, code = call.find_topic(asked.name)
    answer = ListOffsetsTopicResponse(name=asked.name)
    for count, each in enumerate(asked.partitions, 1):
        result = ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
        answer.partitions.append(result)
        if (asked.name, each.partition_index) in twice:
            result.error_code = ErrorCode.INVALID_REQUEST
        elif topic is not None:
            try:
                search = _partition(call, topic, each, result, is_committed=is_committed)
                if search is not None:
                    searches.append(search)
            except EXPECTED as problem:
                result.error_code = code_of(problem)
        if count % AT_ONCE == 0:
            yield
    return answer


def _partition(
    call: Call,
    topic: Topic,
    asked: ListOffsetsPartition,
    result: ListOffsetsPartitionResponse,
    *,
    is_committed: bool,
) -> Search | None:
    """Fill in the result, or say what has to be looked for."""
    partition = topic.partition(asked.partition_index)
    partition.check_epoch(asked.current_leader_epoch)
    plog = partition.log
    wanted = asked.timestamp
    if call.version == 0:
        if wanted < EARLIEST:
            result.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            result.old_style_offsets = _old_style(plog, wanted)[: max(0, asked.max_num_offsets)]
    elif wanted >= 0 or wanted == LARGEST_TIME:
        if wanted < 0 and call.version < SINCE[wanted]:
            result.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            return Search(result, plog, wanted, is_committed)
    elif call.version < SINCE.get(wanted, 1 << 16):
        result.error_code = ErrorCode.UNSUPPORTED_VERSION
    elif wanted == LATEST:
        end = plog.stable_end if is_committed else plog.high_watermark
        _fill(result, Found(end, epoch=plog.owner_epoch))
    elif wanted in {EARLIEST, EARLIEST_LOCAL}:
        _fill(result, Found(plog.start_offset, epoch=plog.start_epoch))
    return None


def _old_style(plog: PartitionLog, wanted: int) -> list[int]:
    offsets = [plog.start_offset]
    if wanted == LATEST and plog.high_watermark > plog.start_offset:
        offsets.insert(0, plog.high_watermark)
    return offsets


def _fill(result: ListOffsetsPartitionResponse, found: Found) -> None:
    result.offset, result.timestamp, result.leader_epoch = found


# ---- by time


async def _search(
    call: Call,
    found: ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse],
    searches: list[Search],
) -> ListOffsetsResponse:
    response = found if isinstance(found, ListOffsetsResponse) else await found

    async def elsewhere(work: Callable[[], T]) -> T:
        return await call.door.loop.run_in_executor(call.door.executor, work)

    for count, (result, plog, wanted, is_committed) in enumerate(searches, 1):
        if count % AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            timestamp = plog.max_timestamp if wanted == LARGEST_TIME else wanted
            place = NONE if timestamp < 0 else await _find(plog, timestamp, elsewhere)
            if is_committed and place.offset >= plog.stable_end:
                place = NONE
            _fill(result, place)
        except (*EXPECTED, OSError) as problem:
            result.error_code = code_of(problem)
    return response


async def _find(
    plog: PartitionLog,
    timestamp: int,
    elsewhere: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]],
) -> Found:
    """Look into one entry after the other that may have the time, until one does."""
    offset = plog.start_offset
    for _ in range(LOOKS_MAX):
        place = plog.offset_for_time(timestamp, offset)
        if place is None:
            return NONE
        if isinstance(place, Cold):
            entry = await elsewhere(place.run)
            if not entry:
                offset = place.next_offset
                continue
        else:
            entry = b"".join(place.slices)
        look = partial(_look_into, entry, timestamp, offset)
        is_small = isinstance(place, Hot) and len(entry) <= INLINE_BYTES
        found = look() if is_small else await elsewhere(look)
        if found is not None:
            first, time_ms = found
            return Found(first, time_ms, epoch_of(entry))
        offset = read_header(entry).last_offset + 1
    return NONE


def epoch_of(entry: Buffer) -> int:
    """The epoch of the owner that gave an entry its offsets."""
    (epoch,) = EPOCH.unpack_from(entry, EPOCH_AT)
    return int(epoch)


def _look_into(entry: Buffer, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """Find the first message with this time or a later one in an entry.

    Entries of other protocols have one time, when they were published, for all that is in them.
    """
    header = read_header(entry)
    if header.format is Format.KAFKA:
        return first_record_at_or_after(entry, timestamp, from_offset)
    if header.max_timestamp < timestamp or header.last_offset < from_offset:
        return None
    return max(header.base_offset, from_offset), header.max_timestamp
