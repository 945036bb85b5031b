"""The assignors `uniform` and `range` of consumer groups (KIP-848): which member reads what.

Members with the topics they want and what they were to have before, topics with their numbers of
partitions, and the result is the target of each member; in steps (steps.py), with no
other state. The caller owns time, epochs and the way from here to there
(members.py). Members that want the same topics have the same set of them: what is
computed for a topic and a reader is computed once for all of these.

    uniform   everyone has as many partitions as the others, or one more; who has a partition keeps
              it where that is possible. Where members want different topics, the numbers are as
              equal as their subscriptions allow.
    range     of each topic everyone gets a run of neighbours, in the order of the members, so that
              topics with equal numbers of partitions are read by the same member partition for
              partition. Static members come first, so that they keep their runs.

Racks are ignored: a partition has one owner, and no copy of it is nearer to a member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace, merge
from itertools import islice

import msgspec

from trilogue.broker.groups.consumer.steps import STEP
from trilogue.log.steps import Steps

PartitionIndexes = Mapping[
    bytes, frozenset[int]
]  # topic id -> partitions, by their numbers; none is empty
PartitionCounts = Mapping[bytes, int]  # topic id -> how many partitions it has
TargetAssignment = dict[str, PartitionIndexes]  # member id -> its target
TopicIdPartition = tuple[bytes, int]

NO_PARTITIONS: PartitionIndexes = {}
ROUNDS_MAX = 10  # of evening out between members that want different topics


class MemberSpec(msgspec.Struct, frozen=True):
    """What an assignor knows of a member. `topics` are ids of topics that exist."""

    member_id: str
    topics: frozenset[bytes]
    instance_id: str | None = None
    previous: PartitionIndexes = msgspec.field(default_factory=dict)


Assignor = Callable[[Sequence[MemberSpec], PartitionCounts], Steps[TargetAssignment]]


@lru_cache(64)
def all_partitions(partition_count: int) -> frozenset[int]:
    """All partitions of a topic with so many; one copy for all groups."""
    return frozenset(range(partition_count))


class _StepCounter:
    """Counts work, and reports when a step is full."""

    def __init__(self) -> None:
        self._done = 0

    def due(self, work: int) -> bool:
        """Whether so much more work makes a step."""
        self._done += work + 1
        if self._done < STEP:
            return False
        self._done = 0
        return True


def _group_by_topics(specs: Iterable[MemberSpec]) -> dict[frozenset[bytes], list[MemberSpec]]:
    """Members by what they want, in the order in which they come."""
    found: dict[frozenset[bytes], list[MemberSpec]] = {}
    for spec in specs:
        found.setdefault(spec.topics, []).append(spec)
    return found


# -- range


def assign_range(specs: Sequence[MemberSpec], counts: PartitionCounts) -> Steps[TargetAssignment]:
    """Give each member a run of each of its topics."""
    pace = _StepCounter()
    order = sorted(
        specs,
        key=lambda spec: (spec.instance_id is None, spec.instance_id or spec.member_id),
    )
    place = {spec.member_id: at for at, spec in enumerate(order)}
    readers: defaultdict[bytes, list[list[MemberSpec]]] = defaultdict(list)
    for topics, members in _group_by_topics(order).items():
        for topic in topics:
            readers[topic].append(members)
            if pace.due(0):
                yield
    target: dict[str, dict[bytes, frozenset[int]]] = {spec.member_id: {} for spec in specs}
    for topic, wanting in readers.items():
        share, extra = divmod(counts[topic], sum(map(len, wanting)))
        everyone = merge(*wanting, key=lambda spec: place[spec.member_id])
        start = 0
        # Where there are fewer partitions than readers the last ones get none.
        for number, spec in enumerate(islice(everyone, counts[topic])):
            end = start + share + (number < extra)
            target[spec.member_id][topic] = frozenset(range(start, end))
            start = end
            if pace.due(share):
                yield
        if pace.due(len(wanting)):
            yield
    return dict(target)


# -- uniform


def assign_uniform(specs: Sequence[MemberSpec], counts: PartitionCounts) -> Steps[TargetAssignment]:
    """Give everyone as many partitions as the others, moving as few as possible."""
    alike = _group_by_topics(specs)
    if len(alike) <= 1:
        return (yield from _assign_homogeneous(specs, counts)) if specs else {}
    return (yield from _HeterogeneousAssignment(specs, alike, counts).target())


def _assign_homogeneous(
    specs: Sequence[MemberSpec], counts: PartitionCounts
) -> Steps[TargetAssignment]:
    """All want the same topics, so any partition may go to anyone.

    Who has most now gets one of the few shares that are larger by one: then nothing moves only to
    change who has the larger share.
    """
    topics = sorted(specs[0].topics)
    if len(specs) == 1:
        everything = {topic: all_partitions(counts[topic]) for topic in topics}
        return {specs[0].member_id: _reuse_previous(specs[0], everything)}
    free, pace = _FreePartitions({topic: counts[topic] for topic in topics}), _StepCounter()
    kept: dict[str, dict[bytes, frozenset[int]]] = {}
    for spec in specs:
        kept[spec.member_id] = yield from _keep_previous(spec, free, pace)
    size = {member: sum(map(len, mine.values())) for member, mine in kept.items()}
    share, extra = divmod(sum(counts[topic] for topic in topics), len(specs))
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
            yield from _add_partitions(mine, islice(slots, quota[member] - size[member]), pace)
    return {spec.member_id: _reuse_previous(spec, kept[spec.member_id]) for spec in specs}


def _reuse_previous(spec: MemberSpec, parts: PartitionIndexes) -> PartitionIndexes:
    """What a member had, where it is the same: then there is one copy of it."""
    return spec.previous if spec.previous == parts else parts


def _keep_previous(
    spec: MemberSpec, free: _FreePartitions, pace: _StepCounter
) -> Steps[dict[bytes, frozenset[int]]]:
    mine = {}
    for topic, indexes in spec.previous.items():
        still = free.claim_partitions(topic, indexes)
        if still:
            mine[topic] = still
        if pace.due(len(still)):
            yield
    return mine


def _add_partitions(
    mine: dict[bytes, frozenset[int]], slots: Iterable[TopicIdPartition], pace: _StepCounter
) -> Steps[None]:
    more: defaultdict[bytes, set[int]] = defaultdict(set)
    for topic, index in slots:
        more[topic].add(index)
        if pace.due(0):
            yield
    for topic, added in more.items():
        mine[topic] = mine.get(topic, frozenset()) | added


class _FreePartitions:
    """Partitions without an owner. Sets exist only for topics of which a partition is taken."""

    def __init__(self, counts: PartitionCounts) -> None:
        self._counts = counts
        self._left: dict[bytes, set[int]] = {}

    def claim_partitions(self, topic: bytes, wanted: frozenset[int]) -> frozenset[int]:
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
        """Let the last partitions of a member go."""
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

    def slots(self) -> Iterator[TopicIdPartition]:
        """All of them, in order; nothing may be taken meanwhile."""
        return ((topic, index) for topic in self._counts for index in self.of(topic))


class _SubscriberHeap:
    """Members that want the same topics, and which of them has least."""

    def __init__(self, members: Sequence[MemberSpec], place: Mapping[str, int]) -> None:
        # (how many it has, its place, its id); entries that are not true any more are passed over
        self._heap = [(0, place[each.member_id], each.member_id) for each in members]

    def least(self, size: Mapping[str, int]) -> tuple[int, int, str]:
        """Return the member with the fewest partitions: their number, its place, its id."""
        while self._heap[0][0] != size[self._heap[0][2]]:
            heappop(self._heap)
        return self._heap[0]

    def note(self, size: int, place: int, member: str) -> None:
        """Hear that one of them has so many now."""
        heappush(self._heap, (size, place, member))


class _HeterogeneousAssignment:
    """Members want different topics: begin with what they have, then even out.

    Free partitions go to the reader that has the fewest of all its topics, topics with the
    fewest readers first. Then, topic by topic, a partition goes from the reader who has most to the
    one who has least while that makes them more equal. Each such step makes the sum of the squares
    of all shares smaller, so it comes to an end; `ROUNDS_MAX` bounds how long that may take.

    A topic costs as much as there are different sets of topics with it and members that have some
    of it, however many may read it.
    """

    def __init__(
        self,
        specs: Sequence[MemberSpec],
        alike: Mapping[frozenset[bytes], Sequence[MemberSpec]],
        counts: PartitionCounts,
    ) -> None:
        self._specs = specs
        self._alike = alike
        self._counts = counts
        self._previous = {spec.member_id: spec.previous for spec in specs}
        self._place = {spec.member_id: at for at, spec in enumerate(specs)}
        self._size = dict.fromkeys(self._previous, 0)
        self._kind: dict[str, _SubscriberHeap] = {}  # member -> those that want the same
        self._readers: defaultdict[bytes, list[_SubscriberHeap]] = defaultdict(list)
        # topic -> member -> its partitions of the topic, of those that have some
        self._share: defaultdict[bytes, dict[str, AbstractSet[int]]] = defaultdict(dict)
        self._pace = _StepCounter()

    def target(self) -> Steps[TargetAssignment]:
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
            spec.member_id: _reuse_previous(spec, mine.get(spec.member_id, NO_PARTITIONS))
            for spec in self._specs
        }

    def _topics(self) -> Steps[list[bytes]]:
        """Return the topics, those with the fewest subscribers first."""
        breadth: defaultdict[bytes, int] = defaultdict(int)
        for topics, members in self._alike.items():
            readers = _SubscriberHeap(members, self._place)
            self._kind.update((each.member_id, readers) for each in members)
            for topic in topics:
                self._readers[topic].append(readers)
                breadth[topic] += len(members)
                if self._pace.due(0):
                    yield
        return sorted(self._readers, key=lambda topic: (breadth[topic], topic))

    def _keep(self, topics: Sequence[bytes]) -> Steps[None]:
        free = _FreePartitions({topic: self._counts[topic] for topic in topics})
        for spec in self._specs:
            for topic, indexes in spec.previous.items():
                still = (
                    free.claim_partitions(topic, indexes) if topic in spec.topics else frozenset()
                )
                if still:
                    self._share[topic][spec.member_id] = still
                    self._size[spec.member_id] += len(still)
                if self._pace.due(len(still)):
                    yield
            self._note(spec.member_id)
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
            back = self._previous[least].get(topic, frozenset()) & mine
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
