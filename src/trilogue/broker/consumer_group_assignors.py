"""Who shall read what in a consumer group: the assignors `uniform` and `range` (KIP-848).

Members with the topics they want and what they were to have before, topics with their numbers of
partitions, and out comes what each member shall have; in steps (consumer_group_steps.py), with no
other state. The caller owns time, epochs and the way from here to there
(consumer_group_members.py). Members that want the same topics have the same set of them: what is
asked of each topic and each reader is asked once for all of these.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace, merge
from itertools import islice

from trilogue.broker.consumer_group_steps import STEP
from trilogue.log.steps import Steps

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


Assignor = Callable[[Sequence[Wish], Counts], Steps[Target]]


@lru_cache(64)
def all_of(partition_count: int) -> frozenset[int]:
    """All partitions of a topic with so many; one copy for all groups."""
    return frozenset(range(partition_count))


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


class _Pace:
    """Says when it is time to let others go on."""

    def __init__(self) -> None:
        self._done = 0

    def due(self, work: int) -> bool:
        """Whether so much more work makes a step."""
        self._done += work + 1
        if self._done < STEP:
            return False
        self._done = 0
        return True


def _alike(wishes: Iterable[Wish]) -> dict[frozenset[bytes], list[Wish]]:
    """Members by what they want, in the order in which they come."""
    found: dict[frozenset[bytes], list[Wish]] = {}
    for wish in wishes:
        found.setdefault(wish.topics, []).append(wish)
    return found


# -- range


def assign_range(wishes: Sequence[Wish], counts: Counts) -> Steps[Target]:
    """Give each member a run of each of its topics."""
    pace = _Pace()
    order = sorted(
        wishes,
        key=lambda wish: (wish.instance_id is None, wish.instance_id or wish.member_id),
    )
    place = {wish.member_id: at for at, wish in enumerate(order)}
    readers: defaultdict[bytes, list[list[Wish]]] = defaultdict(list)
    for topics, members in _alike(order).items():
        for topic in topics:
            readers[topic].append(members)
            if pace.due(0):
                yield
    target: dict[str, dict[bytes, frozenset[int]]] = {wish.member_id: {} for wish in wishes}
    for topic, wanting in readers.items():
        share, extra = divmod(counts[topic], sum(map(len, wanting)))
        everyone = merge(*wanting, key=lambda wish: place[wish.member_id])
        start = 0
        # Where there are fewer partitions than readers the last ones get none.
        for number, wish in enumerate(islice(everyone, counts[topic])):
            end = start + share + (number < extra)
            target[wish.member_id][topic] = frozenset(range(start, end))
            start = end
            if pace.due(share):
                yield
        if pace.due(len(wanting)):
            yield
    return dict(target)


# -- uniform


def assign_uniform(wishes: Sequence[Wish], counts: Counts) -> Steps[Target]:
    """Give everyone as many partitions as the others, moving as few as possible."""
    alike = _alike(wishes)
    if len(alike) <= 1:
        return (yield from _uniform_alike(wishes, counts)) if wishes else {}
    return (yield from _Evening(wishes, alike, counts).target())


def _uniform_alike(wishes: Sequence[Wish], counts: Counts) -> Steps[Target]:
    """All want the same topics, so any partition may go to anyone.

    Who has most now gets one of the few shares that are larger by one: then nothing moves only to
    change who has the larger share.
    """
    topics = sorted(wishes[0].topics)
    if len(wishes) == 1:
        everything = {topic: all_of(counts[topic]) for topic in topics}
        return {wishes[0].member_id: _same(wishes[0], everything)}
    free, pace = _Free({topic: counts[topic] for topic in topics}), _Pace()
    kept: dict[str, dict[bytes, frozenset[int]]] = {}
    for wish in wishes:
        kept[wish.member_id] = yield from _kept(wish, free, pace)
    size = {member: sum(map(len, mine.values())) for member, mine in kept.items()}
    share, extra = divmod(sum(counts[topic] for topic in topics), len(wishes))
    by_most = sorted(kept, key=lambda member: -size[member])
    quota = {member: share + (at < extra) for at, member in enumerate(by_most)}
    for member, mine in kept.items():
        if size[member] > quota[member]:
            free.give_back(mine, size[member] - quota[member])
            if pace.due(size[member]):
                yield
    slots = free.slots()
    for member, mine in kept.items():
        if size[member] < quota[member]:
            yield from _given(mine, islice(slots, quota[member] - size[member]), pace)
    return {wish.member_id: _same(wish, kept[wish.member_id]) for wish in wishes}


def _same(wish: Wish, parts: Parts) -> Parts:
    """What a member had, where it is the same: then there is one copy of it."""
    return wish.had if wish.had == parts else parts


def _kept(wish: Wish, free: _Free, pace: _Pace) -> Steps[dict[bytes, frozenset[int]]]:
    mine = {}
    for topic, indexes in wish.had.items():
        still = free.take(topic, indexes)
        if still:
            mine[topic] = still
        if pace.due(len(still)):
            yield
    return mine


def _given(mine: dict[bytes, frozenset[int]], slots: Iterable[Slot], pace: _Pace) -> Steps[None]:
    more: defaultdict[bytes, set[int]] = defaultdict(set)
    for topic, index in slots:
        more[topic].add(index)
        if pace.due(0):
            yield
    for topic, added in more.items():
        mine[topic] = mine.get(topic, frozenset()) | added


class _Free:
    """Partitions that nobody has yet. Sets are made only of topics of which something is taken."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._left: dict[bytes, set[int]] = {}

    def take(self, topic: bytes, wanted: frozenset[int]) -> frozenset[int]:
        """Take those that are free and exist; the same set when that is all of them."""
        if topic not in self._counts:
            return frozenset()
        left = self._left.get(topic)
        if left is None:
            left = self._left[topic] = set(range(self._counts[topic]))
        taken = wanted if wanted <= left else wanted & left
        left -= taken
        return taken

    def give_back(self, mine: dict[bytes, frozenset[int]], count: int) -> None:
        """Let the last ones of somebody's go."""
        for topic in reversed(list(mine)):
            indexes = mine.pop(topic)
            gone = indexes if len(indexes) <= count else frozenset(sorted(indexes)[-count:])
            self._left[topic] |= gone
            count -= len(gone)
            if len(gone) < len(indexes):
                mine[topic] = indexes - gone
            if not count:
                return

    def of(self, topic: bytes) -> Sequence[int]:
        """Those of one topic, in order."""
        left = self._left.get(topic)
        return range(self._counts[topic]) if left is None else sorted(left)

    def slots(self) -> Iterator[Slot]:
        """All of them, in order; nothing may be taken meanwhile."""
        return ((topic, index) for topic in self._counts for index in self.of(topic))


class _Readers:
    """Members that want the same topics, and which of them has least."""

    def __init__(self, members: Sequence[Wish], place: Mapping[str, int]) -> None:
        # (how many it has, its place, its id); entries that are not true any more are passed over
        self._heap = [(0, place[each.member_id], each.member_id) for each in members]

    def least(self, size: Mapping[str, int]) -> tuple[int, int, str]:
        """Who has least, with how many and its place."""
        while self._heap[0][0] != size[self._heap[0][2]]:
            heappop(self._heap)
        return self._heap[0]

    def note(self, size: int, place: int, member: str) -> None:
        """Hear that one of them has so many now."""
        heappush(self._heap, (size, place, member))


class _Evening:
    """Members want different topics: begin with what they have, then even out.

    Partitions that nobody has go to whoever of those that may read them has least, topics with the
    fewest readers first. Then, topic by topic, a partition goes from the reader who has most to the
    one who has least while that makes them more equal. Each such step makes the sum of the squares
    of all shares smaller, so it comes to an end; `ROUNDS_MAX` bounds how long that may take.

    A topic costs as much as there are different sets of topics with it and members that have some
    of it, however many may read it.
    """

    def __init__(
        self,
        wishes: Sequence[Wish],
        alike: Mapping[frozenset[bytes], Sequence[Wish]],
        counts: Counts,
    ) -> None:
        self._wishes = wishes
        self._alike = alike
        self._counts = counts
        self._had = {wish.member_id: wish.had for wish in wishes}
        self._place = {wish.member_id: at for at, wish in enumerate(wishes)}
        self._size = dict.fromkeys(self._had, 0)
        self._kind: dict[str, _Readers] = {}  # member -> those that want the same
        self._readers: defaultdict[bytes, list[_Readers]] = defaultdict(list)
        # topic -> member -> its partitions of the topic, of those that have some
        self._share: defaultdict[bytes, dict[str, AbstractSet[int]]] = defaultdict(dict)
        self._pace = _Pace()

    def target(self) -> Steps[Target]:
        topics = yield from self._topics()
        yield from self._keep(topics)
        for _ in range(ROUNDS_MAX):
            moved = False
            for topic in topics:
                moved |= yield from self._even_out(topic)
            if not moved:
                break
        mine: defaultdict[str, dict[bytes, frozenset[int]]] = defaultdict(dict)
        for topic, shares in self._share.items():
            for member, indexes in shares.items():
                if indexes:
                    mine[member][topic] = frozenset(indexes)  # the same one if nothing has changed
            if self._pace.due(len(shares)):
                yield
        return {
            wish.member_id: _same(wish, mine.get(wish.member_id, NOTHING)) for wish in self._wishes
        }

    def _topics(self) -> Steps[list[bytes]]:
        """Who reads which; those with the fewest readers first."""
        breadth: defaultdict[bytes, int] = defaultdict(int)
        for topics, members in self._alike.items():
            readers = _Readers(members, self._place)
            self._kind.update((each.member_id, readers) for each in members)
            for topic in topics:
                self._readers[topic].append(readers)
                breadth[topic] += len(members)
                if self._pace.due(0):
                    yield
        return sorted(self._readers, key=lambda topic: (breadth[topic], topic))

    def _keep(self, topics: Sequence[bytes]) -> Steps[None]:
        free = _Free({topic: self._counts[topic] for topic in topics})
        for wish in self._wishes:
            for topic, indexes in wish.had.items():
                still = free.take(topic, indexes) if topic in wish.topics else frozenset()
                if still:
                    self._share[topic][wish.member_id] = still
                    self._size[wish.member_id] += len(still)
                if self._pace.due(len(still)):
                    yield
            self._note(wish.member_id)
        for topic in topics:
            left = free.of(topic)
            if not left:
                continue
            least = [
                (readers.least(self._size), at) for at, readers in enumerate(self._readers[topic])
            ]
            heapify(least)
            for index in left:
                (_, _, member), at = least[0]
                self._add(topic, member, index)
                heapreplace(least, (self._readers[topic][at].least(self._size), at))
                if self._pace.due(1):
                    yield
            if self._pace.due(len(least)):
                yield

    def _even_out(self, topic: bytes) -> Steps[bool]:
        shares, moved, size = self._share[topic], False, self._size
        most_first = [(-size[member], self._place[member], member) for member in shares]
        heapify(most_first)
        while most_first:
            if self._pace.due(len(self._readers[topic])):
                yield
            have, _, most = most_first[0]
            if -have != size[most] or not shares[most]:
                heappop(most_first)
                continue
            few, place, least = min(readers.least(size) for readers in self._readers[topic])
            if -have - few < 2:
                break
            mine = shares[most]
            back = self._had[least].get(topic, frozenset()) & mine
            index = min(back) if back else max(mine)
            shares[most] = mine - {index}
            size[most] -= 1
            self._note(most)
            self._add(topic, least, index)
            heappush(most_first, (have + 1, self._place[most], most))
            heappush(most_first, (-few - 1, place, least))
            moved = True
        if self._pace.due(len(shares)):
            yield
        return moved

    def _add(self, topic: bytes, member: str, index: int) -> None:
        shares = self._share[topic]
        mine = shares.get(member)
        if isinstance(mine, set):
            mine.add(index)
        else:
            shares[member] = {index, *(mine or ())}
        self._size[member] += 1
        self._note(member)

    def _note(self, member: str) -> None:
        self._kind[member].note(self._size[member], self._place[member], member)


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
