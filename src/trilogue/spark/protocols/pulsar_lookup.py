"""Topics of a Pulsar cluster: their partitions, where these end, and how much is to be read."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trilogue.client.errors import ServerRefused, TimedOut
from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.consumer.reader import Reader
from trilogue.client.pulsar.message import EARLIEST, LATEST, Message, MessageId
from trilogue.client.pulsar.options import InitialPosition
from trilogue.client.pulsar.topic_names import full_name, partition_name, without_partition
from trilogue.spark.errors import OptionError
from trilogue.spark.offsets import admit, select_assigned
from trilogue.spark.protocols.client_loop import ClientLoop, client_loop
from trilogue.spark.protocols.positions import is_countable, join_position, split_position
from trilogue.spark.protocols.service_url import ServiceUrl

if TYPE_CHECKING:
    from trilogue.spark.offsets import Ids, Offsets, Partition
    from trilogue.spark.protocols.administration import Administration
    from trilogue.spark.read_options import ReadOptions

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
DEFAULT_NAMESPACE = "public/default"
_DEFAULT = f"persistent://{DEFAULT_NAMESPACE}/"
FIRST_MESSAGE_S = 10.0
"""How long the first message after a time may take, once the broker has one."""
ENTRIES_PER_LEDGER = 50_000
"""A guess at the rest of a ledger, which no command of the protocol counts: Pulsar's default."""


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

    def __init__(self, url: ServiceUrl, administration: Administration | None = None) -> None:
        self._administration = administration
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
        """Return the bytes of an entry of each partition, on average."""
        assert self._administration is not None  # ReadOptions has checked it
        found = {}
        for key in latest:
            name = self._link.run(name_partition(self._link.client, *key))
            mean = self._administration.mean_entry_size(name)
            if mean is not None:
                found[key] = mean
        return found

    def firsts(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return where the first entry of each partition is that is to be read.

        A position whose ledger is not that of the end may be after its ledger's last entry.
        """
        found = dict(begin)
        for key, end in latest.items():
            if not is_countable(begin[key], end):
                found[key] = self._link.run(self._find_first(key, begin[key], end))
        return found

    async def _find_first(self, key: Partition, begin: int, end: int) -> int:
        """Return the position of the first message from `begin` on; `begin` if none comes."""
        async with open_reader(self._link.client, *key, find_start(begin)) as reader:
            if not await reader.has_message_available():
                return end
            try:
                message = await reader.receive(FIRST_MESSAGE_S)
            except TimedOut:
                return begin
        return max(begin, join_position(*find_begin(message)))

    def lags(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return how many entries of each partition are to be read.

        Over several ledgers it is a guess: that of a whole one before the last.
        """
        return _count_entries(self.firsts(begin, latest), latest, ENTRIES_PER_LEDGER)

    def admit(self, begin: Offsets, latest: Offsets, rows: int) -> Offsets:
        """Return where a micro-batch of up to `rows` entries ends: at most at the end of a ledger.

        Where the first entry is not known, it ends at the end of the partition.
        """
        firsts = self.firsts(begin, latest)
        counts = _count_entries(firsts, latest, max(rows, ENTRIES_PER_LEDGER))
        admitted = admit(dict.fromkeys(counts, 0), counts, rows)
        return {
            key: end
            if counts[key] == 0 or (is_countable(firsts[key], end) and admitted[key] == counts[key])
            else firsts[key] + admitted[key]
            for key, end in latest.items()
        }

    def publish_positions(self, group: str, offsets: Offsets) -> None:
        """Acknowledge for a subscription what is before the positions; OptionError."""
        for key, position in offsets.items():
            if position and split_position(position)[1] > 0:
                self._link.run(self._acknowledge(group, key, position))

    async def _acknowledge(self, subscription: str, key: Partition, position: int) -> None:
        client = self._link.client
        try:
            consumer = await client.subscribe(
                await name_partition(client, *key),
                subscription,
                initial_position=InitialPosition.EARLIEST,
                queue_size=0,
                ack_receipts=True,
            )
        except ServerRefused as refused:
            raise OptionError(
                f"option 'predefinedSubscription': subscription {subscription} takes no positions "
                f"of a query ({refused}); one without consumers is needed, and the right to consume"
            ) from refused
        try:
            await consumer.ack_through(find_start(position))
        finally:
            await consumer.close()

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


def _count_entries(firsts: Offsets, latest: Offsets, unknown: int) -> Offsets:
    """Return entries to read; `unknown` and those of the last ledger where there are several."""
    return {
        key: max(0, end - firsts[key])
        if is_countable(firsts[key], end)
        else unknown + split_position(end)[1]
        for key, end in latest.items()
    }
