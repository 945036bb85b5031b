"""A server starts on a full disk: to read, to delete, to come back to its senses."""

from __future__ import annotations

import asyncio
import contextlib

from tests.crash.faults import small_disk
from tests.node.test_background import append, make_topic, started
from tests.waiting import wait_on_loop
from trilogue.broker.names import parse_kafka
from trilogue.log.partition_log import TailSlice

SETTINGS = ("journal.file-size=1MiB", "disk.reserve=8MiB", "disk.min-free=4MiB")


def test_a_start_on_a_full_disk_takes_its_room_from_the_reserve(tmp_path):
    """On a full disk reads, deletes and changes of metadata continue."""
    with small_disk(tmp_path / "disk", 64) as disk:

        async def before():
            async with started(disk / "data", *SETTINGS) as node:
                await append(node, await make_topic(node), b"kept")
                await wait_on_loop(node.storage.directory.reserve.exists, "the reserve file")

        async def after():
            async with started(disk / "data", *SETTINGS) as node:
                topic = node.storage.broker.cluster.topic(parse_kafka("t"))
                assert isinstance(topic.partitions[0].log.read(0, 1_000), TailSlice)
                await node.metadata_writer.write(
                    node.storage.broker.cluster.plan_delete(topic.name)
                )

        asyncio.run(before())
        with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(1 << 16)):
                pass
        asyncio.run(after())
