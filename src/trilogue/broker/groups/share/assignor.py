"""Which partitions the members of a share group read: the assignor `simple`.

Members share partitions, so the numbers need not come out even: of each topic every partition is
read by at least one of its members, and every member reads at least one partition. Where a topic
has fewer partitions than members, members read a partition together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from trilogue.broker.groups.consumer.assignors import PartitionIndexes
from trilogue.broker.groups.consumer.steps import STEP
from trilogue.log.steps import Steps

SIMPLE = "simple"


def assign_partitions(
    members: Sequence[tuple[str, AbstractSet[bytes]]], counts: Mapping[bytes, int]
) -> Steps[dict[str, PartitionIndexes]]:
    """Return the partitions of each member, from the topics that each wants; in steps."""
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id, _ in members}
    readers: dict[bytes, list[str]] = {}
    work = 0
    for member_id, topics in sorted(members):
        for topic_id in topics:
            readers.setdefault(topic_id, []).append(member_id)
        work += len(topics)
        if work >= STEP:
            work = 0
            yield
    first = 0  # topics with few partitions begin at different members
    for topic_id in sorted(readers):
        of_topic, count = readers[topic_id], counts[topic_id]
        shares: list[set[int]] = [set() for _ in of_topic]
        for number in range(max(count, len(of_topic))):
            shares[(first + number) % len(of_topic)].add(number % count)
        for member_id, share in zip(of_topic, shares, strict=True):
            assigned[member_id][topic_id] = frozenset(share)
        first += count
        work += max(count, len(of_topic))
        if work >= STEP:
            work = 0
            yield
    return dict(assigned)
