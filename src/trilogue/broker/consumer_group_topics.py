"""Which topics the members of one consumer group want: by name, and by patterns of names.

A group reads what has happened to topics (`TopicNews`) when one of its members beats: news of
topics that nobody wants cost a look at the group's sets and patterns. Only when something has
happened to topics that are wanted, or when other things are wanted, it looks at its topics anew, in
steps (`look`). What a member may not see (the authorizer's affair) is left out then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from trilogue.broker.consumer_group_load import Load
from trilogue.broker.consumer_group_patterns import Patterns, Topics
from trilogue.broker.consumer_group_steps import STEP, Turns
from trilogue.broker.errors import GroupMaxSize
from trilogue.broker.group_members import Timers
from trilogue.broker.names import TopicName
from trilogue.log.steps import Steps

PATTERNS_MAX = 100  # different ones in a group
NAMES_MAX = 100_000  # in all different sets of names in a group
NEWS_KEPT = 10_000


class Seen(NamedTuple):
    """A topic as a group has seen it: another id or another number of partitions is news."""

    topic_id: bytes
    partition_count: int


View = Mapping[TopicName, Seen]


class TopicNews:
    """What has happened to topics lately, each with its number. Groups read on from where they are.

    The oldest news are forgotten: who is so far behind looks at all topics.
    """

    def __init__(self, kept_max: int = NEWS_KEPT) -> None:
        self._news: deque[TopicName] = deque(maxlen=kept_max)
        self.end = 0  # the number of the next one

    def add(self, name: TopicName) -> None:
        """A topic was made or changed, or is gone."""
        self._news.append(name)
        self.end += 1

    def since(self, number: int) -> list[TopicName] | None:
        """Return the names from this number on; None: too far back."""
        behind = self.end - number
        if behind > len(self._news):
            return None
        return list(islice(self._news, len(self._news) - behind, None)) if behind else []


class Commons:
    """What all consumer groups of a node have in common: topics, their load, and turns of work."""

    def __init__(
        self, topics: Topics, timers: Timers, load: Load, kept_max: int = NEWS_KEPT
    ) -> None:
        self.topics = topics
        self.timers = timers
        self.load = load
        self.turns = Turns(timers)
        self.news = TopicNews(kept_max)
        self.patterns = Patterns(topics, self.turns)

    def note(self, name: TopicName, *, gone: bool) -> None:
        """Hear that a topic was made or changed, or is gone."""
        self.patterns.note(name, gone=gone)
        self.news.add(name)


Wants = tuple[frozenset[TopicName], str]  # topics by name, and the pattern ("" is none)
NOTHING_WANTED: Wants = (frozenset(), "")


class Wanted:
    """The topics that members of one group want, and what is known of them.

    Members that want the same topics share one set of names.
    """

    def __init__(self, commons: Commons) -> None:
        self._commons = commons
        self._seen = commons.news.end
        # -> the set itself, how many want it
        self._sets: dict[frozenset[TopicName], list[Any]] = {}
        self._patterns: Counter[str] = Counter()
        self._unfinished: set[str] = set()  # patterns that were not yet held against all topics
        self._named = 0  # names in all sets
        self.view: View = {}
        self._partitions = 0  # in `view`
        self._stale = False  # whether `view` may not be true any more

    @property
    def size(self) -> int:
        """Names, topics seen and their partitions: what a group takes of memory grows with it."""
        return self._named + len(self.view) + self._partitions

    def check_room(self, wants: Wants) -> None:
        """Refuse more names or patterns than a group may have, or all groups."""
        names, pattern = wants
        if names and names not in self._sets:
            if self._named + len(names) > NAMES_MAX:
                raise GroupMaxSize(f"the members of a group may name {NAMES_MAX} topics")
            self._commons.load.check_room(len(names))
        if pattern and pattern not in self._patterns:
            if len(self._patterns) >= PATTERNS_MAX:
                raise GroupMaxSize(f"the members of a group may have {PATTERNS_MAX} patterns")
            self._commons.patterns.check_room(pattern)
            self._commons.load.check_room(0)

    def share(self, names: frozenset[TopicName]) -> frozenset[TopicName]:
        """Return the same set that other members have, if there is one."""
        found: frozenset[TopicName] = self._sets.get(names, (names,))[0]
        return found

    def change(self, before: Wants, after: Wants) -> None:
        """Count what a member wanted no more, and what it wants now."""
        self._want_names(after[0], 1)
        self._want_names(before[0], -1)
        self._want_pattern(after[1], 1)
        self._want_pattern(before[1], -1)

    def includes(self, name: TopicName) -> bool:
        """Whether some member wants a topic, which may not exist."""
        return any(name in names for names in self._sets) or any(
            (found := self._commons.patterns.find(each)) is not None and name in found.names
            for each in self._patterns
        )

    def forget(self) -> None:
        """Hear that nobody is left."""
        self.view, self._partitions, self._stale = {}, 0, True

    def is_stale(self) -> bool:
        """Whether the topics should be looked at anew."""
        news = self._commons.news.since(self._seen)
        self._seen = self._commons.news.end
        if news is None or any(name in self.view or self.includes(name) for name in news):
            self._stale = True
        for pattern in self._unfinished:
            found = self._commons.patterns.find(pattern)
            if found is None or found.done:
                self._stale = True
        return self._stale

    def look(self, may_see: Callable[[TopicName], bool]) -> Steps[bool]:
        """Look at the topics anew; True when something is not as before.

        `may_see` says which of the topics that patterns match may be told of.
        """
        self._stale = False
        self._unfinished.clear()
        before, view = self.view, dict[TopicName, Seen]()
        for names in list(self._sets):
            yield from self._see(names, view)
        for pattern in list(self._patterns):
            found = self._commons.patterns.find(pattern)
            if found is None:
                continue
            if not found.done:
                self._unfinished.add(pattern)
            for portion in _portions(found.names):
                fresh = [name for name in portion if name not in view]
                seen = [name for name in fresh if name in before or may_see(name)]
                yield from self._see(seen, view)
                if len(portion) == STEP:
                    yield
        self.view = view
        self._partitions = sum(seen.partition_count for seen in view.values())
        return view != before

    def ids(self, wants: Wants) -> Steps[frozenset[bytes]]:
        """The ids of all topics seen that these names and this pattern mean."""
        names, pattern = wants
        found = self._commons.patterns.find(pattern) if pattern else None
        ids: set[bytes] = set()
        for some in (names, found.names if found else ()):
            for portion in _portions(some):
                ids.update(self.view[name].topic_id for name in portion if name in self.view)
                if len(portion) == STEP:
                    yield
        return frozenset(ids)

    def _see(self, names: Iterable[TopicName], view: dict[TopicName, Seen]) -> Steps[None]:
        for portion in _portions(names):
            for name in portion:
                topic = self._commons.topics.find(name)
                if topic is not None:
                    view[name] = Seen(topic.topic_id, len(topic.partitions))
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
            self._commons.patterns.want(pattern)
        self._patterns[pattern] += more
        if not self._patterns[pattern]:
            self._stale = True
            self._commons.patterns.leave(pattern)
            del self._patterns[pattern]


def _portions(names: Iterable[TopicName]) -> Iterable[list[TopicName]]:
    """The names as they are at this moment, so many at a time that each is a step."""
    every = list(names)
    return (every[start : start + STEP] for start in range(0, len(every), STEP))
