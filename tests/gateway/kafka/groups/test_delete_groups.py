"""DeleteGroups and OffsetDelete: results, and that a deletion is durable."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.groups.test_classic import enter, sync
from tests.gateway.kafka.groups.test_committed_offsets import commit, fetch, positions
from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.facts import FactKind
from trilogue.wire.kafka.groups.classic import JoinGroupRequestProtocol
from trilogue.wire.kafka.groups.delete_groups import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from trilogue.wire.kafka.groups.member_metadata import Subscription, encode_subscription

SUBSCRIPTION = encode_subscription(Subscription(topics=["t"]))


def offset_delete(group: str = "g", **topics: list[int]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in indexes],
            )
            for name, indexes in topics.items()
        ],
    )


def outcomes(answer) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.name: [(each.partition_index, each.error_code) for each in topic.partitions]
        for topic in answer.topics
    }


async def delete(peer, *names: str, version: int = 2) -> dict[str, int]:
    answer = await peer.request(DeleteGroupsRequest(groups_names=list(names)), version)
    return {each.group_id: each.error_code for each in answer.results}


async def left(peer, group: str = "g") -> dict[str, list[tuple[int, int, int]]]:
    """Topic to (partition, offset, error): all offsets of the group."""
    return positions(5, await peer.request(fetch(5, None, group=group), 5))


async def reader(peer, metadata: bytes = SUBSCRIPTION, kind: str = "consumer"):
    """A stable group `g` with one member that reads `t`."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    joined = await enter(peer, 9, protocol_type=kind, protocols=protocols)
    await peer.request(sync(joined, protocol_type=kind, protocol_name="range"), 5)
    return joined


async def committed(rig: Rig, group: str = "g"):
    """Topics t and u of two partitions, with an offset in each."""
    for name in "tu":
        rig.topic(name, partitions=2)
    peer = rig.peer()
    for name in "tu":
        await peer.request(commit(name, 5, 6, group=group), 6)
    return peer


# ---- groups


@pytest.mark.parametrize("version", versions(42))
@on_loop
async def test_every_version_deletes_a_group_with_its_positions(version):
    async with Rig() as rig:
        peer = await committed(rig)
        await peer.request(commit("t", 5, group="other"), 6)

        assert await delete(peer, "g", version=version) == {"g": 0}
        assert await left(peer) == {}
        assert await left(peer, "other") == {"t": [(0, 5, 0)]}


@on_loop
async def test_each_group_has_one_result_and_duplicates_are_merged():
    """68 unless Empty, 69 unknown."""
    async with Rig() as rig:
        peer = await committed(rig, "by-hand")
        await reader(peer)

        assert await delete(peer, "g", "nobody", "", "by-hand", "by-hand") == {
            "g": 68,
            "nobody": 69,
            "": 69,
            "by-hand": 0,
        }


@on_loop
async def test_a_group_may_be_deleted_once_its_members_have_gone():
    async with Rig() as rig:
        peer = await committed(rig)
        joined = await reader(peer)
        rig.broker.groups.leave("g", joined.member_id)

        assert await delete(peer, "g") == {"g": 0}
        assert await delete(peer, "g") == {"g": 69}


@on_loop
async def test_a_deletion_is_answered_when_it_is_in_the_journal():
    async with Rig() as rig:
        peer = await committed(rig)
        reported: list[int] = []
        add_fact = rig.log.journal.add_fact

        def note(kind: int, payload: bytes, acks_from_memory: bool = False) -> None:
            reported.append(kind)
            add_fact(kind, payload, acks_from_memory)

        rig.log.journal.add_fact = note
        assert await delete(peer, "g") == {"g": 0}

        assert reported == [FactKind.CURSORS_REMOVED]


@on_loop
async def test_delete_groups_without_permission_is_denied():
    async with Rig() as rig:
        peer = await committed(rig)
        rig.rules.deny(Operation.DELETE, ResourceKind.GROUP, "g")

        assert await delete(peer, "g", "nobody") == {"g": 30, "nobody": 69}
        answer = await peer.request(offset_delete(t=[0]), 0)
        assert (answer.error_code, answer.topics) == (30, [])
        assert set(await left(peer)) == {"t", "u"}


# ---- positions


@on_loop
async def test_positions_of_a_group_without_members_go():
    async with Rig() as rig:
        peer = await committed(rig)

        answer = await peer.request(offset_delete(t=[0], u=[1, 0]), 0)

        assert (answer.error_code, outcomes(answer)) == (0, {"t": [(0, 0)], "u": [(1, 0), (0, 0)]})
        assert await left(peer) == {"t": [(1, 6, 0)]}


@on_loop
async def test_a_group_of_readers_keeps_positions_of_what_it_reads():
    """KIP-496: error 86 for topics that the group is subscribed to; the others are deleted."""
    async with Rig() as rig:
        peer = await committed(rig)
        await reader(peer)

        answer = await peer.request(offset_delete(t=[0, 1], u=[0]), 0)

        assert outcomes(answer) == {"t": [(0, 86), (1, 86)], "u": [(0, 0)]}
        assert await left(peer) == {"t": [(0, 5, 0), (1, 6, 0)], "u": [(1, 6, 0)]}


@on_loop
async def test_a_subscription_of_version_1_without_owned_partitions_names_its_topics():
    """As platformatic-kafka writes it."""
    async with Rig() as rig:
        peer = await committed(rig)
        first = encode_subscription(Subscription(topics=["t"]), 0)
        await reader(peer, metadata=b"\0\1" + first[2:])

        answer = await peer.request(offset_delete(t=[0], u=[0]), 0)

        assert outcomes(answer) == {"t": [(0, 86)], "u": [(0, 0)]}


@on_loop
async def test_a_group_whose_members_cannot_be_read_may_read_anything():
    async with Rig() as rig:
        peer = await committed(rig)
        await reader(peer, metadata=b"\xff")

        assert outcomes(await peer.request(offset_delete(u=[0]), 0)) == {"u": [(0, 86)]}


@on_loop
async def test_members_of_another_kind_keep_everything():
    """KIP-496: NON_EMPTY_GROUP unless the protocol type is consumer."""
    async with Rig() as rig:
        peer = await committed(rig)
        await reader(peer, kind="connect")

        answer = await peer.request(offset_delete(u=[0]), 0)

        assert (answer.error_code, answer.topics) == (68, [])
        assert set(await left(peer)) == {"t", "u"}


@on_loop
async def test_partitions_that_are_not_there_have_an_error_each_and_those_without_a_position_none():
    async with Rig() as rig:
        peer = await committed(rig)
        rig.topic("w")

        answer = await peer.request(
            offset_delete(t=[0, 2, -1], w=[0], nowhere=[0], **{"no topic": [0]}), 0
        )

        assert outcomes(answer) == {
            "t": [(0, 0), (2, 3), (-1, 3)],
            "w": [(0, 0)],
            "nowhere": [(0, 3)],
            "no topic": [(0, 3)],
        }


@pytest.mark.parametrize(("group", "code"), [("nobody", 69), ("", 24)])
@on_loop
async def test_a_group_that_is_not_there_is_an_error_of_the_whole(group, code):
    async with Rig() as rig:
        peer = await committed(rig)

        answer = await peer.request(offset_delete(group, t=[0], nowhere=[0]), 0)
        nothing = await peer.request(offset_delete(group), 0)
        nowhere = await peer.request(offset_delete(group, nowhere=[0]), 0)

        assert (answer.error_code, answer.topics) == (code, [])
        assert (nothing.error_code, outcomes(nothing)) == (code, {})
        assert (nowhere.error_code, outcomes(nowhere)) == (code, {})


@on_loop
async def test_each_topic_wants_read_besides():
    async with Rig() as rig:
        peer = await committed(rig)
        topic = rig.broker.cluster.topic_by_id(next(iter(rig.broker.cluster)).topic_id)
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, str(topic.name))

        answer = await peer.request(offset_delete(t=[0], u=[0]), 0)

        assert outcomes(answer) == {"t": [(0, 29)], "u": [(0, 0)]}
