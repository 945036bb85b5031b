"""GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST: the topics of a namespace, and what changes.

A topic with numbered partitions is listed as its partitions, `...-partition-0` and so on; clients
put them together. A pattern is evaluated here where `patterns.py` can read it; where not, the list
comes whole and says that it is not filtered, and a watch is refused, so that the client looks
from time to time. The hash is Pulsar's: a client that names the present one gets no names.

There are no topics that are not persistent, so that mode has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from crc32c import crc32c

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.cluster import Event
from trilogue.broker.errors import InvalidRequest, NotServed
from trilogue.broker.names import NamespaceName, TopicName, parse_namespace, spelled_pulsar
from trilogue.broker.naming import partitions_told
from trilogue.broker.topic import Topic
from trilogue.gateway.pulsar.patterns import TopicPattern, Unreadable
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
)

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection

GATHER_S = 0.1  # what changes within it is told at once: each time all names are hashed
NON_PERSISTENT = CommandGetTopicsOfNamespace.NON_PERSISTENT


def spelled(topic: Topic) -> list[str]:
    """A topic's names as clients list them."""
    return _spelled(topic.name, partitions_told(topic))


def _spelled(name: TopicName, count: int) -> list[str]:
    if not count:
        return [spelled_pulsar(name)]
    return [spelled_pulsar(name, index) for index in range(count)]


def hash_of(names: Iterable[str]) -> str:
    """What clients and brokers compare lists by: CRC-32C of the sorted names, low byte first."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


def names(
    connection: PulsarConnection, command: CommandGetTopicsOfNamespace, _frame: memoryview
) -> None:
    """List the topics of a namespace that the client may know of."""
    namespace = parse_namespace(command.namespace)
    pattern = None
    if command.HasField("topics_pattern"):
        try:
            pattern = TopicPattern(command.topics_pattern)
        except Unreadable:
            pattern = None
    found: list[str] = []
    if command.mode != NON_PERSISTENT:
        for topic in _seen(connection, namespace, pattern):
            found += spelled(topic)
    digest = hash_of(found)
    same = command.topics_hash == digest
    connection.say(
        "getTopicsOfNamespaceResponse",
        request_id=command.request_id,
        topics=[] if same else found,
        filtered=pattern is not None,
        topics_hash=digest,
        changed=not same,
    )


def watch(connection: PulsarConnection, command: CommandWatchTopicList, _frame: memoryview) -> None:
    """List the topics of a namespace that a pattern means, and tell of each that comes or goes."""
    watchers = connection.watchers
    if len(watchers) >= connection.door.settings.watchers_max:
        raise NotServed("a connection has no more watches than that")
    if command.watcher_id in watchers:
        raise InvalidRequest("there is a watch of this number")
    namespace = parse_namespace(command.namespace)
    try:
        pattern = TopicPattern(command.topics_pattern)
    except Unreadable as problem:
        raise NotServed(str(problem)) from problem
    watcher = Watcher(connection, command.watcher_id, namespace, pattern)
    watchers[command.watcher_id] = watcher
    found, digest = watcher.begin()
    connection.say(
        "watchTopicListSuccess",
        request_id=command.request_id,
        watcher_id=command.watcher_id,
        topic=[] if command.topics_hash == digest else found,
        topics_hash=digest,
    )


def unwatch(
    connection: PulsarConnection, command: CommandWatchTopicListClose, _frame: memoryview
) -> None:
    """Tell of changes no longer."""
    watcher = connection.watchers.pop(command.watcher_id, None)
    if watcher is not None:
        watcher.gone()
    connection.say("success", request_id=command.request_id)


class Watcher:
    """One watch of one connection."""

    def __init__(
        self,
        connection: PulsarConnection,
        watcher_id: int,
        namespace: NamespaceName,
        pattern: TopicPattern,
    ) -> None:
        self._connection = connection
        self._watcher_id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        self._known: dict[TopicName, int] = {}  # topics, and how many partitions (0: unnumbered)
        self._due: asyncio.TimerHandle | None = None
        self._came: dict[str, None] = {}  # what changed while the peer did not read
        self._went: dict[str, None] = {}

    def begin(self) -> tuple[list[str], str]:
        """What there is now, and its hash."""
        for topic in _seen(self._connection, self._namespace, self._pattern):
            self._known[topic.name] = partitions_told(topic)
        self._connection.door.broker.cluster.listeners.append(self._changed)
        found = self._names()
        return found, hash_of(found)

    def _names(self) -> list[str]:
        return [each for name, count in self._known.items() for each in _spelled(name, count)]

    def gone(self) -> None:
        """Nobody watches any more."""
        self._connection.door.broker.cluster.listeners.remove(self._changed)
        if self._due is not None:
            self._due.cancel()

    def writable(self) -> None:
        """Tell what has changed meanwhile."""
        self._tell()

    def _changed(self, event: Event, topic: Topic) -> None:
        if topic.name.home != self._namespace:
            return
        count = self._known.pop(topic.name, None)
        before = [] if count is None else _spelled(topic.name, count)
        after: list[str] = []
        if event is not Event.DELETED and _is_seen(self._connection, topic, self._pattern):
            self._known[topic.name] = partitions_told(topic)
            after = spelled(topic)
        for name in after[len(before) :]:
            self._went.pop(name, None)
            self._came[name] = None
        for name in before[len(after) :]:
            self._came.pop(name, None)
            self._went[name] = None
        if self._due is None and (self._came or self._went):
            connection = self._connection
            tell = partial(connection.guarded, self._tell)
            self._due = connection.door.loop.call_later(GATHER_S, tell)

    def _tell(self) -> None:
        self._due = None
        if not (self._came or self._went) or self._connection.write_paused:
            return
        self._connection.say(
            "watchTopicUpdate",
            watcher_id=self._watcher_id,
            new_topics=list(self._came),
            deleted_topics=list(self._went),
            topics_hash=hash_of(self._names()),
        )
        self._came.clear()
        self._went.clear()


def _seen(
    connection: PulsarConnection, namespace: NamespaceName, pattern: TopicPattern | None
) -> list[Topic]:
    topics = connection.door.broker.cluster.topics_in(namespace)
    return [topic for topic in topics if _is_seen(connection, topic, pattern)]


def _is_seen(connection: PulsarConnection, topic: Topic, pattern: TopicPattern | None) -> bool:
    return connection.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name) and (
        pattern is None or pattern.matches(str(topic.name))
    )
