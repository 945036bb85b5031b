"""The partitions that a fetch reads: `FetchPartition`, `FetchTopic`, and `FetchContext` of them.

A `FetchContext` belongs to one fetch, or is a fetch session that is kept between fetches (KIP-227).
A session remembers what its last response carried for each partition. A partition without news is
*parked*: it is scanned again only after its log has moved, which marks it *dirty*. The cost of a
fetch in a session grows with the number of partitions that moved, not with the session's size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from trilogue.broker.errors import BrokerError, InvalidName, UnknownTopicId
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.log.partition_log import PartitionLog
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.wire.kafka.fetch import FetchPartition as RequestedPartition
    from trilogue.wire.kafka.fetch import FetchTopic as RequestedTopic
    from trilogue.wire.kafka.fetch import PartitionData

NOT_SENT: Final = -1
Key = tuple[str | bytes, int]  # topic name (topic id since v13), partition index


class TopicLookup(Protocol):
    """How a fetch resolves the topics of its request; `GatewayContext` implements it."""

    def topic(self, spelled: str) -> Topic:
        """Return the topic with this Kafka name; raises UnknownTopic or InvalidName."""

    def topic_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic with this id; raises UnknownTopicId."""

    def has_topic(self, name: TopicName) -> bool:
        """Whether a topic has this full name."""


class FetchTopic:
    """A topic as the request names it, and the broker's topic behind it."""

    __slots__ = ("_known_as", "by_id", "code", "count", "found", "name", "topic_id")

    def __init__(self, name: str, topic_id: bytes, *, by_id: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.by_id = by_id
        self.count = 0  # of its partitions in the context
        self.found: Topic | None = None
        self.code = ErrorCode.NONE
        self._known_as: TopicName | None = None

    def resolve(self, topics: TopicLookup) -> None:
        """Look the topic up, or set the error code for one that is not there."""
        self.found, self.code = None, ErrorCode.NONE
        try:
            self.found = (
                topics.topic_by_id(self.topic_id) if self.by_id else topics.topic(self.name)
            )
        except UnknownTopicId:
            self.code = self._unknown_id_code(topics)
        except BrokerError:
            self.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            self._known_as = self.found.name

    @property
    def checked_name(self) -> TopicName | None:
        """The name that decides about access, also of a missing topic; None: none can have it."""
        if self.found is not None:
            return self.found.name
        if self.by_id:
            return self._known_as
        try:
            return parse_kafka(self.name)
        except InvalidName:
            return None

    def _unknown_id_code(self, topics: TopicLookup) -> ErrorCode:
        """Kafka's code for an id that never existed, was replaced, or was deleted."""
        if self._known_as is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if topics.has_topic(self._known_as):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class FetchPartition:
    """One partition: its log or why it cannot be read, and what was last sent of it."""

    __slots__ = (
        "code",
        "context",
        "high_watermark",
        "is_watching",
        "log",
        "partition",
        "rank",
        "requested",
        "start_offset",
        "topic",
    )

    def __init__(
        self, context: FetchContext, topic: FetchTopic, requested: RequestedPartition, rank: int
    ) -> None:
        self.context = context
        self.topic = topic
        self.requested = requested
        self.rank = rank  # position in the order in which a response is filled
        self.is_watching = False  # registered for the next move of the log
        self.high_watermark = self.start_offset = NOT_SENT
        self.find_partition()

    def find_partition(self) -> None:
        """Find the broker's partition in the resolved topic, or take over the topic's error."""
        self.partition: Partition | None = None
        self.log: PartitionLog | None = None
        self.code = self.topic.code
        topic = self.topic.found
        if topic is None:
            return
        index = self.requested.partition
        if 0 <= index < len(topic.partitions):
            partition = topic.partitions[index]
            if partition.is_remote:
                self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                self.partition, self.log = partition, partition.log
        else:
            self.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def find_partition_again(self) -> None:
        """Look again for a partition that was missing or has been deleted."""
        self.unwatch_log()
        self.find_partition()

    def watch_log(self) -> None:
        """Register for the next move of the log; idempotent."""
        if self.log is not None and not self.is_watching:
            self.is_watching = True
            self.log.watch(self, self.log_moved)

    def unwatch_log(self) -> None:
        """Withdraw the registration of `watch_log`."""
        if self.log is not None and self.is_watching:
            self.is_watching = False
            self.log.unwatch(self)

    def log_moved(self) -> None:
        """Called by the log: this partition may have news."""
        self.is_watching = False
        self.context.mark_dirty(self)

    def has_news(self, *, committed: bool) -> bool:
        """Whether a session's response sent now would contain this partition."""
        plog = self.log
        return (
            plog is None
            or self.requested.fetch_offset < (plog.stable_end if committed else plog.high_watermark)
            or plog.high_watermark != self.high_watermark
            or plog.start_offset != self.start_offset
        )

    def has_moved(self, data: PartitionData, *, committed: bool) -> bool:
        """Whether the log has moved on from the state that `data` reports."""
        plog, partition = self.log, self.partition
        if plog is None or partition is None or partition.deleted:
            return True
        if committed and plog.stable_end != data.last_stable_offset:
            return True
        return plog.high_watermark != data.high_watermark


class FetchContext:
    """The partitions that one client reads: those of a request, or those of a session."""

    __slots__ = ("_next_rank", "dirty", "is_new", "on_move", "partitions", "topics")

    def __init__(self) -> None:
        self.topics: dict[str | bytes, FetchTopic] = {}
        self.partitions: dict[Key, FetchPartition] = {}
        self.is_new = True  # no response was sent yet: every partition is scanned
        self.dirty: set[FetchPartition] = set()  # to be scanned next; the others are parked
        self.on_move: Callable[[], None] | None = None  # wakes the fetch that waits now
        self._next_rank = 0

    def add(self, topics: TopicLookup, requested: list[RequestedTopic], *, by_id: bool) -> None:
        """Add the requested partitions; those already here take the new offsets and limits."""
        partitions = self.partitions
        for each in requested:
            spelled: str | bytes = each.topic_id if by_id else each.topic
            topic = self.topics.get(spelled)
            if topic is None:
                topic = FetchTopic(each.topic, each.topic_id, by_id=by_id)
                topic.resolve(topics)
                self.topics[spelled] = topic
            for partition in each.partitions:
                key = (spelled, partition.partition)
                target = partitions.get(key)
                if target is None:
                    target = FetchPartition(self, topic, partition, self._next_rank)
                    partitions[key] = target
                    self._next_rank += 1
                    topic.count += 1
                else:
                    target.requested = partition
                if not self.is_new:
                    self.dirty.add(target)

    def forget(self, key: Key) -> None:
        """Remove one partition (`forgotten_topics_data` of a request)."""
        target = self.partitions.pop(key, None)
        if target is None:
            return
        target.unwatch_log()
        self.dirty.discard(target)
        target.topic.count -= 1
        if not target.topic.count:
            del self.topics[key[0]]

    def move_to_end(self, target: FetchPartition) -> None:
        """Make a partition the last one in the order in which a response is filled."""
        target.rank = self._next_rank
        self._next_rank += 1

    def list_to_scan(self) -> list[FetchPartition]:
        """Return the partitions that the next scan reads, in order."""
        return list(self.partitions.values()) if self.is_new else sorted(self.dirty, key=_rank)

    def mark_all_dirty(self) -> None:
        """Have every partition scanned again."""
        self.dirty.update(self.partitions.values())

    def mark_dirty(self, target: FetchPartition) -> None:
        """Have one partition scanned again, and wake the fetch that waits."""
        self.dirty.add(target)
        if self.on_move is not None:
            self.on_move()

    def park(self, found: list[tuple[FetchPartition, PartitionData]], *, committed: bool) -> None:
        """Park the scanned partitions without news until their logs move."""
        if self.is_new:
            return
        for target, _ in found:
            if target.has_news(committed=committed):
                self.dirty.add(target)
            else:
                self.dirty.discard(target)
                target.watch_log()

    def release(self) -> None:
        """Withdraw every registration and break the reference cycles."""
        self.on_move = None
        for target in self.partitions.values():
            target.unwatch_log()
        self.dirty.clear()
        self.partitions.clear()
        self.topics.clear()


def _rank(target: FetchPartition) -> int:
    return target.rank
