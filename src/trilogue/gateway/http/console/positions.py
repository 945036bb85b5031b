"""Where readers are in partitions, how far behind, and where a reset moves them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.console import remote_partitions
from trilogue.gateway.http.console.messages import parse_time
from trilogue.gateway.http.console.remote_partitions import find_remote_offsets
from trilogue.gateway.http.console.request import ConsoleRequest, parse_number
from trilogue.gateway.http.request_limits import HttpError
from trilogue.gateway.kafka.offsets.list_offsets import find_timestamp

EARLIEST, LATEST, AT_TIME, AT_OFFSET = "earliest", "latest", "time", "offset"
TARGETS: Final = (EARLIEST, LATEST, AT_TIME, AT_OFFSET)
ROWS_MAX: Final = 1_000  # partitions on one page

Places = Mapping[int, tuple[Topic, int]]  # topic and number, by partition id


class PositionRow(msgspec.Struct, frozen=True):
    """The position of a reader in one partition; `end` and `lag` are -1 on another node."""

    topic: str
    number: int
    offset: int
    end: int
    lag: int
    reader: str = ""
    detail: str = ""
    owner: int = -1  # the node that serves the partition, where it is another one


def measure_lag(partition: Partition, offset: int) -> int:
    """Return how many offsets of a partition lie behind an offset; -1 on another node."""
    if partition.is_remote:
        return -1
    plog = partition.log
    return max(0, plog.high_watermark - max(offset, plog.start_offset))


def describe_position(
    request: ConsoleRequest,
    topic: Topic,
    number: int,
    offset: int,
    *,
    reader: str = "",
    detail: str = "",
) -> PositionRow:
    """Return the row of one position."""
    partition = topic.partitions[number]
    end = -1 if partition.is_remote else partition.log.high_watermark
    owner = -1
    if partition.is_remote:
        owner = request.broker.cluster.ownership.partition_owner(partition.partition_id)
    lag = measure_lag(partition, offset)
    return PositionRow(str(topic.name), number, offset, end, lag, reader, detail, owner)


async def add_remote_ends(
    request: ConsoleRequest, rows: list[PositionRow], rows_max: int = ROWS_MAX
) -> list[PositionRow]:
    """Return the rows with the ends and the lag of other nodes' partitions; HttpError 503.

    Those behind the first `rows_max` rows keep theirs.
    """
    places = [
        (request.find_topic(row.topic, Operation.DESCRIBE), row.number)
        for row in rows[:rows_max]
        if row.end < 0
    ]
    ends = await find_remote_offsets(request, places, remote_partitions.LATEST)

    def add(row: PositionRow) -> PositionRow:
        end = ends.get((row.topic, row.number), -1)
        if end < 0:
            return row
        return msgspec.structs.replace(row, end=end, lag=max(0, end - row.offset))

    return [add(row) for row in rows]


def sum_lag(rows: list[PositionRow]) -> int:
    """Return the lag of all rows whose partitions are on this node."""
    return sum(max(0, row.lag) for row in rows)


def describe_progress(request: ConsoleRequest, rows: list[PositionRow]) -> dict[str, Any]:
    """Return the figures of a reader: its lag, and the sum of its offsets."""
    return {
        "at_ms": request.gateway.now_ms(),
        "counters": {"offset": sum(row.offset for row in rows)},
        "gauges": {"lag": sum_lag(rows)},
    }


async def find_reset_offset(request: ConsoleRequest, partition: Partition) -> int:
    """Return where the form's reset moves a position in a partition; raises HttpError 400."""
    fields, plog = request.fields, partition.log
    target = fields.get("to", "")
    if target == EARLIEST:
        return plog.start_offset
    if target == LATEST:
        return plog.high_watermark
    if target == AT_OFFSET:
        offset = _parse_offset(fields.get("at", "").strip())
        return min(max(offset, plog.start_offset), plog.high_watermark)
    if target == AT_TIME:

        async def in_executor(work: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(request.gateway.executor, work)

        found = await find_timestamp(plog, parse_time(fields.get("at", "").strip()), in_executor)
        return plog.high_watermark if found.offset < 0 else found.offset
    raise HttpError(400, f"a reset goes to one of {', '.join(TARGETS)}")


async def find_reset_offsets(request: ConsoleRequest, topic: Topic) -> list[tuple[Partition, int]]:
    """Return where the form's reset moves the partition that it names, or all of the topic.

    Those of other nodes are asked for; HttpError 503 where one does not answer.
    """
    chosen = _parse_partition(request)
    numbers = range(len(topic.partitions)) if chosen < 0 else [chosen]
    partitions = {number: topic.partition(number) for number in numbers}
    moves = [
        (each, await find_reset_offset(request, each))
        for each in partitions.values()
        if not each.is_remote
    ]
    places = [(topic, number) for number, each in partitions.items() if each.is_remote]
    if not places:
        return moves
    offsets = await _find_remote_targets(request, places)
    return moves + [(topic.partitions[number], offset) for (_, number), offset in offsets.items()]


async def _find_remote_targets(
    request: ConsoleRequest, places: list[remote_partitions.Place]
) -> dict[tuple[str, int], int]:
    target, at = request.fields.get("to", ""), request.fields.get("at", "").strip()
    if target not in TARGETS:
        raise HttpError(400, f"a reset goes to one of {', '.join(TARGETS)}")
    if target == EARLIEST:
        return await find_remote_offsets(request, places, remote_partitions.EARLIEST)
    ends = await find_remote_offsets(request, places, remote_partitions.LATEST)
    if target == AT_TIME:
        found = await find_remote_offsets(request, places, parse_time(at))
        return {place: found[place] if found[place] >= 0 else ends[place] for place in ends}
    if target == AT_OFFSET:
        starts = await find_remote_offsets(request, places, remote_partitions.EARLIEST)
        offset = _parse_offset(at)
        return {place: min(max(offset, starts[place]), ends[place]) for place in ends}
    return ends


def _parse_offset(text: str) -> int:
    offset = parse_number("at", text, -1)
    if offset < 0:
        raise HttpError(400, "the offset is missing")
    return offset


def choose_partitions(request: ConsoleRequest, topic: Topic) -> list[Partition]:
    """Return the partition that the form names, or all of them on this node."""
    chosen = _parse_partition(request)
    if chosen >= 0:
        return [request.find_partition(topic, chosen)]
    return [each for each in topic.partitions if not each.is_remote]


def _parse_partition(request: ConsoleRequest) -> int:
    """Return the number of the partition that the form names; -1 for all."""
    return parse_number("partition", request.fields.get("partition", "").strip(), -1)
