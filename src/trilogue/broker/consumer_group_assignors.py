"""Who shall read what in a consumer group: the assignors `uniform` and `range` (KIP-848).

Pure functions: members with the topics they want and what they were to have before, topics with
their numbers of partitions, and out comes what each member shall have. The caller owns time, epochs
and the way from here to there (consumer_group_members.py).

    uniform   everyone has as many partitions as the others, or one more; who has a partition keeps
              it where that is possible. Where members want different topics, the numbers are as
              equal as their wishes allow.
    range     of each topic everyone gets a run of neighbours, in the order of the members, so that
              topics with equal numbers of partitions are read by the same member partition for
              partition. Static members come first, so that they keep their runs.

Racks are not looked at: a partition has one owner, and no copy of it is nearer to anybody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from itertools import islice

Parts = Mapping[bytes, frozenset[int]]  # topic id -> partitions, by their numbers; none is empty
Counts = Mapping[bytes, int]  # topic id -> how many partitions it has
Target = dict[str, Parts]  # member id -> what it shall have
Slot = tuple[bytes, int]

NOTHING: Parts = {}
ROUNDS_MAX = 10  # of evening out between members that want different topics


@dataclass(frozen=True, slots=True)
class Wish:
    """What an assignor knows of a member. `topics` are ids of topics that exist."""

    member_id: str
    topics: frozenset[bytes]
    instance_id: str | None = None
    had: Parts = field(default_factory=dict)


Assignor = Callable[[Sequence[Wish], Counts], Target]


def slots_of(parts: Parts) -> list[Slot]:
    """Every single partition, in order."""
    return [(topic, index) for topic, indexes in parts.items() for index in sorted(indexes)]


def parts_of(slots: Collection[Slot]) -> Parts:
    """The partitions, topic by topic."""
    found: defaultdict[bytes, set[int]] = defaultdict(set)
    for topic, index in slots:
        found[topic].add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}


def minus(some: Parts, others: Parts) -> Parts:
    """What is in the first and not in the second."""
    left = {topic: indexes - others.get(topic, frozenset()) for topic, indexes in some.items()}
    return {topic: indexes for topic, indexes in left.items() if indexes}


def common(some: Parts, others: Parts) -> Parts:
    """What is in both."""
    both = {topic: indexes & others.get(topic, frozenset()) for topic, indexes in some.items()}
    return {topic: indexes for topic, indexes in both.items() if indexes}


def together(some: Parts, others: Parts) -> Parts:
    """What is in either."""
    if not others:
        return some
    found = dict(some)
    for topic, indexes in others.items():
        found[topic] = found.get(topic, frozenset()) | indexes
    return found


# -- range


def assign_range(wishes: Sequence[Wish], counts: Counts) -> Target:
    """Give each member a run of each of its topics."""
    order = sorted(
        wishes,
        key=lambda wish: (wish.instance_id is None, wish.instance_id or wish.member_id),
    )
    readers: defaultdict[bytes, list[Wish]] = defaultdict(list)
    for wish in order:
        for topic in wish.topics:
            readers[topic].append(wish)
    target: dict[str, dict[bytes, frozenset[int]]] = {wish.member_id: {} for wish in wishes}
    for topic, wanting in readers.items():
        share, extra = divmod(counts[topic], len(wanting))
        start = 0
        for number, wish in enumerate(wanting):
            end = start + share + (number < extra)
            if end > start:
                target[wish.member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(target)


# -- uniform


def assign_uniform(wishes: Sequence[Wish], counts: Counts) -> Target:
    """Give everyone as many partitions as the others, moving as few as possible."""
    if not wishes:
        return {}
    if all(wish.topics == wishes[0].topics for wish in wishes):
        return _uniform_alike(wishes, counts)
    return _Evening(wishes, counts).target()


def _uniform_alike(wishes: Sequence[Wish], counts: Counts) -> Target:
    """All want the same topics, so any partition may go to anyone.

    Who has most now gets one of the few shares that are larger by one: then nothing moves only to
    change who has the larger share.
    """
    topics = wishes[0].topics
    whole = {topic: frozenset(range(counts[topic])) for topic in sorted(topics)}
    share, extra = divmod(sum(map(len, whole.values())), len(wishes))
    kept = {wish.member_id: slots_of(common(wish.had, whole)) for wish in wishes}
    by_most = sorted(wishes, key=lambda wish: -len(kept[wish.member_id]))
    quota = {wish.member_id: share + (at < extra) for at, wish in enumerate(by_most)}
    taken: set[Slot] = set()
    for wish in wishes:
        mine = [slot for slot in kept[wish.member_id] if slot not in taken]
        kept[wish.member_id] = mine[: quota[wish.member_id]]
        taken.update(kept[wish.member_id])
    free = iter([slot for slot in slots_of(whole) if slot not in taken])
    target: Target = {}
    for wish in wishes:
        mine = kept[wish.member_id]
        mine += islice(free, quota[wish.member_id] - len(mine))
        same = len(mine) == sum(map(len, wish.had.values())) and parts_of(mine) == wish.had
        target[wish.member_id] = wish.had if same else parts_of(mine)
    return target


class _Evening:
    """Members want different topics: begin with what they have, then even out.

    Partitions that nobody has go to whoever of those that may read them has least, topics with the
    fewest readers first. Then, topic by topic, a partition goes from the reader who has most to the
    one who has least while that makes them more equal. Each such step makes the sum of the squares
    of all shares smaller, so it comes to an end; `ROUNDS_MAX` bounds how long that may take.
    """

    def __init__(self, wishes: Sequence[Wish], counts: Counts) -> None:
        self._wishes = wishes
        self._had = {wish.member_id: wish.had for wish in wishes}
        self._readers: defaultdict[bytes, list[str]] = defaultdict(list)
        for wish in wishes:
            for topic in wish.topics:
                self._readers[topic].append(wish.member_id)
        self._topics = sorted(self._readers, key=lambda topic: (len(self._readers[topic]), topic))
        self._size = dict.fromkeys(self._had, 0)
        # topic -> member -> its partitions of the topic
        self._share: dict[bytes, dict[str, set[int]]] = {
            topic: {member: set() for member in readers} for topic, readers in self._readers.items()
        }
        self._counts = counts

    def target(self) -> Target:
        self._keep()
        for _ in range(ROUNDS_MAX):
            if not sum(self._even_out(topic) for topic in self._topics):
                break
        mine: defaultdict[str, dict[bytes, frozenset[int]]] = defaultdict(dict)
        for topic, shares in self._share.items():
            for member, indexes in shares.items():
                if indexes:
                    mine[member][topic] = frozenset(indexes)
        return {wish.member_id: mine.get(wish.member_id, NOTHING) for wish in self._wishes}

    def _keep(self) -> None:
        for topic in self._topics:
            free = set(range(self._counts[topic]))
            for member, mine in self._share[topic].items():
                mine.update(self._had[member].get(topic, frozenset()) & free)
                free -= mine
                self._size[member] += len(mine)
        for topic in self._topics:
            shares = self._share[topic]
            held = set().union(*shares.values())
            if len(held) == self._counts[topic]:
                continue
            least = [(self._size[member], at, member) for at, member in enumerate(shares)]
            heapify(least)
            for index in range(self._counts[topic]):
                if index not in held:
                    size, at, member = least[0]
                    shares[member].add(index)
                    self._size[member] = size + 1
                    heapreplace(least, (size + 1, at, member))

    def _even_out(self, topic: bytes) -> bool:
        shares, moved = self._share[topic], False
        while True:
            least = min(shares, key=self._size.__getitem__)
            giving = [member for member, indexes in shares.items() if indexes]
            most = max(giving, key=self._size.__getitem__, default=least)
            if self._size[most] - self._size[least] < 2:
                return moved
            mine = shares[most]
            back = self._had[least].get(topic, frozenset()) & mine
            index = min(back) if back else max(mine)
            mine.remove(index)
            shares[least].add(index)
            self._size[most] -= 1
            self._size[least] += 1
            moved = True


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
