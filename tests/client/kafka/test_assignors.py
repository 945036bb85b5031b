"""How a leader shares partitions out: Java's results for range, fair and sticky for the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trilogue.client.kafka.consumer.assignors import (
    Assignment,
    Assignor,
    MemberSubscription,
    assign_partitions,
    assign_sticky,
)
from trilogue.client.kafka.model import Partition


def member(
    name: str, *topics: str, owned: tuple[Partition, ...] = (), **more: object
) -> MemberSubscription:
    return MemberSubscription(name, None, frozenset(topics), owned, **more)  # type: ignore[arg-type]


def numbers(shares: Assignment, name: str) -> list[tuple[str, int]]:
    return [tuple(one) for one in shares[name]]


def test_range_gives_neighbours_topic_by_topic():
    """Java's RangeAssignor: of 3 partitions and 2 members the first has two, of each topic."""
    shares = assign_partitions(
        Assignor.RANGE, [member("b", "s", "t"), member("a", "s", "t")], {"s": 3, "t": 3}
    )

    assert numbers(shares, "a") == [("s", 0), ("s", 1), ("t", 0), ("t", 1)]
    assert numbers(shares, "b") == [("s", 2), ("t", 2)]


def test_static_members_come_first_in_line_by_their_names():
    """Java's MemberInfo: so that a restart, with another member id, changes nothing."""
    members = [
        member("a", "t"),
        MemberSubscription("z", "2", frozenset("t")),
        MemberSubscription("y", "1", frozenset("t")),
    ]
    shares = assign_partitions(Assignor.RANGE, members, {"t": 3})

    assert [numbers(shares, name) for name in "yza"] == [[("t", 0)], [("t", 1)], [("t", 2)]]


def test_round_robin_skips_unsubscribed_members():
    members = [member("a", "s", "t"), member("b", "t")]
    shares = assign_partitions(Assignor.ROUND_ROBIN, members, {"s": 2, "t": 2})

    assert numbers(shares, "a") == [("s", 0), ("s", 1), ("t", 1)]
    assert numbers(shares, "b") == [("t", 0)]


def test_unsubscribed_and_missing_topics_are_not_assigned():
    for assignor in Assignor:
        shares = assign_partitions(assignor, [member("a", "t", "missing")], {"t": 1, "other": 2})
        assert numbers(shares, "a") == [("t", 0)]


def test_sticky_moves_only_what_must_move():
    owned = tuple(Partition("t", number) for number in range(4))
    shares = assign_sticky([member("a", "t", owned=owned), member("b", "t")], {"t": 4})

    assert set(shares["a"]) <= set(owned)
    assert len(shares["a"]) == len(shares["b"]) == 2


def test_cooperative_members_get_what_others_have_only_after_those_gave_it_up():
    """KIP-429: in the first round the new member gets nothing that is not free."""
    owned = tuple(Partition("t", number) for number in range(4))
    first = assign_partitions(
        Assignor.COOPERATIVE_STICKY, [member("a", "t", owned=owned), member("b", "t")], {"t": 4}
    )
    kept = tuple(first["a"])
    second = assign_partitions(
        Assignor.COOPERATIVE_STICKY, [member("a", "t", owned=kept), member("b", "t")], {"t": 4}
    )

    assert (len(kept), first["b"]) == (2, [])
    assert (tuple(second["a"]), len(second["b"])) == (kept, 2)


def test_sticky_assignment_keeps_the_owner_of_the_newer_generation():
    one = (Partition("t", 0),)
    members = [member("a", "t", owned=one, generation=3), member("b", "t", owned=one, generation=4)]
    assert assign_sticky(members, {"t": 1})["b"] == [Partition("t", 0)]
    tie = [member("a", "t", owned=one, generation=4), member("b", "t", owned=one, generation=4)]
    assert sum(len(share) for share in assign_sticky(tie, {"t": 1}).values()) == 1


topics = st.dictionaries(st.sampled_from("stuv"), st.integers(0, 7), min_size=1)
topic_sets = st.lists(st.frozensets(st.sampled_from("stuv"), min_size=1), min_size=1, max_size=6)


@given(topics, topic_sets, st.randoms(use_true_random=False))
def test_every_subscribed_partition_is_assigned_once_to_a_subscriber(counts, wanted, dice):
    every = [Partition(topic, number) for topic in counts for number in range(counts[topic])]
    owned = {at: tuple(one for one in every if dice.random() < 0.3) for at in range(len(wanted))}
    members = [
        MemberSubscription(f"m{at}", None, topics, owned[at], dice.randrange(3))
        for at, topics in enumerate(wanted)
    ]
    for shares in (
        assign_partitions(Assignor.RANGE, members, counts),
        assign_partitions(Assignor.ROUND_ROBIN, members, counts),
        assign_sticky(members, counts),
    ):
        given_out = sorted(one for share in shares.values() for one in share)
        assert given_out == sorted(
            one for one in every if any(one.topic in topics for topics in wanted)
        )
        for one in members:
            assert {partition.topic for partition in shares[one.member_id]} <= one.topics


def test_a_partition_moves_only_from_the_largest_share():
    """Three members with four each, and one that joins: each gives one."""
    members = [
        member(f"m{at}", "t", owned=tuple(Partition("t", 4 * at + each) for each in range(4)))
        for at in range(3)
    ]
    shares = assign_sticky([*members, member("m3", "t")], {"t": 12})

    assert [len(set(shares[each.member_id]) & set(each.owned)) for each in members] == [3, 3, 3]


@given(st.integers(0, 30), st.integers(1, 8), st.randoms(use_true_random=False))
def test_sticky_assignment_is_balanced_and_keeps_partitions(count, size, dice):
    """With equal subscriptions: assignments differ by one, and members keep what they may."""
    owners = {number: dice.randrange(size) for number in range(count) if dice.random() < 0.8}
    members = [
        member(
            f"m{at}", "t",
            owned=tuple(Partition("t", number) for number in owners if owners[number] == at),
        )
        for at in range(size)
    ]  # fmt: skip
    shares = assign_sticky(members, {"t": count})
    sizes = [len(shares[one.member_id]) for one in members]
    least, most = count // size, -(-count // size)

    assert sum(sizes) == count
    assert set(sizes) <= {least, most}
    for one in members:
        kept = len(set(shares[one.member_id]) & set(one.owned))
        assert kept >= min(len(one.owned), least)
