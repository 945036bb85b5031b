"""Which topics the patterns of consumer groups mean (KIP-848), kept for all groups of a node.

Patterns are RE2, whose time and memory grow with the length of the text and never explode: they
come from any client that may join a group, where Python's `re` would let one stop the broker. A
pattern must match a whole name, as Kafka clients spell it.

A new pattern is held against all topics once, in steps, whatever groups have it; after that each
topic that comes is held against each pattern once. What a member may not see (the authorizer's
affair) is left out by groups, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Protocol as Port

from trilogue.broker.errors import GroupMaxSize, InvalidPattern
from trilogue.broker.groups.consumer.steps import STEP, StepScheduler
from trilogue.broker.names import TopicName, format_kafka, is_kafka_name
from trilogue.broker.topics.topic import Topic
from trilogue.log.steps import Steps

PATTERN_SIZE_MAX = 4_096  # characters
PATTERN_MEMORY_MAX = 1 << 20  # bytes of a compiled pattern and its states
PATTERNS_KEPT = 256  # compiled ones that may have no user
PATTERNS_ALL_MAX = 500  # different ones in all groups
MATCHES_A_STEP = STEP // 5  # RE2 takes 5 us from Python

Matches = Callable[[str], object]


class TopicSource(Port):
    """What consumer groups need of the cluster."""

    def find_topic(self, name: TopicName, /) -> Topic | None:
        """Return a topic if there is one."""

    def __iter__(self) -> Iterator[Topic]:
        """All topics."""


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


class PatternMatches:
    """What is known of one pattern."""

    def __init__(self, pattern: str) -> None:
        self.names: set[TopicName] = set()
        self.users = 0
        self.done = False  # whether all topics have been looked at
        self._matches = compile_pattern(pattern)

    def add_if_matching(self, name: TopicName) -> None:
        """Keep a name that matches."""
        if is_kafka_name(name) and self._matches(format_kafka(name)) is not None:
            self.names.add(name)


class TopicPatterns:
    """All patterns that some group has."""

    def __init__(self, topics: TopicSource, turns: StepScheduler) -> None:
        self._topics = topics
        self._turns = turns
        self._found: dict[str, PatternMatches] = {}

    def __len__(self) -> int:
        return len(self._found)

    def check_room(self, pattern: str) -> None:
        """Refuse one more pattern."""
        if pattern not in self._found and len(self._found) >= PATTERNS_ALL_MAX:
            raise GroupMaxSize(f"all groups together may have {PATTERNS_ALL_MAX} patterns")

    def find_matches(self, pattern: str) -> PatternMatches | None:
        """What is known of a pattern, if some group has it."""
        return self._found.get(pattern)

    def want(self, pattern: str) -> None:
        """Hear that one more group has a pattern."""
        found = self._found.get(pattern)
        if found is None:
            found = self._found[pattern] = PatternMatches(pattern)
            self._turns.start(self._look_through(found), lambda _: None)
        found.users += 1

    def leave(self, pattern: str) -> None:
        """Hear that a group does not have it any more."""
        found = self._found[pattern]
        found.users -= 1
        if not found.users:
            found.done = True
            del self._found[pattern]

    def note(self, name: TopicName, *, gone: bool) -> None:
        """Hear that a topic was made or changed, or is gone."""
        for found in self._found.values():
            if gone:
                found.names.discard(name)
            else:
                found.add_if_matching(name)

    def _look_through(self, found: PatternMatches) -> Steps[None]:
        names = [topic.name for topic in self._topics]
        for start in range(0, len(names), MATCHES_A_STEP):
            for name in names[start : start + MATCHES_A_STEP]:
                if self._topics.find_topic(name) is not None:
                    found.add_if_matching(name)
            if start + MATCHES_A_STEP < len(names):
                yield
            if found.done:  # no group has the pattern any more
                return
        found.done = True
