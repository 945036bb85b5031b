"""Which topics the members of one consumer group want: by name, and by patterns of names.

A group reads what has happened to topics (`TopicChanges`) when one of its members beats: news of
other topics cost a lookup in the group's sets and patterns. Only when something has
happened to subscribed topics, or when subscriptions change, it looks up its topics again, in
steps (`refresh_view`). What a member may not see (the authorizer's affair) is left out then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from trilogue.broker.errors import GroupMaxSize
from trilogue.broker.groups.consumer.context import ConsumerGroupContext
from trilogue.broker.groups.consumer.steps import STEP
from trilogue.broker.names import TopicName
from trilogue.log.steps import Steps

PATTERNS_MAX = 100  # different ones in a group
NAMES_MAX = 100_000  # in all different sets of names in a group


class SubscribedTopic(NamedTuple):
    """A topic as a group has seen it: another id or another number of partitions is news."""

    topic_id: bytes
    partition_count: int


TopicView = Mapping[TopicName, SubscribedTopic]


TopicSubscription = tuple[frozenset[TopicName], str]  # topics by name, and the pattern ("" is none)
NO_TOPICS: TopicSubscription = (frozenset(), "")


class SubscribedTopics:
    """The topics that members of one group want, and what is known of them.

    Members that want the same topics share one set of names.
    """

    def __init__(self, context: ConsumerGroupContext) -> None:
        self._context = context
        self._seen = context.news.end
        # -> the set itself, how many want it
        self._sets: dict[frozenset[TopicName], list[Any]] = {}
        self._patterns: Counter[str] = Counter()
        self._unfinished: set[str] = set()  # patterns that were not yet held against all topics
        self._named = 0  # names in all sets
        self.view: TopicView = {}
        self._partitions = 0  # in `view`
        self._stale = False  # whether `view` may not be true any more

    @property
    def size(self) -> int:
        """Names, topics seen and their partitions: what a group takes of memory grows with it."""
        return self._named + len(self.view) + self._partitions

    def check_room(self, subscription: TopicSubscription) -> None:
        """Refuse more names or patterns than a group may have, or all groups."""
        names, pattern = subscription
        if names and names not in self._sets:
            if self._named + len(names) > NAMES_MAX:
                raise GroupMaxSize(f"the members of a group may name {NAMES_MAX} topics")
            self._context.load.check_room(len(names))
        if pattern and pattern not in self._patterns:
            if len(self._patterns) >= PATTERNS_MAX:
                raise GroupMaxSize(f"the members of a group may have {PATTERNS_MAX} patterns")
            self._context.patterns.check_room(pattern)
            self._context.load.check_room(0)

    def share(self, names: frozenset[TopicName]) -> frozenset[TopicName]:
        """Return the same set that other members have, if there is one."""
        found: frozenset[TopicName] = self._sets.get(names, (names,))[0]
        return found

    def change(self, before: TopicSubscription, after: TopicSubscription) -> None:
        """Count what a member wanted no more, and what it wants now."""
        self._want_names(after[0], 1)
        self._want_names(before[0], -1)
        self._want_pattern(after[1], 1)
        self._want_pattern(before[1], -1)

    def includes(self, name: TopicName) -> bool:
        """Whether some member wants a topic, which may not exist."""
        return any(name in names for names in self._sets) or any(
            (found := self._context.patterns.find_matches(each)) is not None and name in found.names
            for each in self._patterns
        )

    def forget(self) -> None:
        """Clear what is known of topics: the group has no members."""
        self.view, self._partitions, self._stale = {}, 0, True

    def clear(self) -> None:
        """Want nothing any more: the group has ended."""
        for pattern in self._patterns:
            self._context.patterns.leave(pattern)
        self._sets.clear()
        self._patterns.clear()
        self._named = 0
        self.forget()

    def is_stale(self) -> bool:
        """Whether the topics should be looked up again."""
        news = self._context.news.since(self._seen)
        self._seen = self._context.news.end
        if news is None or any(name in self.view or self.includes(name) for name in news):
            self._stale = True
        for pattern in self._unfinished:
            found = self._context.patterns.find_matches(pattern)
            if found is None or found.done:
                self._stale = True
        return self._stale

    def refresh_view(self, may_see: Callable[[TopicName], bool]) -> Steps[bool]:
        """Look up the topics again; True when something is not as before.

        `may_see` decides which of the topics that patterns match are visible.
        """
        self._stale = False
        self._unfinished.clear()
        before, view = self.view, dict[TopicName, SubscribedTopic]()
        for names in list(self._sets):
            yield from self._see(names, view)
        for pattern in list(self._patterns):
            found = self._context.patterns.find_matches(pattern)
            if found is None:
                continue
            if not found.done:
                self._unfinished.add(pattern)
            for portion in _chunks(found.names):
                fresh = [name for name in portion if name not in view]
                seen = [name for name in fresh if name in before or may_see(name)]
                yield from self._see(seen, view)
                if len(portion) == STEP:
                    yield
        self.view = view
        self._partitions = sum(seen.partition_count for seen in view.values())
        return view != before

    def ids(self, subscription: TopicSubscription) -> Steps[frozenset[bytes]]:
        """The ids of all topics seen that these names and this pattern mean."""
        names, pattern = subscription
        found = self._context.patterns.find_matches(pattern) if pattern else None
        ids: set[bytes] = set()
        for some in (names, found.names if found else ()):
            for portion in _chunks(some):
                ids.update(self.view[name].topic_id for name in portion if name in self.view)
                if len(portion) == STEP:
                    yield
        return frozenset(ids)

    def _see(
        self, names: Iterable[TopicName], view: dict[TopicName, SubscribedTopic]
    ) -> Steps[None]:
        for portion in _chunks(names):
            for name in portion:
                topic = self._context.topics.find_topic(name)
                if topic is not None:
                    view[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
            if len(portion) == STEP:
                yield

    def _want_names(self, names: frozenset[TopicName], more: int) -> None:
        if not names:
            return
        entry = self._sets.setdefault(names, [names, 0])
        if not entry[1]:
            self._named += len(names)
            self._stale = True
        entry[1] += more
        if not entry[1]:
            self._named -= len(names)
            self._stale = True
            del self._sets[names]

    def _want_pattern(self, pattern: str, more: int) -> None:
        if not pattern:
            return
        if pattern not in self._patterns:
            self._stale = True
            self._context.patterns.want(pattern)
        self._patterns[pattern] += more
        if not self._patterns[pattern]:
            self._stale = True
            self._context.patterns.leave(pattern)
            del self._patterns[pattern]


def _chunks(names: Iterable[TopicName]) -> Iterable[list[TopicName]]:
    """The names as they are at this moment, so many at a time that each is a step."""
    every = list(names)
    return (every[start : start + STEP] for start in range(0, len(every), STEP))
