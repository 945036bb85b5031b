"""Topics of a TubeMQ cluster: their partitions, and where these begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from trilogue.spark.errors import OptionError
from trilogue.spark.offsets import CountedOffsets, admit, align, select_assigned
from trilogue.spark.protocols.service_url import ServiceUrl
from trilogue.spark.protocols.tubemq_link import find_offset, number_partitions, tubemq_link

if TYPE_CHECKING:
    from trilogue.spark.offsets import Ids, Offsets, Partition
    from trilogue.spark.read_options import ReadOptions

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
STEP = 28
"""Apache TubeMQ's offsets are bytes of an index, which has so many for each message."""
END = STEP << 50
"""Beyond every end."""


class TubeLookup(CountedOffsets):
    """A `TopicLookup` over a TubeMQ cluster."""

    def __init__(self, url: ServiceUrl) -> None:
        self._link = tubemq_link(url)

    def partitions(self, options: ReadOptions) -> list[Partition]:
        """Return every partition that the options subscribe to now."""
        topics = options.topics if options.assign is None else sorted(options.assign)
        there = self._link.run(self._find_partitions(topics))
        return there if options.assign is None else select_assigned(options.assign, there)

    async def _find_partitions(self, topics: Iterable[str]) -> list[Partition]:
        async with self._link.client.open_consumer(topics) as consumer:
            return sorted(
                (topic, number) for topic in topics for number in number_partitions(consumer, topic)
            )

    def ids(self, partitions: Iterable[Partition]) -> Ids:
        """Return no ids: topics of TubeMQ have none."""
        del partitions
        return {}

    def admit(self, begin: Offsets, latest: Offsets, rows: int) -> Offsets:
        """Return where a micro-batch of up to `rows` offsets ends: at a message."""
        return align(begin, latest, admit(begin, latest, rows), STEP)

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """Refuse: TubeMQ's protocol finds no times."""
        del times
        raise OptionError("options of times are not for url=tubemq://…")

    def mean_sizes(self, latest: Mapping[Partition, int]) -> dict[Partition, float]:
        """Refuse: TubeMQ's protocol has no sizes of partitions."""
        del latest
        raise OptionError("option 'maxBytesPerTrigger' is not for url=tubemq://…")

    def resolve(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Replace -1 (latest) and -2 (earliest) by offsets; others are unchanged."""
        named = {key: offset for key, offset in wanted.items() if offset < 0}
        found = self._link.run(self._resolve(named)) if named else {}
        return dict(wanted) | found

    async def _resolve(self, wanted: Mapping[Partition, int]) -> Offsets:
        found = {}
        topics = sorted({topic for topic, _ in wanted})
        async with self._link.client.open_consumer(topics) as consumer:
            keys = {topic: number_partitions(consumer, topic) for topic in topics}
            for (topic, number), offset in wanted.items():
                if number not in keys[topic]:
                    raise OptionError(f"there is no partition {topic}-{number}")
                at = 0 if offset == EARLIEST_OFFSET else END
                found[topic, number] = await find_offset(consumer, keys[topic][number], at)
        return found
