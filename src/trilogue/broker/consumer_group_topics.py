"""Which topics the members of a consumer group want: by name, and by patterns of names (KIP-848).

Patterns are RE2, whose time and memory grow with the length of the text and never explode: they
come from whoever may join a group, so Python's own `re` would let one request stop the broker. A
pattern must match a whole name, as Kafka clients spell it.

Names that match are found once for each pattern and kept while topics come and go: a group reads
what has happened to topics (`TopicNews`) when one of its members beats, so that a new topic costs
one match per pattern and not a walk through all topics. What a member may not see (the authorizer's
affair) is left out when a member beats, not here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple
from typing import Protocol as Port

from trilogue.broker.errors import GroupMaxSize, InvalidPattern
from trilogue.broker.names import TopicName, kafka_can_spell, spelled_kafka
from trilogue.broker.topic import Topic

PATTERN_SIZE_MAX = 4_096  # characters
PATTERN_MEMORY_MAX = 1 << 20  # bytes of a compiled pattern and its states
PATTERNS_KEPT = 256  # compiled ones, of all groups
PATTERNS_MAX = 100  # different ones in a group
NAMES_MAX = 100_000  # in all different sets of names in a group
NEWS_KEPT = 10_000


class Topics(Port):
    """What consumer groups need of the cluster."""

    def find(self, name: TopicName, /) -> Topic | None:
        """Return a topic if there is one."""

    def __iter__(self) -> Iterator[Topic]:
        """All topics."""


class Seen(NamedTuple):
    """A topic as a group has seen it: another id or another number of partitions is news."""

    topic_id: bytes
    partition_count: int


View = Mapping[TopicName, Seen]
Matches = Callable[[str], object]


@lru_cache(PATTERNS_KEPT)
def compile_pattern(pattern: str) -> Matches:
    """Return what matches whole names, or refuse what RE2 does not understand."""
    import re2  # not needed by a node whose clients name their topics

    if len(pattern) > PATTERN_SIZE_MAX:
        raise InvalidPattern(f"a pattern has at most {PATTERN_SIZE_MAX} characters")
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise InvalidPattern(f"the pattern {pattern!r} is not valid: {text}") from error
    matches: Matches = compiled.fullmatch
    return matches


class TopicNews:
    """What has happened to topics lately, each with its number. Groups read on from where they are.

    The oldest news are forgotten: who is so far behind looks at all topics.
    """

    def __init__(self, kept_max: int = NEWS_KEPT) -> None:
        self._news: deque[tuple[TopicName, bool]] = deque(maxlen=kept_max)
        self.end = 0  # the number of the next one

    def add(self, name: TopicName, *, gone: bool) -> None:
        """A topic was made or changed, or is gone."""
        self._news.append((name, gone))
        self.end += 1

    def since(self, number: int) -> list[tuple[TopicName, bool]] | None:
        """Return the names from this number on, and whether each was gone; None: too far back."""
        behind = self.end - number
        if behind > len(self._news):
            return None
        return list(islice(self._news, len(self._news) - behind, None)) if behind else []


Wants = tuple[frozenset[TopicName], str]  # topics by name, and the pattern ("" is none)
NOTHING_WANTED: Wants = (frozenset(), "")


class Wanted:
    """The topics that members of one group want, and what is known of them.

    Members that want the same topics share one set of names.
    """

    def __init__(self, topics: Topics, news: TopicNews) -> None:
        self._topics = topics
        self._news = news
        self._seen = news.end
        self._sets: dict[
            frozenset[TopicName], list[Any]
        ] = {}  # -> the set itself, how many want it
        self._patterns: Counter[str] = Counter()
        self._matched: dict[str, frozenset[TopicName]] = {}
        self.view: View = {}
        self._stale = False  # whether `view` may not be true any more

    def check_room(self, wants: Wants) -> None:
        """Refuse more names or patterns than a group may have."""
        names, pattern = wants
        if names not in self._sets and sum(map(len, self._sets)) + len(names) > NAMES_MAX:
            raise GroupMaxSize(f"the members of a group may name {NAMES_MAX} topics")
        if pattern and pattern not in self._patterns and len(self._patterns) >= PATTERNS_MAX:
            raise GroupMaxSize(f"the members of a group may have {PATTERNS_MAX} patterns")

    def share(self, names: frozenset[TopicName]) -> frozenset[TopicName]:
        """Return the same set that other members have, if there is one."""
        found: frozenset[TopicName] = self._sets.get(names, (names,))[0]
        return found

    def change(self, before: Wants, after: Wants) -> None:
        """Count what a member wanted no more, and what it wants now."""
        self._stale = True
        if after[0]:
            self._sets.setdefault(after[0], [after[0], 0])[1] += 1
        if before[0]:
            entry = self._sets[before[0]]
            entry[1] -= 1
            if not entry[1]:
                del self._sets[before[0]]
        self._want_pattern(after[1], 1)
        self._want_pattern(before[1], -1)

    def of(self, wants: Wants) -> frozenset[TopicName]:
        """All topics, also such as do not exist, that these names and this pattern mean."""
        names, pattern = wants
        return names | self._matched[pattern] if pattern else names

    def names(self) -> set[TopicName]:
        """All topics that some member wants."""
        self._read_news()
        return set().union(*self._sets, *self._matched.values())

    def look(self, may_see: Callable[[TopicName], bool]) -> bool:
        """Look at the topics anew if need be; True when something is not as before.

        `may_see` says which of the topics that patterns match may be told of.
        """
        self._read_news()
        if not self._stale:
            return False
        self._stale = False
        wanted = set().union(*self._sets)
        for names in self._matched.values():
            wanted.update(name for name in names if name in self.view or may_see(name))
        found = {name: self._topics.find(name) for name in wanted}
        view = {
            name: Seen(topic.topic_id, len(topic.partitions))
            for name, topic in found.items()
            if topic is not None
        }
        changed = view != self.view
        self.view = view
        return changed

    def _read_news(self) -> None:
        news = self._news.since(self._seen)
        self._seen = self._news.end
        if news is None:
            self._stale = True
            self._matched = {pattern: self._match(pattern) for pattern in self._matched}
            return
        for name, gone in news:
            for pattern, names in self._matched.items():
                if gone and name in names:
                    self._matched[pattern] = names - {name}
                    self._stale = True
                elif not gone and name not in names and _matches(pattern, name):
                    self._matched[pattern] = names | {name}
                    self._stale = True
            if name in self.view or any(name in names for names in self._sets):
                self._stale = True

    def _want_pattern(self, pattern: str, more: int) -> None:
        if not pattern:
            return
        self._patterns[pattern] += more
        if not self._patterns[pattern]:
            del self._patterns[pattern], self._matched[pattern]
        elif pattern not in self._matched:
            self._read_news()
            self._matched[pattern] = self._match(pattern)

    def _match(self, pattern: str) -> frozenset[TopicName]:
        return frozenset(topic.name for topic in self._topics if _matches(pattern, topic.name))


def _matches(pattern: str, name: TopicName) -> bool:
    return kafka_can_spell(name) and compile_pattern(pattern)(spelled_kafka(name)) is not None
