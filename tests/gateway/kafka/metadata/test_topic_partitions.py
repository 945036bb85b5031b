"""DescribeTopicPartitions: pages in the order of names, cursors, who may see what.

Expected answers are those of a real 3.9.1 and 4.3.1 with the same topics.
"""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.kafka.metadata import topic_partitions
from trilogue.wire.kafka.metadata.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)

EVERYTHING = 3576  # the operations that make sense for a topic, when all are allowed
NOT_REQUESTED = -(2**31)


def build_request(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None):
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def reported(response) -> list[tuple[str, list[int]] | tuple[str, int]]:
    """Names with the indexes on this page, or with an error."""
    return [
        (each.name, each.error_code or [row.partition_index for row in each.partitions])
        for each in response.topics
    ]


def goes_on(response) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def three(rig: Rig):
    rig.topic("gamma", 2)
    rig.topic("alpha", 3)
    rig.topic("beta", 1)
    return rig.peer()


@on_loop
async def test_topic_is_described_with_leader_and_authorized_operations():
    async with Rig() as rig:
        topic = rig.topic("t", 2)

        response = await rig.peer().request(build_request("t"), 0)

        (found,) = response.topics
        assert (found.error_code, found.name, found.topic_id) == (0, "t", topic.topic_id)
        assert (found.is_internal, found.topic_authorized_operations) == (False, EVERYTHING)
        for index, row in enumerate(found.partitions):
            assert (row.error_code, row.partition_index) == (0, index)
            assert (row.leader_id, row.leader_epoch) == (1, topic.partitions[index].owner_epoch)
            assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([1], [1], [])
            assert (row.eligible_leader_replicas, row.last_known_elr) == ([], [])
        assert response.next_cursor is None


PAGES = {
    "all": (build_request(), [("alpha", [0, 1, 2]), ("beta", [0]), ("gamma", [0, 1])], None),
    "first": (build_request(limit=2), [("alpha", [0, 1])], ("alpha", 2)),
    "second": (
        build_request(limit=2, cursor=("alpha", 2)),
        [("alpha", [2]), ("beta", [0])],
        ("gamma", 0),
    ),
    "last": (build_request(limit=2, cursor=("gamma", 0)), [("gamma", [0, 1])], None),
    "a cursor beyond its topic": (
        build_request(limit=2, cursor=("alpha", 7)),
        [("alpha", []), ("beta", [0]), ("gamma", [0])],
        ("gamma", 1),
    ),
    "a cursor of a topic that is gone": (
        build_request(limit=2, cursor=("az", 1)),
        [("beta", [0]), ("gamma", [0])],
        ("gamma", 1),
    ),
    "named, each once, by name": (
        build_request("beta", "alpha", "alpha"),
        [("alpha", [0, 1, 2]), ("beta", [0])],
        None,
    ),
    "full at the end of a topic": (
        build_request("alpha", "gamma", limit=3),
        [("alpha", [0, 1, 2])],
        ("gamma", 0),
    ),
    "full before one that is unknown": (
        build_request("gamma", "nope", limit=2),
        [("gamma", [0, 1])],
        ("nope", 0),
    ),
    "a limit that is none": (build_request("alpha", limit=0), [("alpha", [0])], ("alpha", 1)),
    "a limit below that": (build_request("alpha", limit=-1), [("alpha", [0])], ("alpha", 1)),
    "unknown": (build_request("nope", "alpha"), [("alpha", [0, 1, 2]), ("nope", 3)], None),
    "no name": (build_request("b ad", "alpha"), [("alpha", [0, 1, 2]), ("b ad", 17)], None),
    "named with a cursor": (
        build_request("alpha", "beta", cursor=("beta", 0)),
        [("beta", [0])],
        None,
    ),
    "a cursor of an unknown one": (
        build_request("aaaa", "beta", cursor=("aaaa", 0)),
        [("aaaa", 3), ("beta", [0])],
        None,
    ),
}


@pytest.mark.parametrize("kind", PAGES)
@on_loop
async def test_pages(kind):
    requested, rows, cursor = PAGES[kind]
    async with Rig() as rig:
        peer = await three(rig)

        response = await peer.request(requested, 0)

        assert reported(response) == rows
        assert goes_on(response) == cursor
        assert {each.topic_authorized_operations for each in response.topics} == {EVERYTHING}


@pytest.mark.parametrize(
    "requested",
    [
        build_request("alpha", "gamma", cursor=("beta", 0)),
        build_request("alpha", "gamma", cursor=("zeta", 0)),
        build_request("alpha", "gamma", cursor=("alpha", -1)),
    ],
)
@on_loop
async def test_a_cursor_that_cannot_be_is_refused(requested):
    async with Rig() as rig:
        peer = await three(rig)

        response = await peer.request(requested, 0)

        assert reported(response) == [("alpha", 42), ("gamma", 42)]
        assert response.topics[0].topic_authorized_operations == NOT_REQUESTED
        assert response.next_cursor is None
        assert reported(await peer.request(build_request(cursor=("alpha", -1)), 0)) == []


@on_loop
async def test_pages_put_together_are_everything(monkeypatch):
    monkeypatch.setattr(topic_partitions, "PAGE_MAX", 7)
    async with Rig() as rig:
        for number in range(20):
            rig.topic(f"t{number}", number % 5 + 1)
        peer = rig.peer()
        found: list[tuple[str, int]] = []
        cursor, pages = None, 0
        while True:
            response = await peer.request(build_request(cursor=cursor), 0)
            page = [
                (each.name, index) for each in response.topics for index in reported_indexes(each)
            ]
            assert len(page) <= 7
            found += page
            pages += 1
            cursor = goes_on(response)
            if cursor is None:
                break

        whole = [(f"t{number}", index) for number in range(20) for index in range(number % 5 + 1)]
        assert found == sorted(whole)
        assert pages == 9


def reported_indexes(topic) -> list[int]:
    return [row.partition_index for row in topic.partitions]


@on_loop
async def test_topic_without_permission_is_denied_only_by_name():
    async with Rig() as rig:
        peer = await three(rig)
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/alpha")

        assert [name for name, _ in reported(await peer.request(build_request(), 0))] == [
            "beta",
            "gamma",
        ]
        response = await peer.request(build_request("alpha", "beta"), 0)
        assert reported(response) == [("beta", [0]), ("alpha", 29)]
        assert response.topics[1].topic_authorized_operations == NOT_REQUESTED


@on_loop
async def test_nothing_is_made_by_mentioning_it():
    async with Rig() as rig:
        assert reported(await rig.peer().request(build_request("new"), 0)) == [("new", 3)]
        assert len(rig.broker.cluster) == 0


@on_loop
async def test_a_request_names_a_bounded_number_of_topics():
    async with Rig(settings=KafkaSettings(described_per_request_max=2)) as rig:
        peer = await three(rig)

        assert reported(await peer.request(build_request("alpha", "beta", "gamma"), 0)) == [
            ("alpha", 42), ("beta", 42), ("gamma", 42),
        ]  # fmt: skip
        assert len(reported(await peer.request(build_request("alpha", "beta"), 0))) == 2
