"""A node inside the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import httpx
import pytest

import trilogue
from tests.waiting import wait_on_loop
from trilogue.gateway.kafka.api_table import ApiTable
from trilogue.gateway.kafka.apis import TABLE as TABLE_OF_APIS
from trilogue.log.errors import StorageFailed
from trilogue.node import gateways
from trilogue.node.errors import StartError
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import LISTENERS, TABLE

SOURCE = Path(trilogue.__file__).parent


def settings_of(data, *assignments):
    listen = (f"listen.{door}=127.0.0.1:0" for door in LISTENERS)
    return load_settings(environment={}, assignments=[f"data={data}", *listen, *assignments])


@contextlib.asynccontextmanager
async def started(data, *assignments):
    node = Node(settings_of(data, *assignments))
    await node.start()
    try:
        yield node
    finally:
        async with asyncio.timeout(20):
            await node.close()


async def health(node):
    async with httpx.AsyncClient() as client:
        response = await client.get(f"http://{node.gateways.addresses['http']}/healthz")
    return response.status_code, response.json()["state"]


async def probe(node, path):
    async with httpx.AsyncClient() as client:
        response = await client.get(f"http://{node.gateways.addresses['http']}/{path}")
    return response.status_code, response.text


def test_requests_are_loaded_while_the_node_serves(tmp_path, monkeypatch):
    """In a thread: the loop would stand still at the first use of each."""
    fresh = ApiTable(TABLE_OF_APIS)
    newest = [row.key << 16 | row.served[1] for row in TABLE_OF_APIS]
    monkeypatch.setattr(gateways, "PUBLIC", fresh)
    monkeypatch.setattr(gateways, "LOAD_AFTER_S", 0)

    async def scenario():
        async with started(tmp_path / "data"):
            await wait_on_loop(lambda: all(map(fresh.cached_api, newest)), "all APIs are loaded")

    asyncio.run(scenario())


def test_health_follows_the_node(tmp_path):
    async def scenario():
        async with started(tmp_path / "data") as node:
            assert await health(node) == (200, "serving")

            await node.drain(asyncio.Event(), 5)

            assert await health(node) == (503, "draining")
            assert await probe(node, "readyz") == (503, "the node is draining")
            assert await probe(node, "livez") == (200, "ok")

    asyncio.run(scenario())


def test_a_node_is_ready_again_when_the_disk_has_room_without_a_client_that_writes(tmp_path):
    async def scenario():
        free = [1 << 40]
        node = Node(settings_of(tmp_path / "data"), free_bytes=lambda: free[0])
        await node.start()
        try:
            for size, status, text in ((0, 503, "the disk is full"), (1 << 40, 200, "ok")):
                free[0] = size
                async with asyncio.timeout(60):
                    while (await probe(node, "readyz"))[0] != status:
                        pass
                assert text in (await probe(node, "readyz"))[1]
                assert await probe(node, "livez") == (200, "ok")
        finally:
            await node.close()

    asyncio.run(scenario())


def test_an_empty_data_directory_takes_at_most_80_mb(tmp_path):
    async def scenario():
        for _ in range(2):
            async with started(tmp_path / "data") as node:
                await node.drain(asyncio.Event(), 5)
            files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
            assert sum(path.stat().st_blocks * 512 for path in files) <= 80_000_000

    asyncio.run(scenario())


def test_first_failure_is_kept_and_reported_by_health(tmp_path):
    async def scenario():
        async with started(tmp_path / "data") as node:
            node.fail(StorageFailed("first"))
            node.fail(StorageFailed("second"))

            assert node.failed.is_set()
            assert str(node.failure) == "first"
            assert await health(node) == (503, "failed")

    asyncio.run(scenario())


def test_a_failed_store_fails_the_node(tmp_path):
    async def scenario():
        async with started(tmp_path / "data") as node:
            with sqlite3.connect(node.storage.directory.meta) as other:
                other.execute("DROP TABLE nodes")
            other.close()

            with pytest.raises(StorageFailed):
                await node.storage.meta.reserve("partition", 1_000_000)
            async with asyncio.timeout(60):
                await node.failed.wait()

    asyncio.run(scenario())


def test_work_in_the_background_that_breaks_fails_the_node(tmp_path):
    async def scenario():
        async with started(tmp_path / "data") as node:

            async def broken():
                raise RuntimeError("no retry helps")

            await node._guarded(broken())

            assert str(node.failure) == "no retry helps"

    asyncio.run(scenario())


def test_a_start_that_fails_leaves_the_data_free(tmp_path):
    async def scenario():
        async with started(tmp_path / "first") as node:
            taken = node.gateways.addresses["http"]
            second = Node(settings_of(tmp_path / "second", f"listen.http={taken}"))
            with pytest.raises(StartError, match="http cannot listen on"):
                await second.start()

        async with started(tmp_path / "second"):
            pass

    asyncio.run(scenario())


def test_hurry_ends_a_drain_at_once(tmp_path):
    async def scenario():
        async with started(tmp_path / "data") as node:
            hurry = asyncio.Event()
            hurry.set()
            node.flusher._none.clear()  # a flush that never ends

            async with asyncio.timeout(60):
                await node.drain(hurry, 60)

    asyncio.run(scenario())


def test_a_drain_ends_when_its_time_is_over(tmp_path):
    async def scenario():
        async with started(tmp_path / "data") as node:
            node.flusher._none.clear()  # a flush that never ends

            async with asyncio.timeout(60):
                await node.drain(asyncio.Event(), 0.1)

    asyncio.run(scenario())


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.key)
def test_every_setting_is_obeyed_somewhere(row):
    """A setting that nothing reads would be a promise that nothing keeps."""
    rooms = [SOURCE / "node", SOURCE / "cli"]
    names = "setting sources table groups kafka pulsar tubemq"
    tables = {f"{name}.py" for name in names.split()}
    texts = [
        path.read_text()
        for room in rooms
        for path in room.rglob("*.py")
        if path.parent.name != "settings" or path.name not in tables
    ]
    wanted = {f'"{row.key}"'}
    if row.key.startswith("listen."):
        wanted.add('f"listen.{name}"')
    if row.key.startswith("advertise."):
        wanted.add('f"advertise.{plan.name}"')

    assert any(name in text for text in texts for name in wanted)
