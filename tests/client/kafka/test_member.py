"""Membership of a group when requests are lost, with a scripted coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.client.kafka.scripted import (
    HANG_UP,
    METADATA,
    SILENCE,
    TOPIC,
    ScriptedKafkaCluster,
    on_cluster,
)
from trilogue.client.kafka import EARLIEST, Consumer, GroupProtocol, KafkaClient, Partition
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups import classic as groups
from trilogue.wire.kafka.groups import committed_offsets as offsets
from trilogue.wire.kafka.groups import consumer as consumer_groups
from trilogue.wire.kafka.groups.member_metadata import (
    AssignedPartitions,
    Assignment,
    encode_assignment,
)

JOIN, SYNC, BEAT, LEAVE = (
    "JoinGroupRequest", "SyncGroupRequest", "HeartbeatRequest", "LeaveGroupRequest",
)  # fmt: skip
QUICK = {"group": "g", "reset_to": EARLIEST, "heartbeat_s": 0.02, "retry_pause_s": 0.01}
KEYS = {8: (2, 6), 9: (2, 5), 10: (1, 3), 11: (2, 5), 12: (1, 3), 13: (1, 4), 14: (1, 3)}


class Coordinator:
    """Answers of a coordinator to the one member of a group that it leads itself."""

    def __init__(self, cluster: ScriptedKafkaCluster) -> None:
        self.generation = 0
        cluster.served |= KEYS
        for name in dir(self):
            if name.startswith("on_"):
                setattr(cluster, name, getattr(self, name))
        self._cluster = cluster

    def on_FindCoordinatorRequest(self, _request: Any, code: int) -> Any:  # noqa: N802
        return groups.FindCoordinatorResponse(
            error_code=code, node_id=1, host="127.0.0.1", port=self._cluster.ports[0]
        )

    def on_JoinGroupRequest(self, _request: Any, code: int) -> Any:  # noqa: N802
        self.generation += 1
        return groups.JoinGroupResponse(
            error_code=code, generation_id=self.generation, protocol_name="range",
            leader="somebody", member_id="m", members=[],
        )  # fmt: skip

    def on_SyncGroupRequest(self, _request: Any, code: int) -> Any:  # noqa: N802
        share = [AssignedPartitions(topic=TOPIC, partitions=[0, 1, 2])]
        octets = encode_assignment(Assignment(assigned_partitions=share), version=1)
        return groups.SyncGroupResponse(error_code=code, assignment=octets)

    def on_HeartbeatRequest(self, _request: Any, code: int) -> Any:  # noqa: N802
        return groups.HeartbeatResponse(error_code=code)

    def on_LeaveGroupRequest(self, _request: Any, code: int) -> Any:  # noqa: N802
        return groups.LeaveGroupResponse(error_code=code)

    def on_OffsetFetchRequest(self, request: Any, code: int) -> Any:  # noqa: N802
        topics = [
            offsets.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    offsets.OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, metadata=""
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
        return offsets.OffsetFetchResponse(error_code=code, topics=topics)

    def on_OffsetCommitRequest(self, request: Any, code: int) -> Any:  # noqa: N802
        topics = [
            offsets.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    offsets.OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return offsets.OffsetCommitResponse(topics=topics)


async def read_until_assigned(consumer: Consumer) -> None:
    async with asyncio.timeout(60):
        while consumer.assignment != {Partition(TOPIC, number) for number in range(3)}:
            await consumer.poll(0.02)


@on_cluster
async def test_member_joins_again_if_its_sync_response_is_lost(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """The server counts it as the owner: no other member would read these partitions."""
    Coordinator(cluster)
    cluster.next_up[SYNC].append(HANG_UP)
    consumer = await client.consumer(TOPIC, **QUICK)
    await read_until_assigned(consumer)

    assert len(cluster.all(JOIN)) == 2


@on_cluster
async def test_topic_subscribed_during_a_join_is_in_the_next_join(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    Coordinator(cluster)
    cluster.topics["u"] = 1
    subscribing: list[asyncio.Task[None]] = []

    def subscribe(_request: Any, answer: Any) -> Any:
        subscribing.append(asyncio.ensure_future(consumer.subscribe(TOPIC, "u")))
        return answer

    consumer = await client.consumer(**QUICK)
    cluster.next_up[JOIN].append(subscribe)
    await consumer.subscribe(TOPIC)
    async with asyncio.timeout(60):
        while len(cluster.all(JOIN)) < 2:
            await consumer.poll(0.02)
    await subscribing[0]

    assert b"\0\x01u" in bytes(cluster.all(JOIN)[1].protocols[0].metadata)


@on_cluster
async def test_close_during_a_join_leaves_at_once(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """A server answers in order: behind a waiting join, a LeaveGroup would not be handled."""
    Coordinator(cluster)
    consumer = await client.consumer(TOPIC, **QUICK)
    await read_until_assigned(consumer)
    cluster.next_up[BEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    cluster.next_up[JOIN].append(SILENCE)
    async with asyncio.timeout(60):
        while len(cluster.all(JOIN)) < 2:
            await consumer.poll(0.02)
    joined = len(cluster.peers)
    await consumer.close()

    assert len(cluster.all(LEAVE)) == 1
    assert len(cluster.peers) == joined + 1  # sent on a connection without a pending request


class ServerSide(Coordinator):
    """A group of KIP-848: changes are sent once, and everything after a full heartbeat."""

    TOPIC_ID = bytes(15) + b"\x01"

    def __init__(self, cluster: ScriptedKafkaCluster) -> None:
        super().__init__(cluster)
        cluster.served |= {68: (0, 1)}
        self.share: list[int] | None = [0]
        self._usual = cluster.on_MetadataRequest
        cluster.on_MetadataRequest = self.metadata  # type: ignore[method-assign]

    def metadata(self, request: Any, code: int) -> Any:
        answer = self._usual(request, code)
        for topic in answer.topics:
            topic.topic_id = self.TOPIC_ID
        return answer

    def on_ConsumerGroupHeartbeatRequest(self, request: Any, code: int) -> Any:  # noqa: N802
        everything = None not in (request.subscribed_topic_names, request.topic_partitions)
        share, self.share = self.share, None
        if request.member_epoch == 0 or (everything and request.rebalance_timeout_ms > 0):
            share = self.now if share is None else share
        self.now = self.now if share is None else share
        rows = [
            consumer_groups.HeartbeatTopicPartitions(topic_id=self.TOPIC_ID, partitions=self.now)
        ]
        return consumer_groups.ConsumerGroupHeartbeatResponse(
            error_code=code, member_id=request.member_id, member_epoch=1,
            heartbeat_interval_ms=20,
            assignment=None
            if share is None
            else consumer_groups.HeartbeatAssignment(topic_partitions=rows),
        )  # fmt: skip


@on_cluster
async def test_a_share_whose_answer_was_lost_is_requested_again(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    group = ServerSide(cluster)
    consumer = await client.consumer(TOPIC, protocol=GroupProtocol.CONSUMER, **QUICK)
    async with asyncio.timeout(60):
        while consumer.assignment != {Partition(TOPIC, 0)}:
            await consumer.poll(0.02)
    group.share = [0, 1, 2]

    def lost(_request: Any, _answer: Any) -> None:
        """The request is handled, and its response is lost."""
        for peer in cluster.peers:
            peer.hang_up()

    cluster.next_up["ConsumerGroupHeartbeatRequest"].append(lost)
    await read_until_assigned(consumer)


@on_cluster
async def test_a_share_that_could_not_be_named_is_named_later(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """The server sends topic ids once; a node that knows their names comes later."""
    group = ServerSide(cluster)
    group.share = [0, 1, 2]
    usual = group.metadata
    requested: list[Any] = []

    def nameless(request: Any, code: int) -> Any:
        answer = usual(request, code)
        requested.append(request)
        if len(requested) < 3:
            answer.topics = []
        return answer

    cluster.on_MetadataRequest = nameless  # type: ignore[method-assign]
    cluster.next_up[METADATA].append(HANG_UP)
    consumer = await client.consumer(TOPIC, protocol=GroupProtocol.CONSUMER, **QUICK)
    await read_until_assigned(consumer)
