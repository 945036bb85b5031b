"""An internal topic: a compacted topic that shows what the broker keeps as facts.

It exists when a client with the permission to create it has named it, and costs nothing until then.
Each change is appended in the journal's window of its fact, before the fact: what was acknowledged
is in both. A partition that is empty when the topic begins, or when the node starts, is filled with
what the broker has, so the topic is complete from its first record.

A name belongs to the partition of its hash, as in Kafka. Where there are several slots, it is one
of the partitions in the slot of the name, which the coordinator of the name owns by the same rule.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

from trilogue.broker.errors import BrokerError, convert_log_error
from trilogue.broker.facts import FactJournal
from trilogue.broker.internal.records import KeyValue
from trilogue.broker.names import TopicName
from trilogue.broker.topics.cluster import Cluster, TopicEvent
from trilogue.broker.topics.topic import INTERNAL_PARTITIONS, Topic
from trilogue.entry.kafka.record_batch import BatchBuilder, read_header
from trilogue.log.errors import LogError

log = logging.getLogger(__name__)

RECORDS_IN_BATCH: Final = 500
RECORD_BYTES_MAX: Final = 1 << 20  # of a value; a larger one is left out
BATCH_BYTES: Final = 256 << 10

ListRecords = Callable[[], Iterable[tuple[str, Iterable[KeyValue]]]]  # by name


class StateTopic:
    """One internal topic on this node. `list_records` returns what it would have been written."""

    def __init__(
        self,
        name: TopicName,
        cluster: Cluster,
        now_ms: Callable[[], int],
        list_records: ListRecords,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._now_ms = now_ms
        self._list_records = list_records
        self._journal: FactJournal | None = None
        self._unfilled: set[int] = set()  # partitions that will be filled
        self._newer: set[bytes] = set()  # keys that were written to them before that
        self._numbers: tuple[bytes, dict[int, list[int]]] = b"", {}

    def attach(self, journal: FactJournal) -> None:
        """Begin to write; fill what is empty."""
        self._journal = journal
        self._cluster.listeners.append(self._on_event)
        self._begin_fill()

    @property
    def exists(self) -> bool:
        """Whether records are written."""
        return self._topic is not None

    @property
    def _topic(self) -> Topic | None:
        if self._journal is None:
            return None
        topic = self._cluster.find_topic(self.name)
        return topic if topic is not None and topic.is_internal else None

    def append(self, name: str, records: Iterable[KeyValue]) -> None:
        """Append the records of a name; raises BrokerError where the log takes none."""
        topic = self._topic
        if topic is None:
            return
        number = self._number_of(topic, name)
        if number in self._unfilled:
            records = [*records]
            self._newer.update(key for key, _ in records)
        self._append(topic, number, records)

    def _append(self, topic: Topic, number: int, records: Iterable[KeyValue]) -> None:
        partition = topic.partitions[number]
        if partition.is_remote:
            return
        try:
            for batch in _build_batches(records, self._now_ms()):
                partition.log.append(memoryview(batch), read_header(batch))
        except LogError as error:
            raise convert_log_error(error) from error

    def _number_of(self, topic: Topic, name: str) -> int:
        """Return the number of the partition of a name."""
        hashed = java_hash(name)
        ownership = self._cluster.ownership
        if not ownership.is_divided:
            return hashed % INTERNAL_PARTITIONS
        topic_id, numbers = self._numbers
        if topic_id != topic.topic_id:
            numbers = {}
            for number, partition_id in enumerate(topic.row.partitions):
                numbers.setdefault(ownership.partition_slot(partition_id), []).append(number)
            self._numbers = topic.topic_id, numbers
        of_slot = numbers[ownership.slot_of(name)]
        return of_slot[hashed % len(of_slot)]

    # -- what was there before

    def _on_event(self, event: TopicEvent, topic: Topic) -> None:
        if topic.name == self.name and event is TopicEvent.CREATED:
            self._begin_fill()

    def adopt_partitions(self) -> None:
        """Fill partitions that have come with their slots, if they are empty."""
        topic = self._topic
        if topic is not None and self._unfilled:  # that fill will find the names that came
            self._unfilled |= _empty_numbers(topic)
        else:
            self._begin_fill()

    def _begin_fill(self) -> None:
        """Fill empty partitions when all facts so far are applied."""
        topic = self._topic
        if topic is None:
            return
        self._newer.clear()
        self._unfilled = _empty_numbers(topic)
        if self._unfilled:
            assert self._journal is not None
            self._journal.on_commit(lambda problem: self._fill(topic, problem))

    def _fill(self, topic: Topic, problem: BaseException | None) -> None:
        present = self._topic
        if problem is None and present is not None and present.topic_id == topic.topic_id:
            topic = present  # with the partitions that have come since
            try:
                for name, records in self._list_records():
                    number = self._number_of(topic, name)
                    if number in self._unfilled:
                        some = [each for each in records if each[0] not in self._newer]
                        self._append(topic, number, some)
            except BrokerError:
                log.exception("internal_topic.incomplete")
        self._unfilled.clear()
        self._newer.clear()


def _empty_numbers(topic: Topic) -> set[int]:
    return {
        number
        for number, partition in enumerate(topic.partitions)
        if not partition.is_remote and not partition.log.end_offset
    }


def _build_batches(records: Iterable[KeyValue], now_ms: int) -> Iterator[bytes]:
    """Build batches of these records, none of them large."""
    builder = BatchBuilder()
    for key, value in records:
        if len(value or b"") > RECORD_BYTES_MAX:
            continue
        builder.append(key, value, timestamp=now_ms)
        if builder.count >= RECORDS_IN_BATCH or builder.size >= BATCH_BYTES:
            yield builder.build()
    if builder.count:
        yield builder.build()


@lru_cache(10_000)
def java_hash(text: str) -> int:
    """Return Java's hash of a text, without its sign, as Kafka finds the partition of a group."""
    hashed = 0
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed & 0x7FFFFFFF
