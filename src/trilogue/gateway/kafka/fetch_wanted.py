"""Partitions that somebody reads: what was asked of each, and what is behind its name here.

A `Wanted` belongs to one fetch, or to a fetch session, which remembers it between fetches
(KIP-227). Then it knows what the client was told last, and it *rests*: once there is nothing to say
of a partition it is not looked at again before its log calls. So a fetch of a session costs as much
as moved since the one before, not as many partitions as there are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trilogue.broker.errors import BrokerError, UnknownTopicId
from trilogue.broker.names import TopicName
from trilogue.broker.partition import Partition
from trilogue.broker.topic import Topic
from trilogue.log.partition_log import PartitionLog
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.gateway.kafka.shared import Shared
    from trilogue.wire.kafka.fetch import FetchPartition, FetchTopic, PartitionData

NOT_TOLD: Final = -1
NO_ID: Final = bytes(16)
Key = tuple[str | bytes, int]  # a topic's name, or its id since v13, and a partition's index


class WantedTopic:
    """A topic as a client spells it, and which one that is."""

    __slots__ = ("_known_as", "by_id", "code", "count", "found", "name", "topic_id")

    def __init__(self, name: str, topic_id: bytes, *, by_id: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.by_id = by_id
        self.count = 0  # of its partitions that are wanted
        self.found: Topic | None = None
        self.code = ErrorCode.NONE
        self._known_as: TopicName | None = None

    def resolve(self, door: Shared) -> None:
        """Look for it, again if need be."""
        self.found, self.code = None, ErrorCode.NONE
        try:
            self.found = door.topic_by_id(self.topic_id) if self.by_id else door.topic(self.name)
        except UnknownTopicId:
            self.code = self._gone(door)
        except BrokerError:
            self.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            self._known_as = self.found.name

    def _gone(self, door: Shared) -> ErrorCode:
        """What a Kafka says of an id that it knows no longer, or never did."""
        if self._known_as is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if door.broker.cluster.find(self._known_as) is not None:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Wanted:
    """One partition: where to read, or why that is not possible, and what was told of it."""

    __slots__ = (
        "asked",
        "code",
        "high_watermark",
        "log",
        "partition",
        "rank",
        "start_offset",
        "topic",
        "waits",
        "wants",
    )

    def __init__(self, wants: Wants, topic: WantedTopic, asked: FetchPartition, rank: int) -> None:
        self.wants = wants
        self.topic = topic
        self.asked = asked
        self.rank = rank  # its place in the order of the session
        self.waits = False  # for its log to call
        self.high_watermark = self.start_offset = NOT_TOLD
        self.find()

    def find(self) -> None:
        """Find the partition in the topic that was found."""
        self.partition: Partition | None = None
        self.log: PartitionLog | None = None
        self.code = self.topic.code
        found = self.topic.found
        if found is None:
            return
        index = self.asked.partition
        if 0 <= index < len(found.partitions):
            self.partition = partition = found.partitions[index]
            self.log = partition.log
        else:
            self.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def find_again(self) -> None:
        """It was not there, or has gone."""
        self.quit()
        self.find()

    def wait(self) -> None:
        """Be called when the log moves."""
        if self.log is not None and not self.waits:
            self.waits = True
            self.log.call(self, self.moved)

    def quit(self) -> None:
        """Wait no longer."""
        if self.log is not None and self.waits:
            self.waits = False
            self.log.call_not(self)

    def moved(self) -> None:
        """The log calls: there may be something to say."""
        self.waits = False
        self.wants.awake(self)

    def has_more_to_say(self, *, committed: bool) -> bool:
        """Whether an answer given now would mention it in a session."""
        plog = self.log
        return (
            plog is None
            or self.asked.fetch_offset < (plog.stable_end if committed else plog.high_watermark)
            or plog.high_watermark != self.high_watermark
            or plog.start_offset != self.start_offset
        )

    def has_moved(self, data: PartitionData, *, committed: bool) -> bool:
        """Whether what can be read of it is not what this says any more."""
        plog, partition = self.log, self.partition
        if plog is None or partition is None or partition.deleted:
            return True
        if committed and plog.stable_end != data.last_stable_offset:
            return True
        return plog.high_watermark != data.high_watermark


class Wants:
    """The partitions that one client reads: those of a request, or those of a session."""

    __slots__ = ("_next_rank", "dirty", "is_new", "on_move", "partitions", "topics")

    def __init__(self) -> None:
        self.topics: dict[str | bytes, WantedTopic] = {}
        self.partitions: dict[Key, Wanted] = {}
        self.is_new = True  # nothing of it was ever told: all of it is to be looked at
        self.dirty: set[Wanted] = set()  # to be looked at, later; the others rest
        self.on_move: Callable[[], None] | None = None  # the fetch that waits now
        self._next_rank = 0

    def add(self, door: Shared, asked: list[FetchTopic], *, by_id: bool) -> None:
        """Want these too; what is wanted already is wanted as it is said now."""
        partitions = self.partitions
        for each in asked:
            spelled: str | bytes = each.topic_id if by_id else each.topic
            topic = self.topics.get(spelled)
            if topic is None:
                topic = WantedTopic(each.topic, each.topic_id, by_id=by_id)
                topic.resolve(door)
                self.topics[spelled] = topic
            for partition in each.partitions:
                key = (spelled, partition.partition)
                wanted = partitions.get(key)
                if wanted is None:
                    wanted = partitions[key] = Wanted(self, topic, partition, self._next_rank)
                    self._next_rank += 1
                    topic.count += 1
                else:
                    wanted.asked = partition
                if not self.is_new:
                    self.dirty.add(wanted)

    def forget(self, key: Key) -> None:
        """Want one no longer."""
        wanted = self.partitions.pop(key, None)
        if wanted is None:
            return
        wanted.quit()
        self.dirty.discard(wanted)
        wanted.topic.count -= 1
        if not wanted.topic.count:
            del self.topics[key[0]]

    def to_the_end(self, wanted: Wanted) -> None:
        """Let it be the last in the order in which an answer is filled."""
        wanted.rank = self._next_rank
        self._next_rank += 1

    def in_order(self) -> list[Wanted]:
        """Those to be looked at."""
        return list(self.partitions.values()) if self.is_new else sorted(self.dirty, key=_rank)

    def awake_all(self) -> None:
        """Look at everything again."""
        self.dirty.update(self.partitions.values())

    def awake(self, wanted: Wanted) -> None:
        """Look at one again, now if somebody waits."""
        self.dirty.add(wanted)
        if self.on_move is not None:
            self.on_move()

    def rest(self, found: list[tuple[Wanted, PartitionData]], *, committed: bool) -> None:
        """Let those that were looked at and have no more to say rest until their logs call."""
        if self.is_new:
            return
        for wanted, _ in found:
            if wanted.has_more_to_say(committed=committed):
                self.dirty.add(wanted)
            else:
                self.dirty.discard(wanted)
                wanted.wait()

    def quit(self) -> None:
        """Nobody wants them any more."""
        self.on_move = None
        for wanted in self.partitions.values():
            wanted.quit()
        self.dirty.clear()
        self.partitions.clear()  # each of them knows us
        self.topics.clear()


def _rank(wanted: Wanted) -> int:
    return wanted.rank
