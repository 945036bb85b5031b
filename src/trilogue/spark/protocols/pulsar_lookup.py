"""Topics of a Pulsar cluster: their partitions, and where these end. Needs no administrator."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trilogue.client.errors import TimedOut
from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.consumer.reader import Reader
from trilogue.client.pulsar.message import EARLIEST, LATEST, Message, MessageId
from trilogue.client.pulsar.topic_names import full_name, partition_name, without_partition
from trilogue.spark.errors import OptionError
from trilogue.spark.offsets import select_assigned
from trilogue.spark.protocols.client_loop import ClientLoop, client_loop
from trilogue.spark.protocols.positions import join_position, split_position
from trilogue.spark.protocols.service_url import ServiceUrl

if TYPE_CHECKING:
    from trilogue.spark.offsets import Ids, Offsets, Partition
    from trilogue.spark.read_options import ReadOptions

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
DEFAULT_NAMESPACE = "public/default"
_DEFAULT = f"persistent://{DEFAULT_NAMESPACE}/"
FIRST_MESSAGE_S = 10.0
"""How long the first message after a time may take, once the broker has one."""


def pulsar_client(url: ServiceUrl) -> ClientLoop[PulsarClient]:
    """Return this process's client of a cluster."""
    return client_loop(url, lambda: PulsarClient(url.address, **url.client_options()))


def short_name(full: str) -> str:
    """Return a topic as Kafka's clients of Trilogue call it: without the default namespace."""
    return full.removeprefix(_DEFAULT)


async def name_partition(client: PulsarClient, topic: str, number: int) -> str:
    """Return the full name of a partition; a topic without partitions is its partition 0."""
    full = full_name(topic)
    return partition_name(full, number) if await client.partitions(full) else full


@asynccontextmanager
async def open_reader(
    client: PulsarClient, topic: str, number: int, start: MessageId
) -> AsyncIterator[Reader]:
    """Open a reader of one partition that begins after a message.

    It keeps any number of messages whose chunks come mixed: a forgotten one would not come again.
    """
    reader = await client.reader(
        await name_partition(client, topic, number), start, max_pending_chunked=0
    )
    try:
        yield reader
    finally:
        await reader.close()


def find_begin(message: Message) -> tuple[int, int]:
    """Return ledger and entry of a message; of one in chunks, those of the first."""
    return message.id.first_chunk or message.id[:2]


def find_start(position: int) -> MessageId:
    """Return the id after which the entry of a position comes."""
    ledger, entry = split_position(position)
    return MessageId(ledger, entry - 1) if position else EARLIEST


class PulsarLookup:
    """A `TopicLookup` over a Pulsar cluster."""

    def __init__(self, url: ServiceUrl) -> None:
        self._url = url
        self._link = pulsar_client(url)

    def partitions(self, options: ReadOptions) -> list[Partition]:
        """Return every partition that the options subscribe to now."""
        return self._link.run(self._partitions(options))

    async def _partitions(self, options: ReadOptions) -> list[Partition]:
        client = self._link.client
        topics: Iterable[str] = options.topics if options.assign is None else options.assign
        if options.pattern is not None:
            topics = await self._find_matches(options.pattern)
        there = []
        for topic in topics:
            count = max(1, await client.partitions(topic))
            there += [(topic, number) for number in range(count)]
        return sorted(there) if options.assign is None else select_assigned(options.assign, there)

    async def _find_matches(self, pattern: str) -> list[str]:
        """Return the topics that match, of the pattern's namespace or the default one."""
        named = re.match(r"persistent://([^/]+/[^/]+)/", pattern)
        namespace = named[1] if named else DEFAULT_NAMESPACE
        topics = {without_partition(each) for each in await self._link.client.topics(namespace)}
        names = topics if named else {short_name(each) for each in topics}
        return sorted(short_name(each) for each in names if re.fullmatch(pattern, each))

    def ids(self, partitions: Iterable[Partition]) -> Ids:
        """Return no ids: a topic that was created again has other ledgers."""
        del partitions
        return {}

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """Return the position of the first entry published at or after a time (ms); -1 if none."""
        return {
            key: self._link.run(self._find_time(key, time_ms)) for key, time_ms in times.items()
        }

    async def _find_time(self, key: Partition, time_ms: int) -> int:
        async with open_reader(self._link.client, *key, EARLIEST) as reader:
            await reader.seek(time_ms=time_ms)
            if not await reader.has_message_available():
                return LATEST_OFFSET
            try:
                message = await reader.receive(FIRST_MESSAGE_S)
            except TimedOut:
                return LATEST_OFFSET
        return join_position(*find_begin(message))

    def mean_sizes(self, latest: Mapping[Partition, int]) -> dict[Partition, float]:
        """Refuse: Pulsar's own protocol has no sizes."""
        del latest
        raise OptionError("option 'maxBytesPerTrigger' is not for url=pulsar://")

    def resolve(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Replace -1 (latest) and -2 (earliest) by positions; others are unchanged."""
        found = dict(wanted)
        for key, offset in wanted.items():
            if offset == EARLIEST_OFFSET:
                found[key] = 0
            elif offset == LATEST_OFFSET:
                found[key] = self._link.run(self._find_end(key))
        return found

    async def _find_end(self, key: Partition) -> int:
        async with open_reader(self._link.client, *key, LATEST) as reader:
            (last,) = await reader.last_message_ids()
        if last.entry_id < 0:
            return max(0, join_position(max(0, last.ledger_id), 0))
        return join_position(last.ledger_id, last.entry_id + 1)
