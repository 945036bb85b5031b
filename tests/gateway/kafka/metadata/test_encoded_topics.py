"""Encoded rows: put together they are to the byte what the codec writes at once."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.metadata.test_metadata import build_request
from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.gateway.kafka.metadata import encoded_topics
from trilogue.gateway.kafka.metadata.encoded_topics import EncodedTopics, assemble, encode_topic
from trilogue.gateway.kafka.response_frames import append_frame
from trilogue.wire.kafka.codec.compile import encoder
from trilogue.wire.kafka.metadata.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def topic(name: str, partitions: int = 1, code: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        error_code=code,
        topic_id=bytes(range(16)),
        partitions=[
            MetadataResponsePartition(partition_index=index, replica_nodes=[1], isr_nodes=[1])
            for index in range(partitions)
        ],
    )


def response(topics: list[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="a.host", port=9)],
        cluster_id="an id",
        controller_id=1,
        topics=topics,
        cluster_authorized_operations=77,
        error_code=3,
    )


@pytest.mark.parametrize("count", [0, 1, 2, 130])
@pytest.mark.parametrize("version", versions(3))
def test_rows_put_together_are_what_the_codec_writes(version, count):
    topics = [topic(f"t{number}", number % 5, number % 3) for number in range(count)]
    expected = bytearray()
    append_frame(
        expected,
        encoder(MetadataResponse, version),
        response(topics),
        9,
        flexible=version >= encoded_topics.FLEXIBLE,
    )

    rows = [encode_topic(version, each) for each in topics]

    assert assemble(version, 9, response([]), rows) == expected


@on_loop
async def test_a_topic_is_encoded_once_for_each_version_and_spelling():
    async with Rig() as rig:
        rig.topic("t")
        for version in (1, 1, 9, 9):
            for name in ("t", "public/default/t"):
                (reported,) = (await rig.peer().request(build_request(name), version)).topics
                assert reported.name == name
        assert len(rig.gateway.encoded_topics._kept) == 4


@on_loop
async def test_recreated_topic_is_not_described_by_the_cached_row():
    async with Rig() as rig:
        former = rig.topic("t", partitions=2)
        peer = rig.peer()
        await peer.request(build_request("t"), 12)
        plan = rig.broker.cluster.plan_delete(former.name)
        rig.meta.write_now(plan.ops(), plan.preconditions)
        plan.apply()
        made = rig.topic("t")

        (reported,) = (await peer.request(build_request("t"), 12)).topics

        assert (reported.topic_id, len(reported.partitions)) == (made.topic_id, 1)


@on_loop
async def test_rows_that_are_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(encoded_topics, "KEPT_BYTES_MAX", 1_000)
    async with Rig() as rig:
        made = rig.topic("t")
        rows = EncodedTopics()
        for number in range(100):
            rows.encode(1, f"{number}", made, lambda number=number: topic(f"{number}", number % 7))

            assert rows.size == sum(len(row) for _, row in rows._kept.values()) <= 1_000
