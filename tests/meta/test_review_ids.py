"""Ids come back after a full disk: a block that failed is requested again."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.log.errors import DiskFull
from trilogue.meta.errors import NoIdsLeft
from trilogue.meta.operations import ID_BLOCKS, PutSetting, PutSnapshot
from trilogue.meta.sqlite import SqliteMeta


def test_ids_that_ran_out_on_a_full_disk_come_back_when_there_is_room(tmp_path):
    """The requested block shares its transaction with a change that finds no room."""
    path = tmp_path / "meta.sqlite"
    meta = SqliteMeta.open(path, create=True, size_max=400_000)

    async def scenario():
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            first = asyncio.ensure_future(meta.write([PutSetting("a", "b")]))
            await wait_on_loop(lambda: meta._loop is not None and meta._queue.empty())
            large = asyncio.ensure_future(meta.write([PutSnapshot(b"k", bytes(500_000))]))
            await run_ready_tasks()
            for _ in range(ID_BLOCKS["producer"]):
                meta.allocate("producer")
            other.execute("ROLLBACK")
        other.close()
        await first
        with pytest.raises(DiskFull):
            await large

        with pytest.raises(NoIdsLeft):
            meta.allocate("producer")
        await meta.write([PutSetting("a", "c")])

        assert meta.allocate("producer") > ID_BLOCKS["producer"]

    try:
        asyncio.run(scenario())
    finally:
        meta.close()
