"""Resolves the options of a read into existing offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trilogue.client.kafka.model import EARLIEST, LATEST
from trilogue.spark.errors import DataLost, OptionError
from trilogue.spark.offsets import Offsets, Partition, wanted
from trilogue.spark.protocols.positions import format_position
from trilogue.spark.read_options import ReadOptions

if TYPE_CHECKING:
    from trilogue.spark.topic_lookup import TopicLookup


def starting(
    at: TopicLookup, options: ReadOptions, partitions: list[Partition], default: int
) -> Offsets:
    """Return where a new read starts in each partition."""
    if options.starting_ms is not None:
        times = wanted("startingOffsetsByTimestamp", options.starting_ms, partitions)
        found = at.at_times(times)
        late = sorted(key for key, offset in found.items() if offset < 0)
        if late and not options.latest_if_later:
            topic, number = late[0]
            raise OptionError(
                f"no record of {topic}-{number} is as late as {times[late[0]]} ms; "
                "startingOffsetsByTimestampStrategy=latest starts at the end there"
            )
        return at.resolve(found)  # -1, not found, also means latest
    bounds = default if options.starting is None else options.starting
    return _there(at, options, wanted("startingOffsets", bounds, partitions))


def ending(at: TopicLookup, options: ReadOptions, partitions: list[Partition]) -> Offsets:
    """Return where a batch ends in each partition."""
    if options.ending_ms is not None:
        times = wanted("endingOffsetsByTimestamp", options.ending_ms, partitions)
        return at.resolve(at.at_times(times))
    return _there(at, options, wanted("endingOffsets", options.ending, partitions))


def check_order(start: Offsets, end: Offsets) -> None:
    """Raise OptionError where a partition starts behind its end: one bound is a time, perhaps."""
    for key, last in sorted(end.items()):
        if start[key] > last:
            topic, number = key
            raise OptionError(
                f"{topic}-{number} starts at offset {start[key]}, which is behind its end at "
                f"offset {last}: options of the start and of the end, perhaps times, do not fit"
            )


def _there(at: TopicLookup, options: ReadOptions, requested: Offsets) -> Offsets:
    """Resolve earliest and latest, and check explicit offsets against the log."""
    explicit = [key for key, offset in requested.items() if offset >= 0]
    found = at.resolve(requested)
    first = at.resolve(dict.fromkeys(explicit, EARLIEST))
    last = at.resolve(dict.fromkeys(explicit, LATEST))
    for key in explicit:
        if not first[key] <= found[key] <= last[key]:
            if options.fail_on_data_loss:
                what = f"offset {format_position(found[key])} is wanted"
                raise lost([key], what, first[key], last[key])
            found[key] = min(max(found[key], first[key]), last[key])
    return found


def lost(partitions: Iterable[Partition], what: str, first: int, last: int) -> DataLost:
    """Return the error for offsets that are not in the log."""
    names = ", ".join(f"{topic}-{number}" for topic, number in partitions)
    held = f"[{format_position(first)}, {format_position(last)})"
    return DataLost(
        f"{names}: {what}, the log holds {held}. Old data was removed, or the topic was made "
        "again. failOnDataLoss=false reads what is there."
    )
