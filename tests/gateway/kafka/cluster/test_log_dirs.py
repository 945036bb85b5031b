"""DescribeLogDirs and AlterReplicaLogDirs: the one log directory."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.cluster.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

HERE = "/data"


def build_request(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=rows) for name, rows in topics]
    )


def sizes(response) -> dict[str, dict[int, int]]:
    (folder,) = response.results
    return {
        topic.name: {row.partition_index: row.partition_size for row in topic.partitions}
        for topic in folder.topics
    }


@pytest.mark.parametrize("version", versions(35))
@on_loop
async def test_every_version_returns_the_sizes_of_partitions(version):
    async with Rig() as rig:
        rig.topic("t", 2)
        rig.topic("u")
        peer = rig.peer()
        written = batch("a" * 100), batch("b" * 1000)
        for each in written:
            await peer.request(produce("t", each, index=1), 7)

        response = await peer.request(DescribeLogDirsRequest(topics=None), version)

        assert response.error_code == 0
        assert sizes(response) == {"t": {0: 0, 1: sum(map(len, written))}, "u": {0: 0}}
        (folder,) = response.results
        assert (folder.error_code, folder.log_dir) == (0, HERE)
        room = rig.log.disk_space() if version >= 4 else (-1, -1)
        assert (folder.total_bytes, folder.usable_bytes) == room
        assert not folder.is_cordoned
        for row in folder.topics[0].partitions:
            assert (row.offset_lag, row.is_future_key) == (0, False)


@on_loop
async def test_a_size_is_the_same_before_and_after_a_flush():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(produce("t", batch("a" * 5000)), 7)
        before = sizes(await peer.request(build_request(("t", [0])), 4))

        await rig.flush()
        await settle()

        assert rig.gateway.topic("t").partitions[0].log.tail_bytes == 0
        assert sizes(await peer.request(build_request(("t", [0])), 4)) == before
        await peer.request(produce("t", batch("b" * 700)), 7)
        more = sizes(await peer.request(build_request(("t", [0])), 4))
        assert more["t"][0] == before["t"][0] + len(batch("b" * 700))


@on_loop
async def test_unknown_partitions_are_omitted_and_duplicates_merged():
    async with Rig() as rig:
        rig.topic("t", 3)
        peer = rig.peer()

        requested = build_request(
            ("t", [0, 2, 9, 2, -1]), ("nope", [0]), ("b ad", [0]), ("t", [0, 1])
        )
        assert sizes(await peer.request(requested, 2)) == {"t": {0: 0, 2: 0, 1: 0}}
        assert sizes(await peer.request(build_request(), 2)) == {}


@on_loop
async def test_describe_log_dirs_without_permission_is_denied():
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")

        response = await rig.peer().request(DescribeLogDirsRequest(topics=None), 4)

        assert (response.error_code, response.results) == (31, [])


# ---- moving


def move(path: str, *topics: tuple[str, list[int]]) -> AlterReplicaLogDir:
    rows = [AlterReplicaLogDirTopic(name=name, partitions=rows) for name, rows in topics]
    return AlterReplicaLogDir(path=path, topics=rows)


def codes(response) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (topic.topic_name, [(row.partition_index, row.error_code) for row in topic.partitions])
        for topic in response.results
    ]


@pytest.mark.parametrize("version", versions(34))
@on_loop
async def test_a_replica_is_where_it_is_and_goes_nowhere_else(version):
    async with Rig() as rig:
        rig.topic("t", 2)
        rig.topic("u")
        requested = AlterReplicaLogDirsRequest(
            dirs=[
                move(HERE, ("t", [0, 9]), ("nope", [0])),
                move("/elsewhere", ("t", [1]), ("nope", [1]), ("u", [0])),
                move("data", ("u", [0])),
            ]
        )

        response = await rig.peer().request(requested, version)

        assert codes(response) == [
            ("t", [(0, 0), (9, 3), (1, 57)]),
            ("nope", [(0, 3), (1, 57)]),
            ("u", [(0, 57), (0, 57)]),
        ]


@on_loop
async def test_alter_replica_log_dirs_without_permission_is_denied():
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")

        requested = AlterReplicaLogDirsRequest(dirs=[move(HERE, ("t", [0]))])
        assert codes(await rig.peer().request(requested, 2)) == [("t", [(0, 31)])]
