"""GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST: the topics of a namespace, and what changes.

A topic with numbered partitions is listed as its partitions, `...-partition-0` and so on; clients
put them together. The broker evaluates a pattern that `topic_patterns.py` can parse. For any other
pattern the list is complete and marked as not filtered, and a watch is refused, so that the client
polls. The hash is Pulsar's: a client whose hash is current gets no names.

Topics that are not persistent are in the lists of modes ALL and NON_PERSISTENT, those of this node
that are in use and those with numbered partitions; a watch is of persistent topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InvalidRequest, NotServed
from trilogue.broker.names import NamespaceName, TopicName, format_pulsar, parse_namespace
from trilogue.broker.topics.cluster import TopicEvent
from trilogue.broker.topics.lookup import numbered_partition_count
from trilogue.broker.topics.topic import Topic
from trilogue.entry.checksum import crc32c
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.metadata.topic_patterns import TopicPattern, UnsupportedPattern
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
)

GATHER_S = 0.1  # changes are sent together: each update hashes all names
NON_PERSISTENT = CommandGetTopicsOfNamespace.NON_PERSISTENT
PERSISTENT = CommandGetTopicsOfNamespace.PERSISTENT


def list_names(topic: Topic) -> list[str]:
    """Return the names of a topic's partitions, as clients list them."""
    return _list_names(topic.name, numbered_partition_count(topic))


def _list_names(name: TopicName, count: int) -> list[str]:
    if not count:
        return [format_pulsar(name)]
    return [format_pulsar(name, index) for index in range(count)]


def hash_names(names: Iterable[str]) -> str:
    """Return the hash of a list of topics: CRC-32C of the sorted names, little-endian, in hex."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


def handle_get_topics_of_namespace(
    connection: PulsarConnection, command: CommandGetTopicsOfNamespace, _frame: memoryview
) -> None:
    """Send the topics of a namespace that the client may describe."""
    namespace = parse_namespace(command.namespace)
    pattern = None
    if command.HasField("topics_pattern"):
        try:
            pattern = TopicPattern(command.topics_pattern)
        except UnsupportedPattern:
            pattern = None
    found: list[str] = []
    if command.mode != NON_PERSISTENT:
        for topic in _find_topics(connection, namespace, pattern):
            found += list_names(topic)
    if command.mode != PERSISTENT:
        found += _list_non_persistent(connection, namespace, pattern)
    digest = hash_names(found)
    same = command.topics_hash == digest
    connection.send_command(
        "getTopicsOfNamespaceResponse",
        request_id=command.request_id,
        topics=[] if same else found,
        filtered=pattern is not None,
        topics_hash=digest,
        changed=not same,
    )


def handle_watch_topic_list(
    connection: PulsarConnection, command: CommandWatchTopicList, _frame: memoryview
) -> None:
    """Send the topics of a namespace that match a pattern, and every later change of that list."""
    watches = connection.watches
    if len(watches) >= connection.gateway.settings.watchers_max:
        raise NotServed("the connection has as many watches as it may")
    if command.watcher_id in watches:
        raise InvalidRequest("a watch with this id exists")
    namespace = parse_namespace(command.namespace)
    try:
        pattern = TopicPattern(command.topics_pattern)
    except UnsupportedPattern as problem:
        raise NotServed(str(problem)) from problem
    watch = TopicListWatch(connection, command.watcher_id, namespace, pattern)
    watches[command.watcher_id] = watch
    found, digest = watch.begin()
    connection.send_command(
        "watchTopicListSuccess",
        request_id=command.request_id,
        watcher_id=command.watcher_id,
        topic=[] if command.topics_hash == digest else found,
        topics_hash=digest,
    )


def handle_watch_topic_list_close(
    connection: PulsarConnection, command: CommandWatchTopicListClose, _frame: memoryview
) -> None:
    """End a watch."""
    watch = connection.watches.pop(command.watcher_id, None)
    if watch is not None:
        watch.gone()
    connection.send_command("success", request_id=command.request_id)


class TopicListWatch:
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
        self._created: dict[str, None] = {}  # names that are not sent yet
        self._deleted: dict[str, None] = {}

    def begin(self) -> tuple[list[str], str]:
        """Return the current names and their hash, and follow changes from here on."""
        for topic in _find_topics(self._connection, self._namespace, self._pattern):
            self._known[topic.name] = numbered_partition_count(topic)
        self._connection.gateway.broker.cluster.listeners.append(self._changed)
        found = self._names()
        return found, hash_names(found)

    def _names(self) -> list[str]:
        return [each for name, count in self._known.items() for each in _list_names(name, count)]

    def gone(self) -> None:
        """Stop following changes."""
        self._connection.gateway.broker.cluster.listeners.remove(self._changed)
        if self._due is not None:
            self._due.cancel()

    def writable(self) -> None:
        """Send the changes that waited for the peer to read."""
        self._send()

    def _changed(self, event: TopicEvent, topic: Topic) -> None:
        if topic.name.namespace_name != self._namespace:
            return
        count = self._known.pop(topic.name, None)
        before = [] if count is None else _list_names(topic.name, count)
        after: list[str] = []
        if event is not TopicEvent.DELETED and _is_visible(self._connection, topic, self._pattern):
            self._known[topic.name] = numbered_partition_count(topic)
            after = list_names(topic)
        for name in after[len(before) :]:
            self._deleted.pop(name, None)
            self._created[name] = None
        for name in before[len(after) :]:
            self._created.pop(name, None)
            self._deleted[name] = None
        if self._due is None and (self._created or self._deleted):
            connection = self._connection
            send = partial(connection.guarded, self._send)
            self._due = connection.gateway.loop.call_later(GATHER_S, send)

    def _send(self) -> None:
        self._due = None
        if not (self._created or self._deleted) or self._connection.write_paused:
            return
        self._connection.send_command(
            "watchTopicUpdate",
            watcher_id=self._watcher_id,
            new_topics=list(self._created),
            deleted_topics=list(self._deleted),
            topics_hash=hash_names(self._names()),
        )
        self._created.clear()
        self._deleted.clear()


def _find_topics(
    connection: PulsarConnection, namespace: NamespaceName, pattern: TopicPattern | None
) -> list[Topic]:
    topics = connection.gateway.broker.cluster.topics_in(namespace)
    return [topic for topic in topics if _is_visible(connection, topic, pattern)]


def _list_non_persistent(
    connection: PulsarConnection, namespace: NamespaceName, pattern: TopicPattern | None
) -> list[str]:
    return [
        str(name)
        for name in connection.gateway.broker.non_persistent.names_in(namespace)
        if connection.can_see(Operation.DESCRIBE, ResourceKind.TOPIC, name.topic)
        and (pattern is None or pattern.matches(str(name.topic)))
    ]


def _is_visible(connection: PulsarConnection, topic: Topic, pattern: TopicPattern | None) -> bool:
    return (
        not topic.is_internal
        and connection.can_see(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name)
        and (pattern is None or pattern.matches(str(topic.name)))
    )
