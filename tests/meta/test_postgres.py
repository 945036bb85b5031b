"""What only the store on PostgreSQL does: outages, unknown outcomes, foreign and unsafe servers."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.meta.samples import topic
from tests.postgres import CuttingProxy, PostgresServer, running_postgres
from trilogue.log.errors import CorruptLog, NewerFormat, StorageFailed
from trilogue.meta.errors import Fenced, PreconditionFailed
from trilogue.meta.operations import (
    FORMAT_VERSION,
    ChangeResult,
    Fence,
    PutSetting,
    PutTopic,
    SettingIs,
)

pytest.importorskip("asyncpg")

from trilogue.meta.postgres import LostChanges, PostgresMeta
from trilogue.meta.postgres_opening import WrongCluster

WAIT_S = 60


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.emptied_database()


@pytest.fixture
def open_meta() -> Iterator[Callable[..., PostgresMeta]]:
    opened: list[PostgresMeta] = []

    def open_one(url: str, **options: object) -> PostgresMeta:
        opened.append(PostgresMeta.open(url, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(postgres_server.port)
    yield proxy
    proxy.close()


async def increment(meta: PostgresMeta) -> ChangeResult:
    """A change that no second writing of it would survive."""
    before = meta.state.settings.get("n")
    value = PutSetting("n", str(int(before or 0) + 1))
    fence = Fence(meta.state.node_id, meta.state.node_epoch)
    return await meta.write([value], [SettingIs("n", before)], fence)


# ── unknown outcomes ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_without_answer_takes_place_once(
    open_meta: Callable[..., PostgresMeta],
    url: str,
    postgres_server: PostgresServer,
    proxy: CuttingProxy,
    cut: str,
):
    meta = open_meta(url.replace(str(postgres_server.port), str(proxy.port)))

    async def run() -> None:
        await increment(meta)
        proxy.cut = cut
        await increment(meta)
        await increment(meta)

    asyncio.run(run())

    assert proxy.cuts == 1
    assert meta.state.settings["n"] == "3"
    rows = postgres_server.run("SELECT value FROM trilogue.settings WHERE key = 'n'", url)
    assert rows == [("3",)]


def test_a_refused_change_beside_one_without_answer_stays_refused(
    open_meta: Callable[..., PostgresMeta],
    url: str,
    postgres_server: PostgresServer,
    proxy: CuttingProxy,
):
    meta = open_meta(url.replace(str(postgres_server.port), str(proxy.port)))

    async def run() -> list[object]:
        proxy.cut = "after"
        wrong = meta.write([PutSetting("m", "1")], [SettingIs("n", "7")])
        return await asyncio.gather(increment(meta), wrong, return_exceptions=True)

    first, second = asyncio.run(run())

    assert isinstance(first, ChangeResult)
    assert isinstance(second, PreconditionFailed)
    assert meta.state.settings == {"n": "1"}


def test_a_server_that_crashes_again_and_again_loses_and_repeats_nothing(
    open_meta: Callable[..., PostgresMeta],
):
    with running_postgres() as server:
        url = server.new_database()
        first, second = open_meta(url, node_id=1), open_meta(url, node_id=2)
        acked: list[int] = []

        async def write(meta: PostgresMeta, count: int) -> None:
            for number in range(count):
                while True:
                    await meta.catch_up()
                    try:
                        await increment(meta)
                    except PreconditionFailed:  # the other node was first
                        continue
                    break
                acked.append(number)

        async def crash() -> None:
            for _ in range(2):
                reached = len(acked) + 5
                while len(acked) < reached:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(server.stop, signal.SIGQUIT)
                assert first.failed is second.failed is None
                await asyncio.to_thread(server.start)

        async def run() -> None:
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(write(first, 30), write(second, 30), crash())
                await first.catch_up()

        asyncio.run(run())

        assert first.state.settings["n"] == "60"
        assert first.unavailable_s == 0
        first.close()
        second.close()


def test_a_commit_that_no_standby_has_is_not_acknowledged(
    open_meta: Callable[..., PostgresMeta],
):
    """A cancelled wait for the synchronous standby is answered with a warning only."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with running_postgres() as server:
        meta = open_meta(server.new_database())
        count = 1  # of increments

        def wait_for_standby(names: str) -> None:
            server.run(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            server.run("SELECT pg_reload_conf()")

        async def start_waiting() -> asyncio.Task[None]:
            """Return the first commit that waits: processes of the server read settings later."""
            nonlocal count
            while True:
                task = asyncio.create_task(increment(meta))
                count += 1
                while not task.done():
                    if await asyncio.to_thread(server.run, waiting):
                        return task
                await task

        async def run() -> None:
            await increment(meta)
            await asyncio.to_thread(wait_for_standby, "standby")
            task = await start_waiting()
            former: object = None
            for _ in range(2):  # the commit, and then what asks for its outcome
                while True:
                    found = await asyncio.to_thread(server.run, waiting)
                    if found and found[0] != former:
                        break
                    await asyncio.sleep(0.05)
                former = found[0]
                await asyncio.to_thread(server.run, f"SELECT pg_cancel_backend({found[0][0]})")
                assert not task.done()
            await asyncio.to_thread(wait_for_standby, "")
            async with asyncio.timeout(WAIT_S):
                await task

        asyncio.run(run())

        assert meta.state.settings["n"] == str(count)
        meta.close()


# ── the fence ─────────────────────────────────────────────────────────────────────────────────


def test_a_node_of_an_older_epoch_writes_nothing_after_an_outage(
    open_meta: Callable[..., PostgresMeta], url: str, postgres_server: PostgresServer
):
    older = open_meta(url)
    server = postgres_server
    server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
               "WHERE application_name = 'trilogue'")  # fmt: skip
    newer = open_meta(url)

    with pytest.raises(Fenced):
        asyncio.run(increment(older))
    asyncio.run(increment(newer))

    assert newer.state.settings["n"] == "1"


def test_a_fenced_node_waits_for_its_end_without_work(
    open_meta: Callable[..., PostgresMeta], url: str
):
    older = open_meta(url)
    open_meta(url)
    with pytest.raises(Fenced):
        asyncio.run(increment(older))
    rounds: list[int] = []
    clear = older._announced.clear

    def count_round() -> None:
        rounds.append(1)
        clear()  # an announcement that was on its way ends one wait, not every one

    older._announced.clear = count_round  # type: ignore[method-assign]

    time.sleep(0.2)

    assert len(rounds) < 10


def test_a_server_that_lost_a_change_is_refused(
    open_meta: Callable[..., PostgresMeta], url: str, postgres_server: PostgresServer
):
    meta = open_meta(url)
    asyncio.run(increment(meta))
    server = postgres_server
    server.run("UPDATE trilogue.writers SET number = number - 1", url)
    server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
               "WHERE application_name = 'trilogue'")  # fmt: skip

    with pytest.raises(StorageFailed):
        asyncio.run(increment(meta))

    assert isinstance(meta.failed, StorageFailed)
    assert isinstance(meta.failed.__cause__, LostChanges)


# ── servers and databases that are refused ────────────────────────────────────────────────────


def test_a_server_without_fsync_is_refused():
    with running_postgres("fsync=off") as server:
        url = server.new_database()
        with pytest.raises(StorageFailed, match="fsync = off"):
            PostgresMeta.open(url)


def test_a_database_with_asynchronous_commits_is_refused(postgres_server: PostgresServer):
    url = postgres_server.new_database()
    name = url.rpartition("/")[2]
    postgres_server.run(f"ALTER DATABASE {name} SET synchronous_commit = local")

    with pytest.raises(StorageFailed, match="synchronous_commit = local"):
        PostgresMeta.open(url)


def test_a_server_that_is_away_is_named(postgres_server: PostgresServer):
    with pytest.raises(StorageFailed, match="PostgreSQL"):
        PostgresMeta.open("postgresql://trilogue@127.0.0.1:1/trilogue")


def test_a_newer_format_is_refused_and_stays(
    open_meta: Callable[..., PostgresMeta], url: str, postgres_server: PostgresServer
):
    open_meta(url).close()
    newer = f"'{FORMAT_VERSION + 1}'"
    postgres_server.run(f"UPDATE trilogue.identity SET value = {newer} WHERE key = 'format'", url)

    with pytest.raises(NewerFormat):
        PostgresMeta.open(url)


def test_a_schema_of_others_is_refused(url: str, postgres_server: PostgresServer):
    postgres_server.run("CREATE SCHEMA trilogue", url)

    with pytest.raises(CorruptLog, match="not one of meta"):
        PostgresMeta.open(url)


def test_a_folder_of_another_cluster_is_refused(open_meta: Callable[..., PostgresMeta], url: str):
    open_meta(url).close()

    with pytest.raises(WrongCluster, match="belongs to cluster"):
        PostgresMeta.open(url, cluster_id=bytes(16))


def test_an_emptied_database_is_no_new_cluster_for_a_folder_with_data(url: str):
    with pytest.raises(WrongCluster, match="the database is empty"):
        PostgresMeta.open(url, cluster_id=bytes(16))


def test_a_node_id_belongs_to_one_folder(open_meta: Callable[..., PostgresMeta], url: str):
    first = open_meta(url, node_id=2, home=b"a")

    with pytest.raises(WrongCluster, match="node 2 has its journal in another folder"):
        PostgresMeta.open(url, node_id=2, home=b"b")

    asyncio.run(increment(first))
    assert open_meta(url, node_id=2, home=b"a").state.settings == {"n": "1"}


def test_nodes_that_start_at_once_make_one_cluster(url: str):
    async def start() -> list[PostgresMeta]:
        opening = (
            asyncio.to_thread(PostgresMeta.open, url, node_id=each, owners=(1, 2, 3))
            for each in (1, 2, 3)
        )
        return await asyncio.gather(*opening)

    nodes = asyncio.run(start())
    for each in nodes:
        each.close()

    assert len({each.state.cluster_id for each in nodes}) == 1
    assert [row.node_id for row in nodes[0].state.slots.values()] == [1, 2, 3]


def test_a_text_with_a_nul_is_refused_alone(open_meta: Callable[..., PostgresMeta], url: str):
    meta = open_meta(url)

    async def both() -> list[object]:
        good = meta.write([PutTopic(topic("orders", 1))])
        bad = meta.write([PutSetting("a", "\0")])
        return await asyncio.gather(good, bad, return_exceptions=True)

    good, bad = asyncio.run(both())

    assert isinstance(good, ChangeResult)
    assert "NUL" in str(bad)
    assert not meta.state.settings
