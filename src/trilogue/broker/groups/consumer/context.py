"""What all consumer groups of a node share: topics, their changes, stepped work, and a bound.

Each group reports its weight: names that its members read by, topics that it has seen with their
partitions, members. The sum has a bound (`total_max`); a request that would exceed it is refused.

Each response contains the interval to the next heartbeat. While a group changes it is short, so
that a revoked partition reaches its next owner at once and not after two intervals of five seconds:
0.2 s after a change, then twice as long each time, up to the usual interval; at most 1 s for a
member that waits for partitions of others. The shortest interval grows with the members of the
node, so that all of them together send at most 500 heartbeats a second because of this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from trilogue.broker.errors import GroupMaxSize
from trilogue.broker.groups.classic.members import Timers
from trilogue.broker.groups.consumer.patterns import TopicPatterns, TopicSource
from trilogue.broker.groups.consumer.steps import StepScheduler
from trilogue.broker.names import TopicName

CHANGES_KEPT = 10_000
MEMBER_WEIGHT = 20  # in names: about 2 KB
SOON_MS = 200
SOON_MS_A_MEMBER = 2
WAITING_MS = 1_000
DOUBLED_MAX = 16


class GroupLoad:
    """The sums over all groups."""

    def __init__(self, total_max: int) -> None:
        self._total_max = total_max
        self.total = 0
        self.members = 0

    def change(self, weight: int, members: int) -> None:
        """Add the change of a group's weight and of the number of its members."""
        self.total += weight
        self.members += members

    def check_room(self, weight: int) -> None:
        """Refuse what would weigh too much."""
        if self.total + weight > self._total_max:
            raise GroupMaxSize(
                f"all consumer groups may have {self._total_max} names, partitions and members"
            )

    def interval_ms(self, usual_ms: int, heartbeats: int, *, waits: bool) -> int:
        """Return the interval to the next heartbeat, after so many since the group has changed."""
        soon_ms = max(SOON_MS, self.members * SOON_MS_A_MEMBER)
        interval_ms = soon_ms << min(heartbeats, DOUBLED_MAX)
        if waits:
            interval_ms = min(interval_ms, max(soon_ms, WAITING_MS))
        return min(usual_ms, interval_ms)


class TopicChanges:
    """What has happened to topics lately, each with its number. Groups read on from where they are.

    The oldest news are forgotten: who is so far behind looks at all topics.
    """

    def __init__(self, kept_max: int = CHANGES_KEPT) -> None:
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


class ConsumerGroupContext:
    """What all consumer groups of a node have in common: topics, their load, and turns of work."""

    def __init__(
        self, topics: TopicSource, timers: Timers, load: GroupLoad, kept_max: int = CHANGES_KEPT
    ) -> None:
        self.topics = topics
        self.timers = timers
        self.load = load
        self.turns = StepScheduler(timers)
        self.news = TopicChanges(kept_max)
        self.patterns = TopicPatterns(topics, self.turns)
        # Called with the name of a group that has another target.
        self.on_target: Callable[[str], None] = lambda _: None

    def note(self, name: TopicName, *, gone: bool) -> None:
        """Hear that a topic was made or changed, or is gone."""
        self.patterns.note(name, gone=gone)
        self.news.add(name)
