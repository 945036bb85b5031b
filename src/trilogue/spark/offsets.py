"""Plans the offsets of a batch or micro-batch, and splits them into tasks.

Pure functions of dicts. An offset map is `{(topic, partition): offset}`; in Spark's checkpoints it
is the JSON `{"topic": {"0": 23}}` of its Kafka connector, whose checkpoints can be read. The
topic's id is added, `{"topic": {"0": 23, "id": "…"}}`: offset 23 of a topic that was deleted and
created again is another record.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trilogue.spark.errors import OptionError
from trilogue.spark.protocols.positions import (
    format_position,
    is_countable,
    is_in_ledger,
    parse_position,
)
from trilogue.spark.read_options import Bounds

Partition = tuple[str, int]
Offsets = dict[Partition, int]
Ids = dict[str, str]
"""Topic ids, of those topics whose server has such."""
_ID = "id"


def select_assigned(
    assign: Mapping[str, Iterable[int]], there: Iterable[Partition]
) -> list[Partition]:
    """Return the partitions that option `assign` names; OptionError for one that is not there."""
    known = set(there)
    assigned = sorted((topic, number) for topic, numbers in assign.items() for number in numbers)
    for topic, number in assigned:
        if (topic, number) not in known:
            raise OptionError(f"option 'assign' names {topic}-{number}, which does not exist")
    return assigned


class Range(NamedTuple):
    """Offsets [start, end) of one partition, read by one task."""

    topic: str
    partition: int
    start: int
    end: int


def to_json(offsets: Mapping[Partition, int], ids: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the JSON of a checkpoint."""
    nested: dict[str, dict[str, Any]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = format_position(offset)
    for topic in nested.keys() & ids.keys():
        nested[topic][_ID] = ids[topic]
    return nested


def from_json(nested: Mapping[str, Mapping[str, Any]]) -> tuple[Offsets, Ids]:
    """Parse the JSON of a checkpoint."""
    offsets = {
        (topic, int(partition)): parse_position(offset)
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
        if partition != _ID
    }
    ids = {topic: str(parts[_ID]) for topic, parts in nested.items() if _ID in parts}
    return offsets, ids


def wanted(name: str, bounds: Bounds, partitions: Iterable[Partition]) -> Offsets:
    """Return the offset of each partition that option `name` gives; it must name all or none.

    A missing partition would start at an arbitrary offset, and a misspelt topic would be ignored:
    Spark's Kafka source refuses both as well.
    """
    if isinstance(bounds, int):
        return dict.fromkeys(partitions, bounds)
    named = {(topic, number): at for topic, parts in bounds.items() for number, at in parts.items()}
    there = set(partitions)
    wrong = sorted(there.symmetric_difference(named))
    if wrong:
        topic, number = wrong[0]
        problem = "does not name" if wrong[0] in there else "names"
        detail = "" if wrong[0] in there else ", which is not read"
        raise OptionError(
            f"option {name!r} {problem} partition {number} of {topic!r}{detail}; "
            "it must name every partition that is read (-2 earliest, -1 latest)"
        )
    return named


def admit(start: Offsets, latest: Offsets, rows: int) -> Offsets:
    """Advance from `start` towards `latest` by up to `rows` offsets, in proportion to the lag.

    Every partition with lag advances by at least one offset, so that none starves, even if that is
    more than `rows`; none advances beyond its end.
    """
    lags = {key: max(0, end - start.get(key, 0)) for key, end in latest.items()}
    total = sum(lags.values())
    if total <= rows:
        return dict(latest)
    steps = {key: min(lag, 1) for key, lag in lags.items()}
    many = {key: lag for key, lag in lags.items() if lag > 1}
    while many:  # shares below one become one; the others share the rest
        rest = max(0, rows - sum(1 for key, step in steps.items() if step and key not in many))
        total = sum(many.values())
        few = [key for key, lag in many.items() if rest * lag < total]
        if not few:
            steps |= {key: min(lag, rest * lag // total) for key, lag in many.items()}
            break
        for key in few:
            del many[key]
    return {key: start.get(key, 0) + step for key, step in steps.items()}


class CountedOffsets:
    """Part of a `TopicLookup` whose offsets can be counted: the difference of two is a lag."""

    def firsts(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return `begin`, which is comparable."""
        del latest
        return begin

    def lags(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return how many offsets of each partition are to be read."""
        return {key: max(0, end - begin[key]) for key, end in latest.items()}

    def admit(self, begin: Offsets, latest: Offsets, rows: int) -> Offsets:
        """Return where a micro-batch of up to `rows` offsets ends."""
        return admit(begin, latest, rows)


def keep_positions(begin: Offsets, latest: Offsets) -> Offsets:
    """Return the ends; of a Pulsar partition without a message the position that was read up to.

    A broker removes ledgers that nothing needs, the last one, too, and has no end to report then.
    """
    return {
        key: begin[key] if end == 0 and is_in_ledger(begin.get(key, 0)) else end
        for key, end in latest.items()
    }


def align(start: Offsets, latest: Offsets, admitted: Offsets, step: int) -> Offsets:
    """Return the admitted offsets at whole steps, at least one where there is lag.

    A log counts in steps if all its offsets are multiples of it; others are left as they are.
    """
    if any(offset % step for offset in (*start.values(), *latest.values())):
        return admitted
    found = {}
    for key, end in admitted.items():
        begin = start.get(key, 0)
        steps = max((end - begin) // step, 1)
        found[key] = min(begin + steps * step, latest[key]) if end > begin else end
    return found


def ranges(
    start: Offsets,
    end: Offsets,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[Range]:
    """Return non-empty ranges: at least `min_partitions`, none above `max_records` offsets.

    A range over several ledgers stays whole: its entries cannot be counted.
    """
    whole = [
        Range(topic, partition, start.get((topic, partition), 0), last)
        for (topic, partition), last in sorted(end.items())
        if last > start.get((topic, partition), 0)
    ]
    total = sum(one.end - one.start for one in whole if is_countable(one.start, one.end))
    few = min_partitions is not None and len(whole) < min_partitions
    pieces: list[Range] = []
    for one in whole:
        if not is_countable(one.start, one.end):
            pieces.append(one)
            continue
        length = one.end - one.start
        count = -(-(min_partitions or 1) * length // total) if few else 1
        if max_records is not None:
            count = max(count, -(-length // max_records))
        count = min(length, count)
        cuts = [one.start + length * step // count for step in range(count + 1)]
        pieces += [one._replace(start=low, end=high) for low, high in itertools.pairwise(cuts)]
    return pieces
