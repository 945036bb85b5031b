"""Requests that come for the slots of a dead node, before this node has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.gateway.kafka.groups.test_committed_offsets import commit, committed
from tests.gateway.kafka.produce.test_produce import only, stored
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Peer, Rig, batch, settle
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.gateway.kafka.expected_slots import WAIT_S
from trilogue.meta.operations import AssignSlots
from trilogue.meta.state import SlotRow
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.classic import FindCoordinatorRequest
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic

SLOT, DEAD = 1, 2  # node 1 has slot 0


@asynccontextmanager
async def divided() -> AsyncIterator[Rig]:
    """A node with one of two slots, and a topic with partitions of both."""
    rig = Rig()
    rig.meta.write_now([AssignSlots((1, DEAD))])
    rig.meta.state.node_id = 1
    async with rig:
        rig.broker.cluster.ownership.hold()
        rig.topic("t", 2)
        yield rig


def remote_index(rig: Rig) -> int:
    """Return the number of a partition in the slot of the dead node."""
    (topic,) = rig.broker.cluster
    return next(index for index, each in enumerate(topic.partitions) if each.is_remote)


def remote_group(rig: Rig) -> str:
    """Return the name of a group in that slot."""
    names = (f"group-{number}" for number in range(1_000))
    return next(name for name in names if rig.meta.state.slot_of(name) == SLOT)


def adopt(rig: Rig) -> None:
    """Let node 1 own the slot, and serve it."""
    rig.meta.state.slots[SLOT] = SlotRow(1, 5)
    rig.broker.cluster.ownership.adopt([SLOT])
    rig.broker.adopt_slots({SLOT}, [])


async def leaders(peer: Peer) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    (topic,) = (await peer.request(request, 9)).topics
    return [each.leader_id for each in topic.partitions]


@on_loop
async def test_clients_are_sent_to_the_next_owner_of_a_dead_nodes_slots():
    async with divided() as rig:
        peer, group = rig.peer(), remote_group(rig)
        assert await leaders(peer) == [1, DEAD] or await leaders(peer) == [DEAD, 1]

        rig.broker.cluster.ownership.expect({SLOT: 1})

        assert await leaders(peer) == [1, 1]
        found = await peer.request(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        assert [each.node_id for each in found.coordinators] == [1]


@on_loop
async def test_a_request_waits_until_the_slot_of_its_partition_is_served():
    async with divided() as rig:
        index, peer = remote_index(rig), rig.peer()
        refused = await peer.request(produce("t", batch("a"), index=index), 9)
        assert only(refused).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        rig.broker.cluster.ownership.expect({SLOT: 1})
        peer.send(produce("t", batch("b"), index=index), 9)
        peer.send(produce("t", batch("c"), index=1 - index), 9)  # behind it: responses are in order
        await pass_time(WAIT_S / 2)
        assert peer.answered == 0
        other = await rig.peer().request(produce("t", batch("d"), index=1 - index), 9)
        assert only(other).error_code == 0, "other connections do not wait"

        adopt(rig)
        await settle()
        assert [only(peer.answer()).error_code for _ in range(2)] == [0, 0]
        (topic,) = rig.broker.cluster
        assert stored(rig, topic, index) == [b"b"]


@on_loop
async def test_a_member_waits_for_the_slot_of_its_group():
    async with divided() as rig:
        peer = rig.peer()
        rig.broker.cluster.ownership.expect({SLOT: 1})
        peer.send(commit("t", 3, 3, group=remote_group(rig)), 7)
        await settle()
        assert peer.answered == 0

        adopt(rig)
        await settle()
        assert committed(peer.answer()) == [0, 0]


@on_loop
async def test_a_request_waits_for_a_time_only_and_not_for_slots_of_others():
    async with divided() as rig:
        index, peer = remote_index(rig), rig.peer()
        rig.broker.cluster.ownership.expect({SLOT: 1})
        peer.send(produce("t", batch("a"), index=index), 9)
        await pass_time(WAIT_S + 0.1)
        assert only(peer.answer()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        peer.send(produce("t", batch("a"), index=index), 9)
        await settle()
        assert peer.answered == 0
        rig.broker.cluster.ownership.expect({})  # its recovery failed
        await settle()
        assert only(peer.answer()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_loop
async def test_a_client_that_leaves_while_it_waits_stores_nothing():
    async with divided() as rig:
        index, peer = remote_index(rig), rig.peer()
        rig.broker.cluster.ownership.expect({SLOT: 1})
        peer.send(produce("t", batch("a"), index=index), 9)
        peer.transport.close()
        adopt(rig)
        await settle()
        (topic,) = rig.broker.cluster
        assert stored(rig, topic, index) == []
