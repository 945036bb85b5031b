"""DescribeProducers: the idempotent producers of a partition."""

from __future__ import annotations

from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import NOW_MS, Rig, batch
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.transactions.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    ProducerState,
)


def build_request(*topics: tuple[str, list[int]]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[DescribeProducersTopic(name=name, partition_indexes=rows) for name, rows in topics]
    )


@on_loop
async def test_each_producer_is_described_with_its_last_sequence():
    """KIP-664; plain producers have no state."""
    async with Rig() as rig:
        rig.topic("t", 2)
        peer = rig.peer()
        for producer_id, epoch, sequence in ((7, 0, 0), (7, 0, 3), (9, 4, 0)):
            written = batch(
                "a", "b", "c", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
            )
            await peer.request(produce("t", written), 7)
            rig.now_ms += 1000
        await peer.request(produce("t", batch("plain")), 7)

        (topic,) = (await peer.request(build_request(("t", [0, 1])), 0)).topics

        first, empty = topic.partitions
        assert (first.error_code, first.error_message) == (0, None)
        assert first.active_producers == [
            ProducerState(
                producer_id=7, producer_epoch=0, last_sequence=5, last_timestamp=NOW_MS + 1000,
                coordinator_epoch=-1, current_txn_start_offset=-1,
            ),
            ProducerState(
                producer_id=9, producer_epoch=4, last_sequence=2, last_timestamp=NOW_MS + 2000,
                coordinator_epoch=-1, current_txn_start_offset=-1,
            ),
        ]  # fmt: skip
        assert (empty.partition_index, empty.error_code, empty.active_producers) == (1, 0, [])


@on_loop
async def test_a_partition_that_is_named_again_is_reported_once():
    """A small request must not get an unlimited response: all producers, thousands of times."""
    async with Rig() as rig:
        rig.topic("t", 2)

        requested = build_request(("t", [0, 1, *[0] * 1_000]), ("t", [1, 0]))
        (topic,) = (await rig.peer().request(requested, 0)).topics

        assert [each.partition_index for each in topic.partitions] == [0, 1]


@on_loop
async def test_unknown_or_denied_partitions_have_their_own_errors():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("secret")
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, "public/default/secret")

        response = await rig.peer().request(
            build_request(("t", [0, 9, -1]), ("nope", [0]), ("b ad", [0]), ("secret", [0, 1])), 0
        )

        codes = [
            (topic.name, [row.error_code for row in topic.partitions]) for topic in response.topics
        ]
        assert codes == [("t", [0, 3, 3]), ("nope", [3]), ("b ad", [17]), ("secret", [29, 29])]
