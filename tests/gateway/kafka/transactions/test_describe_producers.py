"""DescribeProducers: the idempotent producers of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from tests.broker.transactions.node_world import FakePort
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import NOW_MS, Rig, batch
from tests.gateway.loop import on_loop
from tests.waiting import wait_on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import NotOwner, NotReady
from trilogue.broker.node_requests import DescribeProducers, ProducerRow, ProducerRows
from trilogue.broker.producers import described
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import LISTS_OF_OTHERS_AT_ONCE
from trilogue.meta.operations import AssignSlots
from trilogue.wire.kafka.transactions.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
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


OTHER = 2
ROWS = [ProducerRow(number, 1, number, NOW_MS, -1) for number in (3, 5, 8)]


class Divided(NamedTuple):
    """A node with one of two slots, and a topic with a partition in each."""

    rig: Rig
    port: FakePort
    topic: Topic

    def describe(self) -> asyncio.Task[DescribeProducersResponse]:
        """Begin a request of a new client for both partitions."""
        return asyncio.create_task(self.rig.peer().request(build_request(("t", [0, 1])), 0))


@asynccontextmanager
async def divided() -> AsyncIterator[Divided]:
    rig, port = Rig(), FakePort()
    rig.meta.write_now([AssignSlots((1, OTHER))])
    rig.meta.state.node_id = 1
    async with rig:
        rig.broker.branches.port = port
        yield Divided(rig, port, rig.topic("t", 2))


@on_loop
async def test_the_owner_describes_the_producers_of_its_partitions():
    async with divided() as node:
        port, topic = node.port, node.topic
        index = next(at for at, each in enumerate(topic.partitions) if each.is_remote)
        partition_id = topic.partitions[index].partition_id
        describing = node.describe()
        for rows, is_last in ((ROWS[:2], False), (ROWS[2:], True)):
            await wait_on_loop(lambda: bool(port.waiting))
            after = -1 if rows[0] is ROWS[0] else 5
            assert port.waiting == [(OTHER, DescribeProducers(partition_id, after))]
            port.sent[-1][2].set_result(ProducerRows(tuple(rows), is_last))

        (found,) = (await describing).topics

        assert [each.error_code for each in found.partitions] == [0, 0]
        producers = {each.partition_index: each.active_producers for each in found.partitions}
        assert [each.producer_id for each in producers[index]] == [3, 5, 8]
        assert producers[index][0].last_timestamp == NOW_MS
        assert producers[1 - index] == []


@on_loop
async def test_a_client_is_sent_on_where_the_owner_does_not_answer():
    async with divided() as node:
        describing = node.describe()
        await wait_on_loop(lambda: bool(node.port.waiting))
        node.port.lose()

        (found,) = (await describing).topics

        codes = [6 if each.is_remote else 0 for each in node.topic.partitions]
        assert [each.error_code for each in found.partitions] == codes


@on_loop
async def test_another_node_gets_the_producers_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(described, "ROWS_MAX", 2)
    async with divided() as node:
        rig, topic = node.rig, node.topic
        here, there = sorted(topic.partitions, key=lambda each: each.is_remote)
        peer = rig.peer()
        for producer_id in (8, 3, 5):
            written = batch("a", producer_id=producer_id, producer_epoch=1, base_sequence=0)
            index = topic.partitions.index(here)
            await peer.request(produce("t", written, index=index), 7)
        handle = rig.broker.node_requests.handle

        first = handle(OTHER, DescribeProducers(here.partition_id, -1)).result()
        second = handle(OTHER, DescribeProducers(here.partition_id, 5)).result()

        assert ([each.producer_id for each in first.rows], first.is_last) == ([3, 5], False)
        assert ([each.producer_id for each in second.rows], second.is_last) == ([8], True)
        refused = handle(OTHER, DescribeProducers(there.partition_id, -1))
        assert isinstance(refused.error, NotOwner)
        assert isinstance(handle(OTHER, DescribeProducers(9_999, -1)).error, NotReady)


@on_loop
async def test_few_requests_to_other_nodes_are_under_way_at_once():
    async with divided() as node:
        port = node.port
        waiting = [node.describe() for _ in range(50)]
        for count in range(1, len(waiting) + 1):
            await wait_on_loop(lambda count=count: len(port.sent) >= count)
            assert len(port.waiting) <= LISTS_OF_OTHERS_AT_ONCE
            port.sent[count - 1][2].set_result(ProducerRows((), is_last=True))

        found = await asyncio.gather(*waiting)

        rows = [row for each in found for topic in each.topics for row in topic.partitions]
        assert [row.error_code for row in rows] == [0] * 2 * len(waiting)
