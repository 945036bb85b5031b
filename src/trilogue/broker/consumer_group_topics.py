"""Which topics the members of a consumer group want: by name, and by patterns of names (KIP-848).

Patterns are RE2, whose time and memory grow with the length of the text and never explode: they
come from whoever may join a group, so Python's own `re` would let one request stop the broker. A
pattern must match a whole name, as Kafka clients spell it.

Names that match are found once for each pattern and kept while topics come and go, so that a new
topic costs one match per pattern and not a walk through all topics. What a member may not see
(the authorizer's affair) is left out when a member beats, not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple
from typing import Protocol as Port

from trilogue.broker.errors import InvalidPattern
from trilogue.broker.names import TopicName, kafka_can_spell, spelled_kafka
from trilogue.broker.topic import Topic

PATTERN_SIZE_MAX = 4_096  # characters
PATTERN_MEMORY_MAX = 1 << 20  # bytes of a compiled pattern and its states
PATTERNS_KEPT = 256  # compiled ones, of all groups


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


class Wanted:
    """The topics that members of one group want, counted, and what is known of them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._names: Counter[TopicName] = Counter()
        self._patterns: Counter[str] = Counter()
        self._matched: dict[str, frozenset[TopicName]] = {}
        self.view: View = {}
        self.stale = False  # whether topics have changed since `view` was made

    def change(
        self,
        before: tuple[frozenset[TopicName], str],
        after: tuple[frozenset[TopicName], str],
    ) -> None:
        """Count what a member wanted no more, and what it wants now."""
        if before == after:
            return
        for name in after[0] - before[0]:
            self._names[name] += 1
        for name in before[0] - after[0]:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        if before[1] != after[1]:
            self._want_pattern(before[1], -1)
            self._want_pattern(after[1], 1)

    def of(self, names: frozenset[TopicName], pattern: str) -> frozenset[TopicName]:
        """All topics, also such as do not exist, that these names and this pattern mean."""
        return names | self._matched[pattern] if pattern else names

    def reads(self, name: TopicName) -> bool:
        """Whether some member wants this topic."""
        return name in self._names or any(name in names for names in self._matched.values())

    def note(self, topic: Topic, *, gone: bool) -> None:
        """Hear that a topic was made, changed or deleted."""
        name = topic.name
        for pattern, names in self._matched.items():
            if gone and name in names:
                self._matched[pattern] = names - {name}
                self.stale = True
            elif not gone and name not in names and _matches(pattern, name):
                self._matched[pattern] = names | {name}
                self.stale = True
        if name in self._names or name in self.view:
            self.stale = True

    def look(self, may_see: Callable[[TopicName], bool]) -> bool:
        """Look at the topics anew; True when something is not as before.

        `may_see` says which of the topics that patterns match may be told of.
        """
        self.stale = False
        wanted = set(self._names)
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

    def _want_pattern(self, pattern: str, more: int) -> None:
        if not pattern:
            return
        self._patterns[pattern] += more
        if not self._patterns[pattern]:
            del self._patterns[pattern], self._matched[pattern]
        elif pattern not in self._matched:
            self._matched[pattern] = frozenset(
                topic.name for topic in self._topics if _matches(pattern, topic.name)
            )


def _matches(pattern: str, name: TopicName) -> bool:
    return kafka_can_spell(name) and compile_pattern(pattern)(spelled_kafka(name)) is not None
