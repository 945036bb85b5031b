"""Names of topics that differ in `.` and `_` only.

Kafka refuses to create the second of them, because its metrics cannot tell them apart. Topics that
other protocols' clients create are not limited by this rule, but they count.
"""

from __future__ import annotations

from trilogue.broker.errors import InvalidName
from trilogue.broker.names import INTERNAL_TOPICS, TopicName, format_kafka
from trilogue.broker.topics.cluster import Cluster, TopicEvent
from trilogue.broker.topics.topic import Topic


class NameCollisions:
    """The topics whose names have a `.` or a `_`; looked up at the first check, then followed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[TopicName, set[TopicName]] | None = None

    def check(self, name: TopicName) -> None:
        """Raise InvalidName for a new topic with such a name."""
        if name in INTERNAL_TOPICS or not _has_separator(name):
            return
        if self._known is None:
            self._known = {}
            for topic in self._cluster:
                self._add(topic.name)
            self._cluster.listeners.append(self._topic_changed)
        for other in self._known.get(_normalize(name), ()):
            if other != name and self._cluster.find_topic(other) is not None:
                raise InvalidName(
                    f"Topic '{format_kafka(name)}' collides with existing topic: "
                    f"{format_kafka(other)}"
                )

    def _topic_changed(self, event: TopicEvent, topic: Topic) -> None:
        if event is TopicEvent.CREATED:
            self._add(topic.name)
        elif event is TopicEvent.DELETED and self._cluster.find_topic(topic.name) is None:
            self._remove(topic.name)

    def _add(self, name: TopicName) -> None:
        if self._known is not None and _has_separator(name):
            self._known.setdefault(_normalize(name), set()).add(name)

    def _remove(self, name: TopicName) -> None:
        if self._known is not None and (names := self._known.get(_normalize(name))) is not None:
            names.discard(name)
            if not names:
                del self._known[_normalize(name)]


def _has_separator(name: TopicName) -> bool:
    return "." in name.name or "_" in name.name


def _normalize(name: TopicName) -> TopicName:
    return name._replace(name=name.name.replace(".", "_"))
