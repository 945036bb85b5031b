"""GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST: the topics of a namespace, and what changes.

A topic with numbered partitions is listed as its partitions, `...-partition-0` and so on; clients
put them together. The broker evaluates a pattern that `topic_patterns.py` can parse. For any other
pattern the list is complete and marked as not filtered, and a watch is refused, so that the client
polls. The hash is Pulsar's: a client whose hash is current gets no names.

A list of many names is made in steps, one list of all connections at a time; its connection is not
read meanwhile.

Topics that are not persistent are in the lists of modes ALL and NON_PERSISTENT, those of this node
that are in use and those with numbered partitions; a watch is of persistent topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InvalidRequest, NotServed
from trilogue.broker.names import NamespaceName, TopicName, format_pulsar, parse_namespace
from trilogue.broker.topics.cluster import TopicEvent
from trilogue.broker.topics.lookup import numbered_partition_count
from trilogue.broker.topics.topic import Topic
from trilogue.entry.checksum import crc32c
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.metadata.topic_patterns import TopicPattern, UnsupportedPattern
from trilogue.gateway.steps import next_step, run_in_turns
from trilogue.log.steps import Steps
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
)

GATHER_S = 0.1  # changes are sent together: each update hashes all names
NAMES_PER_STEP = 2_000  # of a list: about a millisecond
NON_PERSISTENT = CommandGetTopicsOfNamespace.NON_PERSISTENT
PERSISTENT = CommandGetTopicsOfNamespace.PERSISTENT


def list_names(topic: Topic) -> list[str]:
    """Return the names of a topic's partitions, as clients list them."""
    return _list_names(topic.name, numbered_partition_count(topic))


def _list_names(name: TopicName, count: int) -> list[str]:
    if not count:
        return [format_pulsar(name)]
    first = format_pulsar(name, 0).removesuffix("0")
    return [f"{first}{index}" for index in range(count)]


def _size_of(topic: Topic) -> int:
    """How many names a topic has in a list, at least one for looking at it."""
    return max(1, numbered_partition_count(topic))


def hash_names(names: Iterable[str]) -> str:
    """Return the hash of a list of topics: CRC-32C of the sorted names, little-endian, in hex."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


def handle_get_topics_of_namespace(
    connection: PulsarConnection, command: CommandGetTopicsOfNamespace, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Send the topics of a namespace that the client may describe."""
    return _begin_list(connection, _send_topics(connection, command))


def _send_topics(connection: PulsarConnection, command: CommandGetTopicsOfNamespace) -> Steps[None]:
    namespace = parse_namespace(command.namespace)
    pattern = None
    if command.HasField("topics_pattern"):
        try:
            pattern = TopicPattern(command.topics_pattern)
        except UnsupportedPattern:
            pattern = None
    found: list[str] = []
    if command.mode != NON_PERSISTENT:
        size, cluster = 0, connection.gateway.broker.cluster
        if len(cluster) > NAMES_PER_STEP:
            yield
        for topic in cluster.topics_in(namespace):
            size += _size_of(topic)
            if size > NAMES_PER_STEP:
                size = 0
                yield
            if _is_visible(connection, topic, pattern):
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


def _begin_list(
    connection: PulsarConnection, steps: Steps[None]
) -> Coroutine[Any, Any, None] | None:
    """Run the first step; return a coroutine for the rest, if there is more.

    Its connection is not read until the list is sent, so that it has one at a time.
    """
    try:
        next(steps)
    except StopIteration:
        return None
    connection.begin_request(connection.bounds.request_bytes)
    return _end_list(connection, steps)


async def _end_list(connection: PulsarConnection, steps: Steps[None]) -> None:
    try:
        async with connection.gateway.long_lists:
            await next_step()
            if not connection.is_gone:
                await run_in_turns(steps)
    finally:
        connection.end_request(connection.bounds.request_bytes)


def handle_watch_topic_list(
    connection: PulsarConnection, command: CommandWatchTopicList, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Send the topics of a namespace that match a pattern, and every later change of that list."""
    watches = connection.watches
    gateway = connection.gateway
    if len(watches) >= gateway.settings.watchers_max:
        raise NotServed("the connection has as many watches as it may")
    if gateway.watches >= gateway.settings.all_watchers_max:
        raise NotServed("the node has as many watches as it may")
    if command.watcher_id in watches:
        raise InvalidRequest("a watch with this id exists")
    namespace = parse_namespace(command.namespace)
    try:
        pattern = TopicPattern(command.topics_pattern)
    except UnsupportedPattern as problem:
        raise NotServed(str(problem)) from problem
    watch = TopicListWatch(connection, command.watcher_id, namespace, pattern)
    watches[command.watcher_id] = watch
    return _begin_list(connection, _send_watched(connection, command, watch))


def _send_watched(
    connection: PulsarConnection, command: CommandWatchTopicList, watch: TopicListWatch
) -> Steps[None]:
    try:
        found = yield from watch.begin()
    except NotServed:
        connection.watches.pop(command.watcher_id, None)
        watch.gone()
        raise
    digest = hash_names(found)
    connection.send_command(
        "watchTopicListSuccess",
        request_id=command.request_id,
        watcher_id=command.watcher_id,
        topic=[] if command.topics_hash == digest else found,
        topics_hash=digest,
    )
    watch.follow()


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
        self._is_gathering = self._is_following = self._is_sending = self._is_gone = False
        connection.gateway.watches += 1

    def begin(self) -> Steps[list[str]]:
        """Return the current names, and gather changes from here on; NotServed."""
        gateway = self._connection.gateway
        if len(gateway.broker.cluster) > NAMES_PER_STEP:
            yield
        if self._is_gone:
            return []
        for topic in gateway.broker.cluster.topics_in(self._namespace):
            if _is_visible(self._connection, topic, self._pattern):
                self._known[topic.name] = numbered_partition_count(topic)
        gateway.watched_topics += len(self._known)
        if gateway.watched_topics > gateway.settings.watched_topics_max:
            raise NotServed("the watches of the node list as many topics as they may")
        gateway.broker.cluster.listeners.append(self._changed)
        self._is_gathering = True
        found: list[str] = []
        size = 0
        for name, count in list(self._known.items()):
            size += count
            if size > NAMES_PER_STEP:
                size = 0
                yield
            found += _list_names(name, count)
        return found

    def follow(self) -> None:
        """Send what changes, and what has changed while the names were sent."""
        self._is_following = not self._is_gone
        self._send()

    def gone(self) -> None:
        """Stop following changes."""
        if self._is_gone:
            return
        gateway = self._connection.gateway
        self._is_gone, self._is_following = True, False
        gateway.watches -= 1
        gateway.watched_topics -= len(self._known)
        if self._is_gathering:
            gateway.broker.cluster.listeners.remove(self._changed)
        if self._due is not None:
            self._due.cancel()

    def writable(self) -> None:
        """Send the changes that waited for the peer to read."""
        self._send()

    def _changed(self, event: TopicEvent, topic: Topic) -> None:
        if topic.name.namespace_name != self._namespace:
            return
        gateway = self._connection.gateway
        gateway.watched_topics -= len(self._known)
        count = self._known.pop(topic.name, None)
        before = [] if count is None else _list_names(topic.name, count)
        after: list[str] = []
        if event is not TopicEvent.DELETED and _is_visible(self._connection, topic, self._pattern):
            self._known[topic.name] = numbered_partition_count(topic)
            after = list_names(topic)
        gateway.watched_topics += len(self._known)
        if gateway.watched_topics > 2 * gateway.settings.watched_topics_max:
            self._connection.stream.abort("watch.too_many_topics")
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
        if not self._is_following or self._is_sending or not (self._created or self._deleted):
            return
        names = sum(self._known.values()) + len(self._known)
        if names * self._connection.gateway.watches <= NAMES_PER_STEP:
            self._send_update()
        else:  # each update hashes all names, and all watches have theirs at once
            self._is_sending = True
            self._connection.spawn(self._send_in_turn())

    async def _send_in_turn(self) -> None:
        await next_step()
        self._is_sending = False
        if self._is_following and not self._connection.is_gone:
            self._send_update()

    def _send_update(self) -> None:
        if self._connection.write_paused:
            return
        names = [each for name, count in self._known.items() for each in _list_names(name, count)]
        self._connection.send_command(
            "watchTopicUpdate",
            watcher_id=self._watcher_id,
            new_topics=list(self._created),
            deleted_topics=list(self._deleted),
            topics_hash=hash_names(names),
        )
        self._created.clear()
        self._deleted.clear()


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
