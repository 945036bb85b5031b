"""Which member has which keys: hashes as clients compute them, and the three rules."""

from __future__ import annotations

from collections import Counter

import pytest

from trilogue.broker.errors import KeyRangesTaken
from trilogue.broker.subscriptions import key_shared
from trilogue.broker.subscriptions.consumer import SubscriptionConsumer
from trilogue.broker.subscriptions.key_shared import (
    FULL_MEMBERS,
    POINTS,
    RANGES_MAX,
    SLOTS,
    AutoSplit,
    ConsistentHash,
    StickyRanges,
)
from trilogue.broker.subscriptions.murmur import key_hash


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("a", 1_009_084_850),
        ("key-1", 414_258_592),
        ("hello world", 1_586_663_183),
        ("", 0),
        ("日本", 1_155_135_810),
    ],
)
def test_keys_are_hashed_as_clients_hash_them(key, hashed):
    """Values computed with the classes of a real client."""
    assert hashed == key_hash(key.encode())


def members(*names: str) -> list[SubscriptionConsumer]:
    return [SubscriptionConsumer(name, joined=number) for number, name in enumerate(names, 1)]


def shares(assigner: ConsistentHash | AutoSplit) -> Counter[str]:
    return Counter(assigner.member_of(slot).name for slot in range(SLOTS))


def test_a_ring_shares_keys_about_evenly():
    ring = ConsistentHash()
    for member in members("a", "b", "c", "d"):
        ring.add(member)

    assert all(SLOTS / 4 * 0.6 < share < SLOTS / 4 * 1.4 for share in shares(ring).values())


def test_consistent_hash_moves_keys_only_to_the_new_consumer():
    ring = ConsistentHash()
    *old, new = members("a", "b", "c")
    for member in old:
        ring.add(member)
    before = [ring.member_of(slot) for slot in range(SLOTS)]

    ring.add(new)
    after = [ring.member_of(slot) for slot in range(SLOTS)]

    assert {new} == {now for was, now in zip(before, after, strict=True) if was is not now}
    ring.remove(new)
    assert before == [ring.member_of(slot) for slot in range(SLOTS)]


def test_members_of_one_name_share_as_others_do():
    ring = ConsistentHash()
    for member in members("same", "same"):
        ring.add(member)

    found = Counter(ring.member_of(slot).joined for slot in range(SLOTS))

    assert all(share > SLOTS / 4 for share in found.values())


def test_consumers_of_a_crowded_ring_have_fewer_points():
    """A hundred points for each of thousands would be nobody's gain, and everyone's time."""
    ring = ConsistentHash()
    crowd = members(*[""] * 3 * FULL_MEMBERS)
    for member in crowd:
        ring.add(member)
    own = [len(slots) for _, slots in ring._own.values()]
    assert min(own) >= POINTS // 3
    assert sum(own) < 2.2 * POINTS * FULL_MEMBERS

    for member in crowd[1:]:
        ring.remove(member)
    assert shares(ring) == {"": SLOTS}
    ring.remove(crowd[0])
    assert ring.member_of(1) is None


def test_halves_end_where_each_slot_has_a_consumer(monkeypatch):
    monkeypatch.setattr(key_shared, "SLOTS", 4)
    halves = AutoSplit()
    *four, fifth = members(*"abcde")
    for member in four:
        halves.add(member)

    with pytest.raises(KeyRangesTaken):
        halves.add(fifth)


def test_a_newcomer_takes_half_of_the_largest_range():
    halves = AutoSplit()
    for member in members("a", "b", "c"):
        halves.add(member)

    assert dict(shares(halves)) == {"a": SLOTS // 4, "c": SLOTS // 4, "b": SLOTS // 2}


def test_auto_split_gives_the_range_of_a_removed_consumer_to_a_neighbour():
    halves = AutoSplit()
    a, b, c = members("a", "b", "c")
    for member in (a, b, c):
        halves.add(member)

    halves.remove(c)
    assert dict(shares(halves)) == {"a": SLOTS // 2, "b": SLOTS // 2}
    halves.remove(a)
    assert dict(shares(halves)) == {"b": SLOTS}
    halves.remove(b)
    assert halves.member_of(1) is None


def test_sticky_ranges_include_both_ends_and_the_rest_is_without_an_owner():
    sticky = StickyRanges()
    member = SubscriptionConsumer("a", ranges=((10, 20), (30, 30)))
    sticky.add(member)

    found = [slot for slot in range(40) if sticky.member_of(slot) is member]

    assert [*range(10, 21), 30] == found


def test_slot_nought_counts_as_one():
    sticky = StickyRanges()
    member = SubscriptionConsumer("a", ranges=((1, 1),))
    sticky.add(member)

    assert sticky.member_of(SLOTS) is member
    assert key_hash(b"a") % SLOTS == 27_058


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        ((5, 4),),
        ((-1, 4),),
        ((0, SLOTS),),
        ((0, 10), (10, 20)),
        ((90, 110),),
        ((100, 100),),
        ((0, SLOTS - 1),),
        tuple((2 * at, 2 * at) for at in range(RANGES_MAX + 1)),
    ],
)
def test_ranges_that_are_none_or_taken_are_refused(ranges):
    sticky = StickyRanges()
    sticky.add(SubscriptionConsumer("a", ranges=((100, 200),)))

    with pytest.raises(KeyRangesTaken):
        sticky.add(SubscriptionConsumer("b", ranges=ranges))

    assert sticky.member_of(50) is None


def test_sticky_ranges_of_a_removed_consumer_are_free():
    sticky = StickyRanges()
    member = SubscriptionConsumer("a", ranges=((100, 200),))
    sticky.add(member)

    sticky.remove(member)
    sticky.add(SubscriptionConsumer("b", ranges=((0, SLOTS - 1),)))

    assert sticky.member_of(150).name == "b"


def test_a_newcomer_of_a_name_has_keys_of_its_own_also_when_a_twin_has_gone():
    ring = ConsistentHash()
    first, *others, newcomer = members("same", "same", "same", "same")
    for member in (first, *others):
        ring.add(member)
    ring.remove(first)

    ring.add(newcomer)

    found = Counter(ring.member_of(slot).joined for slot in range(SLOTS))
    assert len(found) == 3
    assert all(share > SLOTS / 3 * 0.6 for share in found.values())


@pytest.mark.parametrize("taken", [(0, 9), (15, 25), (19, 30), (0, 100), (12, 18), (10, 10)])
def test_no_range_may_overlap_another_at_either_end(taken):
    sticky = StickyRanges()
    sticky.add(SubscriptionConsumer("a", joined=1, ranges=((200, 300), (10, 20))))

    with_room = taken == (0, 9)
    newcomer = SubscriptionConsumer("b", joined=2, ranges=(taken,))
    if with_room:
        sticky.add(newcomer)
        assert sticky.member_of(9) is newcomer
        return
    with pytest.raises(KeyRangesTaken):
        sticky.add(newcomer)
