"""Classic groups: requests and responses in every version."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.kafka.rig import Rig, settle, versions
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.groups.classic import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from trilogue.wire.kafka.transactions.describe_transactions import DescribeTransactionsRequest
from trilogue.wire.kafka.transactions.init_producer_id import InitProducerIdRequest


def join(group: str = "g", member_id: str = "", **how) -> JoinGroupRequest:
    how.setdefault("session_timeout_ms", 10_000)
    how.setdefault("rebalance_timeout_ms", 10_000)
    how.setdefault("protocol_type", "consumer")
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"meta")]
    return JoinGroupRequest(
        group_id=group, member_id=member_id, protocols=how.pop("protocols", protocols), **how
    )


async def enter(peer, version: int, **how):
    """Join, with a second request if the first one only returns the member id."""
    answer = await peer.request(join(**how), version)
    if answer.error_code == 79:
        answer = await peer.request(join(**{**how, "member_id": answer.member_id}), version)
    assert answer.error_code == 0
    return answer


def sync(joined, assignment: bytes | None = b"mine", **how) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment or b"")]
    return SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=given if assignment is not None else [],
        **how,
    )


@pytest.mark.parametrize("version", versions(10))
@on_loop
async def test_this_node_coordinates_every_group(version):
    async with Rig() as rig:
        requested = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])

        answer = await rig.peer().request(requested, version)

        found = answer.coordinators if version >= 4 else [answer]
        where = [(each.error_code, each.node_id, each.host, each.port) for each in found]
        assert where == [(0, 1, "broker.example", 9092)] * (2 if version >= 4 else 1)


@pytest.mark.parametrize("version", [1, 6])
@on_loop
async def test_initial_delay_waits_for_a_client_that_looked_up_the_coordinator(version):
    async with Rig() as rig:
        first = asyncio.ensure_future(enter(rig.peer(), 2))
        await settle()
        peer = rig.peer()
        await peer.request(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), version)
        await pass_time(0.2)

        second = await enter(peer, 2)

        assert ((await first).generation_id, second.generation_id) == (1, 1)


@pytest.mark.parametrize("version", [1, 4, 6])
@on_loop
async def test_coordinator_of_a_transaction_is_this_node(version):
    async with Rig() as rig:
        peer = rig.peer()
        requested = FindCoordinatorRequest(key="x", coordinator_keys=["x"], key_type=1)

        answer = await peer.request(requested, version)
        described = await peer.request(DescribeTransactionsRequest(transactional_ids=["x"]), 0)
        requested_id = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
        begun = await peer.request(requested_id, 4)

        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
        assert described.transaction_states[0].error_code == 105
        assert begun.error_code == 0


@on_loop
async def test_transaction_coordinator_without_permission_is_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TRANSACTION, "x")
        requested = FindCoordinatorRequest(coordinator_keys=["x"], key_type=1)

        (found,) = (await rig.peer().request(requested, 4)).coordinators

        assert (found.error_code, found.node_id) == (53, -1)


@pytest.mark.parametrize("key_type", [2, 7])
@pytest.mark.parametrize("version", [1, 4, 6])
@on_loop
async def test_unsupported_key_types_have_no_coordinator(key_type, version):
    async with Rig() as rig:
        requested = FindCoordinatorRequest(key="x", coordinator_keys=["x"], key_type=key_type)

        answer = await rig.peer().request(requested, version)

        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id) == (42, -1)
        assert "not served" in found.error_message


@pytest.mark.parametrize("version", versions(11))
@on_loop
async def test_every_version_joins(version):
    async with Rig() as rig:
        answer = await enter(rig.peer(), version)

        assert (answer.generation_id, answer.protocol_name) == (1, "range")
        assert answer.leader == answer.member_id == "rig-member-1"
        assert answer.protocol_type == ("consumer" if version >= 7 else None)
        assert [(each.member_id, each.metadata) for each in answer.members] == [
            ("rig-member-1", b"meta")
        ]


@pytest.mark.parametrize("version", versions(13))
@on_loop
async def test_to_leave_a_group_without_a_name_is_one_error(version):
    async with Rig() as rig:
        requested = LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="m")])

        answer = await rig.peer().request(requested, version)

        assert (answer.error_code, answer.members) == (24, [])


@pytest.mark.parametrize("version", versions(14))
@on_loop
async def test_sync_group_requires_the_protocol_since_v5(version):
    async with Rig() as rig:
        peer = rig.peer()
        joined = await enter(peer, 9)

        silent = await peer.request(sync(joined), version)
        wrong = await peer.request(
            sync(joined, protocol_type="consumer", protocol_name="x"), version
        )
        right = await peer.request(
            sync(joined, protocol_type="consumer", protocol_name="range"), version
        )

        refused = 23 if version >= 5 else 0
        assert [silent.error_code, wrong.error_code, right.error_code] == [refused, refused, 0]


@pytest.mark.parametrize("version", versions(11))
@on_loop
async def test_since_v4_a_new_member_gets_its_id_first(version):
    """v0-3 joins at once; v4+: error 79 with the id."""
    async with Rig() as rig:
        answer = await rig.peer().request(join(), version)

        assert (answer.error_code, answer.member_id) == (79 if version >= 4 else 0, "rig-member-1")


@on_loop
async def test_before_v1_the_rebalance_takes_as_long_as_a_session():
    async with Rig() as rig:
        first, second = rig.peer(), rig.peer()
        await enter(first, 0, session_timeout_ms=7_000)
        begin = rig.loop.time()

        await enter(second, 0, session_timeout_ms=7_000)

        assert rig.loop.time() - begin == pytest.approx(7.0, abs=0.3)


@pytest.mark.parametrize("version", versions(14))
@on_loop
async def test_every_version_syncs(version):
    async with Rig() as rig:
        peer = rig.peer()
        joined = await enter(peer, 5)
        requested = sync(joined, protocol_type="consumer", protocol_name="range")

        answer = await peer.request(requested, version)

        assert (answer.error_code, answer.assignment) == (0, b"mine")
        assert answer.protocol_name == ("range" if version >= 5 else None)


@on_loop
async def test_a_follower_waits_for_the_leaders_assignment():
    async with Rig() as rig:
        peers = [rig.peer(), rig.peer()]
        for peer in peers:
            peer.send(join(), 3)
        await pass_time(5)
        leader, follower = (peer.answer() for peer in peers)
        assert [each.member_id for each in leader.members] == ["rig-member-1", "rig-member-2"]
        assert follower.members == []

        peers[1].send(sync(follower, None), 2)
        await settle()
        assert peers[1].answered == 0
        requested = sync(leader, b"one")
        requested.assignments.append(
            SyncGroupRequestAssignment(member_id=follower.member_id, assignment=b"two")
        )

        assert (await peers[0].request(requested, 2)).assignment == b"one"
        assert peers[1].answer().assignment == b"two"


@pytest.mark.parametrize("version", versions(12))
@on_loop
async def test_heartbeats(version):
    async with Rig() as rig:
        peer = rig.peer()
        joined = await enter(peer, 5)
        await peer.request(sync(joined), 3)

        async def beat(generation: int, member_id: str) -> int:
            requested = HeartbeatRequest(
                group_id="g", generation_id=generation, member_id=member_id
            )
            return (await peer.request(requested, version)).error_code

        assert await beat(1, joined.member_id) == 0
        assert await beat(2, joined.member_id) == 22
        assert await beat(1, "stranger") == 25


@pytest.mark.parametrize("version", versions(13))
@on_loop
async def test_every_version_leaves(version):
    async with Rig() as rig:
        peer = rig.peer()
        joined = await enter(peer, 5)
        members = [MemberIdentity(member_id=joined.member_id), MemberIdentity(member_id="no")]
        requested = LeaveGroupRequest(group_id="g", member_id=joined.member_id, members=members)

        answer = await peer.request(requested, version)

        assert answer.error_code == 0
        if version >= 3:
            reported = [(each.member_id, each.error_code) for each in answer.members]
            assert reported == [("rig-member-1", 0), ("no", 25)]
        again = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
        assert (await peer.request(again, 2)).error_code == 25


@on_loop
async def test_a_static_member_that_comes_back_fences_the_former():
    async with Rig() as rig:
        peer = rig.peer()
        former = await enter(peer, 5, group_instance_id="i")
        await enter(rig.peer(), 5, group_instance_id="i")

        requested = HeartbeatRequest(
            group_id="g", generation_id=1, member_id=former.member_id, group_instance_id="i"
        )

        assert (await peer.request(requested, 3)).error_code == 82


BAD = {
    "session": ({"session_timeout_ms": 1}, 26),
    "group name": ({"group": ""}, 24),
    "no protocols": ({"protocols": []}, 23),
    "stranger": ({"member_id": "stranger"}, 25),
}


@pytest.mark.parametrize("kind", BAD)
@on_loop
async def test_refusals_of_a_join(kind):
    how, code = BAD[kind]
    async with Rig() as rig:
        for version in (0, 6, 7, 9):
            answer = await rig.peer().request(join(**how), version)

            assert answer.error_code == code
            assert answer.protocol_name == (None if version >= 7 else "")


@on_loop
async def test_group_requests_without_permission_are_denied():
    async with Rig() as rig:
        for operation in (Operation.READ, Operation.DESCRIBE):
            rig.rules.deny(operation, ResourceKind.GROUP, "g")
        peer = rig.peer()
        requests = [
            (FindCoordinatorRequest(key="g"), 1),
            (join(), 3),
            (SyncGroupRequest(group_id="g"), 2),
            (HeartbeatRequest(group_id="g"), 2),
            (LeaveGroupRequest(group_id="g"), 2),
        ]

        assert [(await peer.request(*each)).error_code for each in requests] == [30] * 5


@on_loop
async def test_a_member_whose_connection_closed_is_let_go_after_its_session():
    async with Rig() as rig:
        first, second = rig.peer(), rig.peer()
        joined = await enter(first, 3)
        await first.request(sync(joined), 2)
        first.send(join(member_id=joined.member_id), 3)  # waits, then its connection is gone
        first.transport.close()

        answer = await enter(second, 3)

        assert answer.error_code == 0


@pytest.mark.parametrize("parked", [False, True])
@on_loop
async def test_a_member_behind_a_connection_that_is_only_half_there_is_let_go_too(parked):
    """Nothing closes such a connection; the member's missing heartbeats are what counts."""
    async with Rig() as rig:
        first, second = rig.peer(), rig.peer()
        joined = await enter(first, 3)
        await first.request(sync(joined), 2)
        if parked:
            first.send(join(member_id=joined.member_id), 3)  # the response is never read

        answer = await enter(second, 3)
        while len(answer.members) != 1:
            answer = await enter(second, 3, member_id=answer.member_id)

        assert answer.leader == answer.member_id != joined.member_id
