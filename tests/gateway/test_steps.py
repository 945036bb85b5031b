"""Large requests: bounded, decoded aside, looked at in turns, while others are served."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.gateway.fakes import frame
from tests.gateway.kafka.fetch.test_fetch import fetch
from tests.gateway.kafka.rig import Peer, Rig, settle
from tests.gateway.kafka.test_connection import head
from tests.gateway.loop import on_loop
from tests.waiting import run_ready_tasks
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.names import parse_kafka
from trilogue.gateway.kafka import apis
from trilogue.gateway.kafka.configs import configs
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.kafka.offsets import list_offsets
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.cluster.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from trilogue.wire.kafka.codec.compile import encoder
from trilogue.wire.kafka.configs.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import FetchResponse
from trilogue.wire.kafka.groups.classic import FindCoordinatorRequest
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from trilogue.wire.kafka.groups.consumer import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from trilogue.wire.kafka.groups.delete_groups import DeleteGroupsRequest
from trilogue.wire.kafka.groups.describe_consumer_groups import ConsumerGroupDescribeRequest
from trilogue.wire.kafka.groups.describe_groups import DescribeGroupsRequest
from trilogue.wire.kafka.metadata.api_versions import ApiVersionsRequest
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic
from trilogue.wire.kafka.metadata.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from trilogue.wire.kafka.offsets.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from trilogue.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@on_loop
async def test_a_request_may_name_only_so_many_things(caplog):
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(fetch("t", *range(apis.FETCHED - 1)), 11)

        peer.send(fetch("t", *range(apis.FETCHED)), 11)
        await settle()

        assert peer.is_cut
        assert caplog.messages == ["connection.bad_bytes"]
        assert f"array of {apis.FETCHED} elements" in caplog.records[0].problem


@on_loop
async def test_bare_numbers_count_as_things_too(caplog):
    """They are quick to decode, and counted afterwards."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        parts = DescribableLogDirTopic(topic="t", partitions=list(range(20_000)))

        peer.send(DescribeLogDirsRequest(topics=[parts]), 1)
        await settle()

        assert peer.is_cut
        assert caplog.messages == ["request.too_many_elements"]


def test_request_with_too_many_elements_is_refused_before_decoding():
    """Decoded up to a million things it took a thread a second and a gigabyte to be refused."""
    api = apis.find_api(42 << 16 | 2)
    most = api.spec.elements_max
    good = encoded(DeleteGroupsRequest(groups_names=["g"] * most), 2)
    request, _ = api.decode(good)
    assert len(request.groups_names) == most
    names = encoded(DeleteGroupsRequest(groups_names=["g"] * (most + 1)), 2)
    tracemalloc.start()

    with pytest.raises(WireError, match=f"array of {most + 1} elements"):
        api.decode(names)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * most  # not even a list of them


@on_loop
async def test_a_produce_request_that_names_too_much_is_not_even_decoded(caplog):
    """It is decoded on the loop: a hundred mebibytes of partitions without records take minutes."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        answer = await peer.request(empty_parts(apis.MANY - 1), 9)
        peer.send(empty_parts(apis.MANY), 9)
        await settle()

        assert len(answer.responses[0].partition_responses) == apis.MANY - 1
        assert peer.is_cut
        assert caplog.messages == ["connection.bad_bytes"]


def encoded(message: object, version: int) -> bytes:
    out = bytearray()
    encoder(type(message), version)(message, out)
    return bytes(out)


def empty_parts(count: int) -> ProduceRequest:
    parts = [PartitionProduceData(index=each, records=None) for each in range(count)]
    return ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=parts)]
    )


@on_loop
async def test_a_member_may_name_as_many_partitions_as_it_may_commit():
    """The only member, with twenty large topics, reports a change of its partitions."""
    assert apis.find_api(68 << 16).spec.elements_max == apis.find_api(8 << 16).spec.elements_max
    async with Rig() as rig:
        parts = [
            HeartbeatTopicPartitions(
                topic_id=bytes(15) + bytes([number]), partitions=list(range(1_000))
            )
            for number in range(1, 21)
        ]
        reported = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=5, topic_partitions=parts
        )

        answer = await rig.peer().request(reported, 1)

        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def positions(count: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(count)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def epochs(count: int) -> OffsetForLeaderEpochRequest:
    partitions = [OffsetForLeaderPartition(partition=each, leader_epoch=1) for each in range(count)]
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)]
    )


@pytest.mark.parametrize(("requested", "version"), [(positions, 7), (epochs, 3)])
@on_loop
async def test_a_topic_may_go_while_a_request_looks_at_it_in_turns(requested, version):
    """Topics of earlier steps are in the answer, later ones are deleted; no connection is cut."""
    count = 3 * list_offsets.PARTITIONS_PER_STEP
    async with Rig() as rig:
        rig.topic("t", count)
        peer = rig.peer()

        peer.send(requested(count), version)
        await run_ready_tasks()
        gone = rig.broker.cluster.plan_delete(parse_kafka("t"))
        rig.meta.write_now(gone.ops(), gone.preconditions)
        gone.apply()
        await settle()

        (topic,) = peer.answer().topics
        codes = [each.error_code for each in topic.partitions]
        there = codes.count(ErrorCode.NONE)
        assert 0 < there < count
        assert codes[there:] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (count - there)


NAMES = [f"name-{number}" for number in range(10_000)]
METADATA = MetadataRequest(
    topics=[MetadataRequestTopic(name=each) for each in NAMES], allow_auto_topic_creation=False
)
MANY_NAMES = [f"name-{number}" for number in range(20_000)]
EVERY = DescribeConfigsRequest(
    resources=[DescribeConfigsResource(resource_type=2, resource_name=each) for each in MANY_NAMES]
)
EVERY_PAGE = DescribeTopicPartitionsRequest(
    topics=[DescribeTopicPartitionsTopic(name=each) for each in MANY_NAMES]
)
PAGE = DescribeTopicPartitionsRequest(
    topics=[DescribeTopicPartitionsTopic(name=each) for each in NAMES]
)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (positions(10_000), 7),
        (epochs(10_000), 3),
        (fetch("t", *range(10_000)), 11),
        (METADATA, 9),
        (PAGE, 0),
    ],
    ids=["ListOffsets", "OffsetForLeaderEpoch", "Fetch", "Metadata", "DescribeTopicPartitions"],
)
@on_loop
async def test_others_are_served_while_a_request_that_names_ten_thousand_things_is(
    request_, version
):
    """It must not block the loop: decoded and encoded in a thread, looked up in steps."""
    async with Rig() as rig:
        rig.topic("t", partitions=10)
        large, small = rig.peer(), rig.peer()

        large.send(request_, version)
        large.send(ApiVersionsRequest(), 0)
        await run_ready_tasks()
        assert rig.executor.runs == 1
        for _ in range(10):
            await settle_once(small)
            assert large.answered == 0

        await large.wait()
        answer = large.answer()
        topics = answer.responses if isinstance(answer, FetchResponse) else answer.topics
        assert 10_000 in {len(topics), len(topics[0].partitions)}
        await large.wait()
        assert large.answer().api_keys, "and the next request after it"


@pytest.mark.parametrize(
    ("request_", "version", "listed"),
    [
        (EVERY, 4, "results"),
        (EVERY_PAGE, 0, "topics"),
        (FindCoordinatorRequest(coordinator_keys=MANY_NAMES), 4, "coordinators"),
        (DescribeGroupsRequest(groups=MANY_NAMES), 5, "groups"),
        (DeleteGroupsRequest(groups_names=MANY_NAMES), 2, "results"),
        (ConsumerGroupDescribeRequest(group_ids=MANY_NAMES), 1, "groups"),
    ],
    ids=lambda value: type(value).__name__,
)
@on_loop
async def test_a_tool_may_request_all_topics_or_groups_of_a_large_cluster_at_once(
    request_, version, listed
):
    """Other requests do not wait for its answer: at least ten are served before it."""
    async with Rig() as rig:
        large, small = rig.peer(), rig.peer()

        large.send(request_, version)
        for _ in range(10):
            await settle_once(small)
            assert large.answered == 0

        await large.wait()
        assert len(getattr(large.answer(), listed)) == len(MANY_NAMES)


@pytest.mark.parametrize(("version", "named"), [(7, False), (8, False), (8, True)])
@on_loop
async def test_positions_in_thousands_of_topics_are_reported_in_turns(version: int, named: bool):
    """A few bytes request all positions of a group: each took the loop 5 us."""
    count = 3_000
    names = MANY_NAMES[:count]
    async with Rig() as rig:
        topics = [rig.topic(each) for each in names]
        moves = [CursorMove(each.partitions[0].partition_id, 0) for each in topics]
        done = rig.broker.commit(Protocol.KAFKA, "g", moves)
        await settle()
        assert done.done
        large, small = rig.peer(), rig.peer()
        wanted = [OffsetFetchRequestTopics(name=each, partition_indexes=[0]) for each in names]
        group = OffsetFetchRequestGroup(group_id="g", topics=wanted if named else None)
        request = OffsetFetchRequest(groups=[group], group_id="g", topics=None)

        large.send(request, version)
        for _ in range(4):
            await settle_once(small)
            assert large.answered == 0

        await large.wait()
        answer = large.answer()
        found = answer.groups[0].topics if version >= 8 else answer.topics
        assert [each.name for each in found] == names
        assert {each.partitions[0].committed_offset for each in found} == {0}


@on_loop
async def test_one_setting_of_as_many_topics_as_may_be_changed_at_once_can_be():
    """Each is two things that the request lists: the topic and the setting."""
    most = KafkaSettings().topics_per_request_max
    changes = [IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="5")]
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(resource_type=2, resource_name=each, configs=changes)
            for each in MANY_NAMES[: most + 1]
        ]
    )
    async with Rig() as rig:
        peer = rig.peer()

        peer.send(request, 1)
        await peer.wait()

        codes = [each.error_code for each in peer.answer().responses]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [unknown] * most + [ErrorCode.INVALID_REQUEST]


@on_loop
async def test_describe_configs_of_thousands_of_topics_yields_to_the_loop():
    count = 2_000
    async with Rig() as rig:
        for each in MANY_NAMES[:count]:
            rig.topic(each)
        large, small = rig.peer(), rig.peer()
        request = DescribeConfigsRequest(resources=EVERY.resources[:count])

        large.send(request, 4)
        for _ in range(count // configs.YIELD_EVERY - 1):
            await settle_once(small)
            assert large.answered == 0

        await large.wait()
        results = large.answer().results
        assert [each.resource_name for each in results] == MANY_NAMES[:count]
        assert {each.error_code for each in results} == {0}
        assert all(each.configs == results[0].configs for each in results)


async def settle_once(peer: Peer) -> None:
    """One request, answered in one turn."""
    peer.send(ApiVersionsRequest(), 0)
    await run_ready_tasks()
    assert peer.answer().api_keys


@on_loop
async def test_a_large_request_with_bad_bytes_costs_its_connection_only(caplog):
    async with Rig() as rig:
        peer = rig.peer()

        peer.transport.receive(frame(head(2, 7) + b"\xff" * (65 << 10)))
        await settle()

        assert peer.is_cut
        assert caplog.messages == ["connection.bad_bytes"]


@on_loop
async def test_a_connection_may_end_while_its_large_request_is_decoded():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        peer.send(positions(10_000), 7)

        peer.transport.close()
        await settle()

        assert (await rig.peer().request(positions(1), 7)).topics[0].partitions[0].offset == 0
