"""Text fields of TubeMQ's messages: addresses, partitions, topics; parsed strictly.

    BrokerInfo      1:127.0.0.1:8123                            brokerInfos, brokerConfigList
    TopicInfo       demo#1:3:1,2:3:1#1048576                    topicInfos; partitions, then stores
    TopicMeta       demo#1:1:3:1                                topicMetaInfoList; stores come first
    PartitionKey    1:demo:0
    Partition       1:127.0.0.1:8123#demo:0                     partitionInfo
    Subscription    consumer@group#1:127.0.0.1:8123#demo:0      subscribeInfo
    Condition       demo#typeA,typeB                            topicCondition
    Failure         411:1:127.0.0.1:8123#demo:0                 failureInfo
    required        1:demo:0=112,1:demo:1=56                    requiredPartition
    held            demo#1:0,1:1                                partSubInfo

Each has `parse`, which raises WireError, and `str()`. A text longer than TEXT_LIMIT is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self

from trilogue.wire.errors import WireError

TEXT_LIMIT: Final = 64 * 1024
DEFAULT_PORT: Final = 8123
"""Of a broker without a port in its address."""
SUBSCRIBABLE: Final = 1
"""The status, in TopicMeta, of a broker that accepts reads."""

_NUMBER_DIGITS: Final = 19


class BrokerInfo(NamedTuple):
    """A broker's id and address."""

    broker_id: int
    host: str
    port: int = DEFAULT_PORT

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `id:host:port`; an empty port stands for 8123."""
        number, _, rest = _limited(text).partition(":")
        host, colon, port = rest.rpartition(":")
        if not colon or not host:
            raise WireError(f"not a broker: {text[:200]!r}")
        return cls(_number(number), host, _port(port) if port else DEFAULT_PORT)

    def __str__(self) -> str:
        return f"{self.broker_id}:{self.host}:{self.port}"


class Hosting(NamedTuple):
    """The partitions of a topic at one broker."""

    broker_id: int
    partitions: int
    stores: int = 1


class TopicInfo(NamedTuple):
    """The brokers of a topic, for producers; `size_max` is of one message's body, in bytes."""

    topic: str
    brokers: tuple[Hosting, ...]
    size_max: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `topic#id:partitions:stores,...#size`; the last part may be empty or not there."""
        topic, *parts = _limited(text).strip().split("#")
        if not topic or not 1 <= len(parts) <= 2:
            raise WireError(f"not a topic's brokers: {text[:200]!r}")
        size_max = _number(parts[1]) if parts[1:] and parts[1] else None
        brokers = tuple(Hosting(*_numbers(part, 3)) for part in parts[0].split(",") if part)
        return cls(topic, brokers, size_max)

    def __str__(self) -> str:
        brokers = ",".join(f"{b.broker_id}:{b.partitions}:{b.stores}" for b in self.brokers)
        return f"{self.topic}#{brokers}#{'' if self.size_max is None else self.size_max}"


class TopicMeta(NamedTuple):
    """The brokers of a topic with their status, for client-balanced consumers."""

    topic: str
    brokers: tuple[tuple[Hosting, int], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `topic#id:stores:partitions:status,...`."""
        topic, sharp, rest = _limited(text).strip().partition("#")
        if not topic or not sharp:
            raise WireError(f"not a topic's state: {text[:200]!r}")
        found = []
        for part in rest.split(","):
            if part:
                broker_id, stores, partitions, status = _numbers(part, 4)
                found.append((Hosting(broker_id, partitions, stores), status))
        return cls(topic, tuple(found))

    def __str__(self) -> str:
        brokers = ",".join(
            f"{at.broker_id}:{at.stores}:{at.partitions}:{status}" for at, status in self.brokers
        )
        return f"{self.topic}#{brokers}"


class PartitionKey(NamedTuple):
    """A partition with the id of its broker."""

    broker_id: int
    topic: str
    partition_id: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `id:topic:partition`."""
        parts = _limited(text).split(":")
        if len(parts) != 3 or not parts[1]:
            raise WireError(f"not a partition: {text[:200]!r}")
        return cls(_number(parts[0]), parts[1], _number(parts[2]))

    def __str__(self) -> str:
        return f"{self.broker_id}:{self.topic}:{self.partition_id}"


class Partition(NamedTuple):
    """A partition with the address of its broker."""

    broker: BrokerInfo
    topic: str
    partition_id: int

    @property
    def key(self) -> PartitionKey:
        """The same without the address."""
        return PartitionKey(self.broker.broker_id, self.topic, self.partition_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `id:host:port#topic:partition`."""
        broker, sharp, rest = _limited(text).partition("#")
        topic, colon, number = rest.partition(":")
        if not sharp or not topic or not colon:
            raise WireError(f"not a partition: {text[:200]!r}")
        return cls(BrokerInfo.parse(broker), topic, _number(number))

    def __str__(self) -> str:
        return f"{self.broker}#{self.topic}:{self.partition_id}"


class Subscription(NamedTuple):
    """A consumer of a group and a partition that it reads."""

    consumer_id: str
    group: str
    partition: Partition

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `consumer@group#id:host:port#topic:partition`."""
        consumer, sharp, partition = _limited(text).partition("#")
        consumer_id, at, group = consumer.partition("@")
        if not sharp or not at or not consumer_id or not group:
            raise WireError(f"not a subscription: {text[:200]!r}")
        return cls(consumer_id, group, Partition.parse(partition))

    def __str__(self) -> str:
        return f"{self.consumer_id}@{self.group}#{self.partition}"


class Condition(NamedTuple):
    """The message types that a consumer reads of a topic; none: all."""

    topic: str
    filters: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `topic#filter,filter`."""
        topic, sharp, rest = _limited(text).partition("#")
        if not sharp or not topic:
            raise WireError(f"not a condition: {text[:200]!r}")
        return cls(topic, tuple(part for part in rest.split(",") if part))

    def __str__(self) -> str:
        return f"{self.topic}#{','.join(self.filters)}"


class Failure(NamedTuple):
    """The error code of a partition that was listed in a heartbeat."""

    code: int
    partition: Partition

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `code:` and a partition."""
        code, colon, rest = _limited(text).partition(":")
        if not colon:
            raise WireError(f"not a failure: {text[:200]!r}")
        return cls(_number(code), Partition.parse(rest))

    def __str__(self) -> str:
        return f"{self.code}:{self.partition}"


def parse_required(text: str) -> dict[PartitionKey, int]:
    """Read `key=offset,key=offset`: the start offsets of a bound group."""
    required = {}
    for part in _limited(text).split(","):
        if not part.strip():
            continue
        key, equals, offset = part.strip().partition("=")
        if not equals:
            raise WireError(f"not a required partition: {part[:200]!r}")
        required[PartitionKey.parse(key.strip())] = _number(offset.strip())
    return required


def parse_held(text: str) -> Iterator[PartitionKey]:
    """Read `topic#id:partition,id:partition`: the partitions of a client-balanced consumer.

    Lazily, so that a caller can stop at its limit.
    """
    topic, _, rest = text.partition("#")
    for part in rest.split(",") if rest else ():
        broker_id, partition_id = _numbers(part, 2)
        yield PartitionKey(broker_id, topic, partition_id)


def held_texts(keys: Iterable[PartitionKey]) -> list[str]:
    """Write what parse_held reads, a text for each topic."""
    by_topic: dict[str, list[str]] = {}
    for key in keys:
        by_topic.setdefault(key.topic, []).append(f"{key.broker_id}:{key.partition_id}")
    return [f"{topic}#{','.join(parts)}" for topic, parts in by_topic.items()]


def _limited(text: str) -> str:
    if len(text) > TEXT_LIMIT:
        raise WireError(f"a text of {len(text)} characters")
    return text


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _NUMBER_DIGITS:
        raise WireError(f"not a number: {text[:40]!r}")
    return int(text)


def _port(text: str) -> int:
    port = _number(text)
    if port > 65_535:
        raise WireError(f"port {port}")
    return port


def _numbers(text: str, count: int) -> list[int]:
    parts = text.split(":")
    if len(parts) != count:
        raise WireError(f"{count} numbers are expected, not {text[:200]!r}")
    return [_number(part) for part in parts]
