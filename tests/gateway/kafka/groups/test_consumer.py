"""ConsumerGroupHeartbeat: requests and responses (KIP-848)."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import parse_kafka
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from trilogue.wire.kafka.groups.consumer import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)

VERSIONS = pytest.mark.parametrize("version", versions(68))
JOINING = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 1_000, "topic_partitions": []}

HAS_NONE = "TopicPartitions must be empty when joining"
EITHER = "SubscribedTopicNames or SubscribedTopicRegex must be provided in the first request"


def beat(member_id: str = "a", epoch: int = 0, **fields) -> ConsumerGroupHeartbeatRequest:
    given = JOINING | fields if epoch == 0 else fields
    return ConsumerGroupHeartbeatRequest(
        **{"group_id": "g", "member_id": member_id, "member_epoch": epoch} | given
    )


def shared(answer) -> dict[bytes, list[int]] | None:
    if answer.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


@VERSIONS
@on_loop
async def test_heartbeats_assign_and_confirm_partitions(version):
    async with Rig() as rig:
        t = rig.topic("t", 3).topic_id
        peer = rig.peer()

        first = await peer.request(beat("a"), version)
        assert (first.error_code, first.member_id, first.heartbeat_interval_ms) == (0, "a", 200)
        assert shared(first) == {t: [0, 1, 2]}
        second = await peer.request(beat("b"), version)
        assert (second.member_epoch, shared(second)) == (first.member_epoch + 1, {})
        epoch = first.member_epoch
        assert shared(await peer.request(beat("a", epoch), version)) == {t: [0, 1]}
        has = [HeartbeatTopicPartitions(topic_id=t, partitions=[0, 1])]
        given_up = await peer.request(beat("a", epoch, topic_partitions=has), version)
        assert (given_up.member_epoch, shared(given_up)) == (epoch + 1, None)
        assert shared(await peer.request(beat("b", epoch + 1), version)) == {t: [2]}
        gone = await peer.request(beat("a", -1), version)
        assert (gone.error_code, gone.member_epoch, gone.heartbeat_interval_ms) == (0, -1, 0)


@on_loop
async def test_a_member_without_an_id_is_given_one_in_version_0():
    """KIP-1082: from v1 on clients make their own."""
    async with Rig() as rig:
        rig.topic("t")
        answer = await rig.peer().request(beat(""), 0)

        assert answer.error_code == 0
        assert len(answer.member_id) == 22
        assert (await rig.peer().request(beat(""), 1)).error_code == 42


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"member_id": ""}, "MemberId is empty"),
        ({"group_id": ""}, "GroupId is empty"),
        ({"instance_id": ""}, "InstanceId is empty"),
        ({"rack_id": " "}, "RackId is empty"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in the first request"),
        ({"topic_partitions": None}, HAS_NONE),
        (
            {"topic_partitions": [HeartbeatTopicPartitions(topic_id=bytes(16), partitions=[1])]},
            HAS_NONE,
        ),
        (
            {"subscribed_topic_names": None},
            EITHER,
        ),
        ({"member_epoch": -3}, "MemberEpoch is invalid: -3"),
        ({"member_epoch": -2}, "InstanceId is null in a static member's leave"),
    ],
)
@on_loop
async def test_inconsistent_heartbeat_is_refused_with_the_message_of_kafka(fields, why):
    """In Kafka 4.3.1's order of checks."""
    async with Rig() as rig:
        answer = await rig.peer().request(beat(**fields), 1)

        assert (answer.error_code, answer.error_message) == (42, why)
        assert len(rig.broker.groups) == 0


@on_loop
async def test_every_refusal_has_its_code():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        assert (await peer.request(beat("s", instance_id="i"), 1)).error_code == 0

        requested = [
            (25, beat("nobody", 1)),
            (25, beat("a", 7, group_id="other")),
            (69, beat("a", -1, group_id="other")),
            (110, beat("s", 99, instance_id="i")),
            (111, beat("b", instance_id="i")),
            (82, beat("b", 2, instance_id="i")),
            (112, beat("b", server_assignor="cleverest")),
            (128, beat("b", subscribed_topic_regex="(")),
        ]
        for code, request in requested:
            answer = await peer.request(request, 1)
            assert (answer.error_code, answer.member_id) == (code, None)
            assert answer.error_message


@on_loop
async def test_groups_and_the_topics_they_name_are_requested():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("u")
        peer = rig.peer()
        rig.rules.deny(Operation.READ, ResourceKind.GROUP, "secret")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, str(parse_kafka("u")))

        assert (await peer.request(beat(group_id="secret"), 1)).error_code == 30
        named = await peer.request(beat(subscribed_topic_names=["t", "u"]), 1)
        assert named.error_code == 29
        matched = await peer.request(
            beat(subscribed_topic_names=None, subscribed_topic_regex="t|u"), 1
        )
        assert len(shared(matched)) == 1


@on_loop
async def test_names_that_no_topic_can_have_mean_nothing():
    async with Rig() as rig:
        answer = await rig.peer().request(beat(subscribed_topic_names=["a/b", "no such topic"]), 1)

        assert (answer.error_code, shared(answer)) == (0, {})


# -- positions of members


def commit(member_id: str, epoch: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def fetch(member_id: str | None, epoch: int) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(
        group_id="g", member_id=member_id, member_epoch=epoch, topics=topics
    )
    return OffsetFetchRequest(groups=[group])


@pytest.mark.parametrize(
    ("version", "member", "epoch", "code"),
    [
        (9, "a", 2, 0),
        (9, "a", 1, 113),
        (9, "a", 3, 113),
        (9, "a", -1, 113),
        (9, "b", 2, 25),
        (9, "", -1, 25),
        (8, "a", 2, 35),  # its version of the commit is not known to such a client
        (8, "", -1, 25),
    ],
)
@on_loop
async def test_a_member_commits_at_its_epoch(version, member, epoch, code):
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        assert (await peer.request(beat("a"), 1)).member_epoch == 2

        answer = await peer.request(commit(member, epoch), version)

        assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(("epoch", "code"), [(4, 113), (3, 0), (2, 0), (1, 113)])
@on_loop
async def test_a_member_commits_partitions_at_the_epoch_since_which_it_owns_them(epoch, code):
    """KIP-1251: its epoch has moved on, and it has kept partition 0; as Kafka 4.3.1."""
    async with Rig() as rig:
        t = rig.topic("t", 2).topic_id
        peer = rig.peer()
        await peer.request(beat("a"), 1)
        await peer.request(beat("b"), 1)
        await peer.request(beat("a", 2), 1)
        has = [HeartbeatTopicPartitions(topic_id=t, partitions=[0])]
        assert (await peer.request(beat("a", 2, topic_partitions=has), 1)).member_epoch == 3

        answer = await peer.request(commit("a", epoch), 9)

        assert answer.topics[0].partitions[0].error_code == code


@on_loop
async def test_a_member_of_a_group_that_is_not_here_any_more_cannot_commit():
    """After a restart the member gets UNKNOWN_MEMBER_ID and joins again."""
    async with Rig() as rig:
        rig.topic("t")

        answer = await rig.peer().request(commit("a", 2), 9)

        assert answer.topics[0].partitions[0].error_code == 25


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [("a", 2, 0), ("a", 1, 113), ("b", 2, 25), (None, -1, 0), ("", -1, 25)],
)
@on_loop
async def test_a_member_gets_positions_at_its_epoch(member, epoch, code):
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(beat("a"), 1)

        answer = await peer.request(fetch(member, epoch), 9)

        assert answer.groups[0].error_code == code
