"""ListOffsets v0-v11: the first and last offset of a partition, and offsets by timestamp.

v1 one offset with its timestamp (v0: a list) · v2 isolation level: read_committed ends at the last
stable offset · v4 leader epochs (74, 75) · v6 flexible · v7 -3 · v8 -4 · v9 -5 · v10 a timeout for
tiered storage (there is none) · v11 -6.

    -1 latest: the high watermark      -2 earliest      -3 the record with the largest timestamp
    -4 earliest local: as -2           -5 last tiered, -6 earliest pending upload: none (-1)
    t >= 0 the first record with that timestamp or a later one, -1 if there is none

A special timestamp is served from the version that defines it; before, and for other negative ones,
the result is 35. A partition named twice is 42. A search by timestamp reads entries: those in a
file, or large ones, are read and decompressed in the executor. An entry of a Pulsar client is found
by its publish time and yields its first offset, like a Pulsar client's seek by time.

v0 answers descending offsets, as many as requested. Kafka lists its segments' first ones there;
here a timestamp yields the offset that v1 finds, or the high watermark, then the start of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from trilogue.broker.topics.topic import Topic
from trilogue.entry.compression import Buffer
from trilogue.entry.entry import Format
from trilogue.entry.kafka.record_batch import first_record_at_or_after, read_header
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, to_error_code
from trilogue.gateway.kafka.offsets.topic_results import PARTITIONS_PER_STEP, build_topic_results
from trilogue.gateway.steps import begin_steps, next_step
from trilogue.log.partition_log import PartitionLog, SegmentSlice, TailSlice
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.offsets.list_offsets import (
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
INLINE_BYTES = 16 << 10  # a larger entry is searched in the executor
# entries whose range includes the timestamp and that do not have it
ENTRIES_PER_SEARCH_MAX = 100_000
NAMES_PER_STEP = 5_000

EPOCH, EPOCH_AT = Struct(">i"), 12  # where an entry has its owner epoch

T = TypeVar("T")


class OffsetResult(NamedTuple):
    """An offset, the timestamp of its record and its leader epoch; -1 is none."""

    offset: int
    timestamp: int = -1
    epoch: int = -1


class TimestampSearch(NamedTuple):
    """A timestamp to search for."""

    result: ListOffsetsPartitionResponse
    log: PartitionLog
    wanted: int
    is_committed: bool
    old_style_max: int = -1  # v0: the number of offsets to list


NO_OFFSET = OffsetResult(-1)


def handle_list_offsets(
    context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Respond at once, unless a timestamp has to be searched or there are many partitions."""
    searches: list[TimestampSearch] = []
    found = begin_steps(_steps(context, request, searches))
    if isinstance(found, ListOffsetsResponse) and not searches:
        return found
    return _search(context, found, searches)


def _steps(
    context: RequestContext, request: ListOffsetsRequest, searches: list[TimestampSearch]
) -> Steps[ListOffsetsResponse]:
    """Process all partitions in steps."""
    is_committed = request.isolation_level == READ_COMMITTED
    twice = (yield from _named_twice(request)) if context.version else set()
    build = partial(
        _topic,
        context,
        searches=searches,
        twice=twice,
        is_committed=is_committed,
        is_follower=request.replica_id >= 0 and context.is_from_broker,
    )
    return ListOffsetsResponse(topics=(yield from build_topic_results(request.topics, build)))


def _named_twice(request: ListOffsetsRequest) -> Steps[set[tuple[str, int]]]:
    """Return the partitions that a request names more than once."""
    named: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    seen = 0
    for topic in request.topics:
        for each in topic.partitions:
            key = topic.name, each.partition_index
            (twice if key in named else named).add(key)
            seen += 1
            if seen % NAMES_PER_STEP == 0:
                yield
    return twice


def _topic(
    context: RequestContext,
    requested: ListOffsetsTopic,
    *,
    searches: list[TimestampSearch],
    twice: set[tuple[str, int]],
    is_committed: bool,
    is_follower: bool,
) -> Steps[ListOffsetsTopicResponse]:
    topic, code = context.find_topic_for_replica(requested.name, is_follower=is_follower)
    answer = ListOffsetsTopicResponse(name=requested.name)
    for count, each in enumerate(requested.partitions, 1):
        result = ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
        answer.partitions.append(result)
        if (requested.name, each.partition_index) in twice:
            result.error_code = ErrorCode.INVALID_REQUEST
        elif topic is not None:
            try:
                search = _partition(context, topic, each, result, is_committed=is_committed)
                if search is not None:
                    searches.append(search)
            except EXPECTED as problem:
                result.error_code = to_error_code(problem)
        if count % PARTITIONS_PER_STEP == 0:
            yield
    return answer


def _partition(
    context: RequestContext,
    topic: Topic,
    requested: ListOffsetsPartition,
    result: ListOffsetsPartitionResponse,
    *,
    is_committed: bool,
) -> TimestampSearch | None:
    """Fill in the result, or return the search that it needs."""
    partition = topic.partition(requested.partition_index)
    partition.check_epoch(requested.current_leader_epoch)
    plog = partition.log
    wanted = requested.timestamp
    if context.version == 0:
        most = max(0, requested.max_num_offsets)
        if wanted >= 0:
            return TimestampSearch(result, plog, wanted, is_committed, most)
        if wanted < EARLIEST:
            result.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            last = plog.high_watermark if wanted == LATEST else plog.start_offset
            result.old_style_offsets = _old_style(plog, last)[:most]
    elif wanted >= 0 or wanted == LARGEST_TIME:
        if wanted < 0 and context.version < SINCE[wanted]:
            result.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            return TimestampSearch(result, plog, wanted, is_committed)
    elif context.version < SINCE.get(wanted, 1 << 16):
        result.error_code = ErrorCode.UNSUPPORTED_VERSION
    elif wanted == LATEST:
        end = plog.stable_end if is_committed else plog.high_watermark
        _fill(result, OffsetResult(end, epoch=plog.owner_epoch))
    elif wanted in {EARLIEST, EARLIEST_LOCAL}:
        _fill(result, OffsetResult(plog.start_offset, epoch=plog.start_epoch))
    return None


def _old_style(plog: PartitionLog, last: int) -> list[int]:
    return [last, plog.start_offset] if last > plog.start_offset else [plog.start_offset]


def _fill(result: ListOffsetsPartitionResponse, found: OffsetResult) -> None:
    result.offset, result.timestamp, result.leader_epoch = found


# ---- by time


async def _search(
    context: RequestContext,
    found: ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse],
    searches: list[TimestampSearch],
) -> ListOffsetsResponse:
    response = found if isinstance(found, ListOffsetsResponse) else await found

    for count, (result, plog, wanted, is_committed, old_style_max) in enumerate(searches, 1):
        if count % PARTITIONS_PER_STEP == 0:
            await next_step()
        try:
            timestamp = plog.max_timestamp if wanted == LARGEST_TIME else wanted
            found_at = (
                NO_OFFSET
                if timestamp < 0
                else await find_timestamp(plog, timestamp, context.gateway.in_executor)
            )
            if is_committed and found_at.offset >= plog.stable_end:
                found_at = NO_OFFSET
            if old_style_max < 0:
                _fill(result, found_at)
            else:
                last = plog.high_watermark if found_at is NO_OFFSET else found_at.offset
                result.old_style_offsets = _old_style(plog, last)[:old_style_max]
        except (*EXPECTED, OSError) as problem:
            result.error_code = to_error_code(problem)
    return response


async def find_timestamp(
    plog: PartitionLog,
    timestamp: int,
    in_executor: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]],
) -> OffsetResult:
    """Search the entries that may have the timestamp, in order, until one does."""
    offset = plog.start_offset
    for _ in range(ENTRIES_PER_SEARCH_MAX):
        found_at = plog.offset_for_time(timestamp, offset)
        if found_at is None:
            return NO_OFFSET
        if isinstance(found_at, SegmentSlice):
            entry = await in_executor(found_at.run)
            if not entry:
                offset = found_at.next_offset
                continue
        else:
            entry = b"".join(found_at.slices)
        search_entry = partial(_search_entry, entry, timestamp, offset)
        is_small = isinstance(found_at, TailSlice) and len(entry) <= INLINE_BYTES
        found = search_entry() if is_small else await in_executor(search_entry)
        if found is not None:
            first, time_ms = found
            return OffsetResult(first, time_ms, read_epoch(entry))
        offset = read_header(entry).last_offset + 1
    return NO_OFFSET


def read_epoch(entry: Buffer) -> int:
    """Return the owner epoch of an entry."""
    (epoch,) = EPOCH.unpack_from(entry, EPOCH_AT)
    return int(epoch)


def _search_entry(entry: Buffer, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """Find the first record in an entry with this timestamp or a later one.

    An entry of another protocol has one timestamp, its publish time, for all of its messages.
    """
    header = read_header(entry)
    if header.format is Format.KAFKA:
        return first_record_at_or_after(entry, timestamp, from_offset)
    if header.max_timestamp < timestamp or header.last_offset < from_offset:
        return None
    return max(header.base_offset, from_offset), header.max_timestamp
