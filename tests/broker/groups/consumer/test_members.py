"""One member's way from its assignment to its target."""

from __future__ import annotations

import pytest

from tests.broker.consumer_room import refused, some
from tests.broker.fakes import FakeCall
from trilogue.broker.errors import FencedMemberEpoch
from trilogue.broker.groups.consumer.members import ConsumerGroupMember, ConsumerGroupMembers
from trilogue.broker.groups.group_members import PartitionOwners
from trilogue.broker.groups.reconciliation import (
    STATIC_LEAVE_EPOCH,
    MemberState,
    MemberTimer,
    awaits_release,
    reconcile,
)

A = b"a" * 16
ALL = some(A, 0, 1, 2, 3)


def member(name: str = "m", **fields) -> ConsumerGroupMember:
    return ConsumerGroupMember(name, **fields)


def owned_by(*members: ConsumerGroupMember) -> PartitionOwners:
    owners = PartitionOwners()
    for each in members:
        owners.update(each.member_id, {}, each.held)
    return owners


def test_free_partitions_are_assigned_at_once():
    m = member()

    reconcile(m, ALL, 1, owned_by(m), None)

    assert (m.state, m.epoch, m.previous_epoch, m.assigned) == (MemberState.STABLE, 1, 0, ALL)


def test_revoked_partitions_stay_owned_until_the_member_confirms():
    """KIP-848, "revoke": the epoch does not move before the member has given up."""
    m = member(epoch=1, assigned=ALL)
    owners = owned_by(m)

    reconcile(m, some(A, 0, 1), 2, owners, ALL)
    assert (m.state, m.epoch, m.assigned, m.revoking) == (
        MemberState.UNREVOKED,
        1,
        some(A, 0, 1),
        some(A, 2, 3),
    )
    for owned in (None, ALL, some(A, 0, 1, 2)):
        reconcile(m, some(A, 0, 1), 2, owners, owned)
        assert (m.state, m.epoch) == (MemberState.UNREVOKED, 1)
        assert not owners.free(A, [2], "other")

    reconcile(m, some(A, 0, 1), 2, owners, some(A, 0, 1))
    assert (m.state, m.epoch, m.assigned, m.revoking) == (MemberState.STABLE, 2, some(A, 0, 1), {})
    assert owners.free(A, [2], "other")


def test_partitions_that_the_member_does_not_own_need_no_revocation():
    m = member(epoch=1, assigned=ALL)

    reconcile(m, some(A, 0), 2, owned_by(m), some(A, 0))

    assert (m.state, m.epoch, m.assigned) == (MemberState.STABLE, 2, some(A, 0))


def test_unreleased_partitions_are_awaited_and_the_others_assigned():
    other, m = member("other", assigned=some(A, 2, 3)), member()
    owners = owned_by(other, m)

    reconcile(m, ALL, 2, owners, None)
    assert (m.state, m.epoch, m.assigned) == (MemberState.UNRELEASED, 2, some(A, 0, 1))
    assert awaits_release(m, ALL, owners)

    owners.update("other", some(A, 2, 3), {})
    assert not awaits_release(m, ALL, owners)
    reconcile(m, ALL, 2, owners, None)
    assert (m.state, m.epoch, m.assigned) == (MemberState.STABLE, 2, ALL)


def test_a_target_that_moved_on_meanwhile_is_gone_to_one_epoch_after_another():
    m = member(epoch=1, assigned=ALL)
    owners = owned_by(m)
    reconcile(m, some(A, 0, 1), 2, owners, None)

    reconcile(m, some(A, 0), 5, owners, some(A, 0, 1))
    assert (m.state, m.epoch, m.revoking) == (MemberState.UNREVOKED, 2, some(A, 1))
    reconcile(m, some(A, 0), 5, owners, some(A, 0))
    assert (m.state, m.epoch, m.assigned) == (MemberState.STABLE, 5, some(A, 0))


def test_revoked_partitions_can_be_assigned_again():
    m = member(epoch=1, assigned=ALL)
    owners = owned_by(m)
    reconcile(m, some(A, 0), 2, owners, None)

    reconcile(m, ALL, 3, owners, some(A, 0))

    assert (m.state, m.epoch, m.assigned) == (MemberState.STABLE, 3, ALL)


@pytest.mark.parametrize(
    ("reported", "owned", "fine"),
    [
        (7, None, True),
        (0, {}, True),  # it joins again
        (6, some(A, 0), True),  # the answer with the present epoch was lost
        (6, {}, True),
        (6, some(A, 0, 3), False),  # it has what it should not
        (6, None, False),  # without a list of its partitions
        (5, some(A, 0), False),
        (8, some(A, 0), False),
    ],
)
def test_a_member_may_be_one_epoch_behind_if_it_has_nothing_that_is_not_its_own(
    reported, owned, fine
):
    m = member(epoch=7, previous_epoch=6, assigned=some(A, 0, 1))

    if fine:
        m.check_epoch(reported, owned)
    else:
        refused(FencedMemberEpoch, lambda: m.check_epoch(reported, owned))


def test_a_member_that_is_away_is_at_no_epoch():
    refused(FencedMemberEpoch, lambda: member(epoch=STATIC_LEAVE_EPOCH).check_epoch(3, {}))


def test_members_are_found_by_id_and_by_instance_until_they_go():
    members = ConsumerGroupMembers()
    m = member("m", instance_id="i", assigned=some(A, 0))
    timer = FakeCall(lambda: None)
    members.add(m)
    m.wait(MemberTimer.SESSION, FakeCall(lambda: None))
    m.wait(MemberTimer.SESSION, timer)

    assert (members.find_member("m"), members.static("i"), len(members)) == (m, m, 1)
    assert members.static(None) is None
    assert not members.owners.free(A, [0], "n")

    members.remove(m)
    assert (members.find_member("m"), members.static("i"), list(members)) == (None, None, [])
    assert members.owners.free(A, [0], "n")
    assert timer.cancelled


def test_a_partition_is_never_given_to_a_second_member():
    owners = owned_by(member("m", assigned=ALL))

    with pytest.raises(AssertionError, match="second member"):
        owners.update("n", {}, some(A, 0))
    with pytest.raises(AssertionError, match="another member"):
        owners.update("n", some(A, 0), {})
