"""What only a store on disk can get wrong: opening, damage, full and failing disks, kills."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from tests.meta.samples import segment, topic
from tests.waiting import run_ready_tasks
from trilogue.log.errors import CorruptLog, DiskFull, NewerFormat, StorageFailed
from trilogue.meta.errors import Fenced, NoIdsLeft, TooManyChanges
from trilogue.meta.operations import (
    ID_BLOCKS,
    AllocateIds,
    ChangeResult,
    DeleteSnapshot,
    Op,
    PartitionState,
    PutPartitionState,
    PutSegment,
    PutSetting,
    PutSnapshot,
    PutTopic,
    SlotRow,
)
from trilogue.meta.queued_meta import WAITING_MAX
from trilogue.meta.sqlite import SqliteMeta

ROOT = Path(__file__).parent.parent.parent


def commit(meta: SqliteMeta, *ops: Op) -> ChangeResult:
    async def once() -> ChangeResult:
        return await meta.write(ops)

    return asyncio.run(once())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a small database is that was closed in order."""
    path = tmp_path / "meta.sqlite"
    meta = SqliteMeta.open(path, create=True)
    commit(
        meta,
        PutTopic(topic("orders", 1, 2)),
        PutSegment(segment(1, 1, 2)),
        PutSetting("a", "1"),
        PutSnapshot(b"a", b"1"),
    )
    meta.close()
    return path


def alter(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


# ── opening ───────────────────────────────────────────────────────────────────────────────────


def test_committed_changes_are_restored_at_the_next_start(path: Path):
    meta = SqliteMeta.open(path)

    assert meta.state.topics == {("public", "default", "orders"): topic("orders", 1, 2)}
    assert meta.state.segments == {1: segment(1, 1, 2)}
    assert meta.state.settings == {"a": "1"}
    assert list(meta.snapshots()) == [(b"a", b"1")]
    meta.close()


def test_each_start_is_an_epoch_of_the_same_node_of_the_same_cluster(path: Path):
    seen = []
    for _ in range(3):
        meta = SqliteMeta.open(path, new_cluster_id=lambda: bytes(16))
        seen.append((meta.state.cluster_id, meta.state.node_id, meta.state.node_epoch))
        meta.close()

    assert [epoch for _, _, epoch in seen] == [2, 3, 4]
    assert {node for _, node, _ in seen} == {1}
    assert len({cluster for cluster, _, _ in seen}) == 1
    assert seen[0][0] != bytes(16)


def test_ids_are_never_given_twice_also_over_restarts(path: Path):
    taken: list[int] = []
    for _ in range(5):
        meta = SqliteMeta.open(path)
        taken += [meta.allocate("segment") for _ in range(30)]
        meta.close()

    assert len(set(taken)) == 150
    assert taken == sorted(taken)


def test_the_next_block_is_fetched_before_the_last_id_is_gone(path: Path):
    meta = SqliteMeta.open(path)

    async def take() -> int:
        for _ in range(ID_BLOCKS["segment"] // 2 + 1):
            meta.allocate("segment")
        await meta.write([PutSetting("a", "2")])  # later in the queue than the refill
        taken = 0
        while True:
            try:
                meta.allocate("segment")
            except NoIdsLeft:
                return taken
            taken += 1

    assert asyncio.run(take()) == ID_BLOCKS["segment"] // 2 - 1 + ID_BLOCKS["segment"]
    meta.close()


def test_opening_a_small_database_is_fast(path: Path):
    """Of processor time: what the disk and other processes take is not counted."""
    times = []
    for _ in range(10):
        began = time.process_time()
        meta = SqliteMeta.open(path)
        times.append(time.process_time() - began)
        meta.close()

    assert min(times) <= 0.2  # 0.003 on the machine of the benchmarks


def test_the_file_is_private_and_every_commit_is_synced(path: Path):
    meta = SqliteMeta.open(path)

    for name in ("meta.sqlite", "meta.sqlite-wal"):
        assert (path.parent / name).stat().st_mode & 0o077 == 0
    assert meta._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert meta._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    meta.close()


def test_meta_that_is_gone_is_not_made_again(tmp_path: Path):
    """An empty meta would make recovery drop every message as one of a deleted topic."""
    for content in (None, b""):
        if content is not None:
            (tmp_path / "meta.sqlite").write_bytes(content)
        with pytest.raises(CorruptLog, match="missing or empty"):
            SqliteMeta.open(tmp_path / "meta.sqlite")

    alter(tmp_path / "meta.sqlite", "PRAGMA journal_mode = WAL")  # no longer 0 bytes, yet empty
    with pytest.raises(CorruptLog, match="empty"):
        SqliteMeta.open(tmp_path / "meta.sqlite")


def test_creating_goes_on_where_a_first_start_died(tmp_path: Path):
    (tmp_path / "meta.sqlite").touch()

    meta = SqliteMeta.open(tmp_path / "meta.sqlite", create=True)

    assert meta.state.node_epoch == 1
    meta.close()


def test_create_keeps_existing_contents(path: Path):
    meta = SqliteMeta.open(path, create=True)

    assert meta.state.settings == {"a": "1"}
    meta.close()


def test_a_newer_format_is_refused_and_not_touched(path: Path):
    alter(path, "PRAGMA user_version = 5")
    before = path.read_bytes()

    with pytest.raises(NewerFormat, match="format 5"):
        SqliteMeta.open(path)

    assert path.read_bytes() == before


def test_file_of_format_1_is_upgraded_with_its_contents(path: Path):
    rows = [segment(11, 7), segment(12)]
    meta = SqliteMeta.open(path)
    orders = topic("more orders", 3)
    commit(meta, PutTopic(orders), PutPartitionState(3, 2, 9), *map(PutSegment, rows))
    meta.close()
    older = msgspec.msgpack.encode(list(rows[0].partitions.rows()))
    alter(
        path,
        *[
            f"ALTER TABLE {table} DROP COLUMN {column}"
            for table, column in (
                ("partitions", "compacted_end"),
                ("partitions", "open_transactions"),
                ("partitions", "slot"),
                ("segments", "store"),
                ("segments", "hidden"),
            )
        ],
        f"UPDATE segments SET extents = x'{older.hex()}' WHERE segment_id = 11",
        "INSERT INTO identity SELECT 'node_id', node_id FROM nodes",
        "INSERT INTO identity SELECT 'node_epoch', epoch FROM nodes",
        "INSERT INTO counters SELECT 'flushed_through', 5",
        *[f"DROP TABLE {table}" for table in ("nodes", "slots", "changes")],
        "PRAGMA user_version = 1",
    )

    meta = SqliteMeta.open(path)

    assert [meta.state.segments[each.segment_id] for each in rows] == rows
    assert meta.state.partitions[3] == PartitionState(orders.topic_id, 2, 9)
    assert (meta.state.node_epoch, meta.state.flushed_through) == (3, 5)
    assert meta.state.slots == {0: SlotRow(1, 3)}
    meta.close()
    SqliteMeta.open(path).close()


@pytest.mark.parametrize(
    "damage",
    [
        "PRAGMA application_id = 7",
        "DROP TABLE segments",
        "DELETE FROM identity WHERE key = 'cluster_id'",
        "UPDATE segments SET extents = x'93'",
        "UPDATE segments SET extents = x'919101'",
        "UPDATE topics SET partitions = '[1,'",
        "UPDATE topics SET settings = '3'",
        "UPDATE nodes SET epoch = 'x'",
    ],
)
def test_damaged_rows_are_a_clear_error(path: Path, damage: str):
    alter(path, damage)

    with pytest.raises(CorruptLog, match="meta"):
        SqliteMeta.open(path)


def test_a_file_that_is_no_database_is_a_clear_error(path: Path):
    path.write_bytes(b"no database" * 1000)

    with pytest.raises(CorruptLog, match="meta"):
        SqliteMeta.open(path)


def test_a_cut_database_is_a_clear_error(path: Path):
    path.write_bytes(path.read_bytes()[:4096])

    with pytest.raises(CorruptLog, match="meta"):
        SqliteMeta.open(path)


# ── failing ───────────────────────────────────────────────────────────────────────────────────


def test_a_failed_transaction_acknowledges_nothing_and_ends_meta(path: Path):
    failures: list[Exception] = []
    meta = SqliteMeta.open(path, on_failed=failures.append)
    alter(path, "DROP TABLE settings")

    async def together() -> list[object]:
        ops: list[list[Op]] = [
            [PutSnapshot(b"b", b"2")],
            [PutSetting("a", "2")],
            [PutPartitionState(1, 3, 5)],
        ]
        return await asyncio.gather(*map(meta.write, ops), return_exceptions=True)

    results = asyncio.run(together())

    assert {type(each) for each in results} == {StorageFailed}
    assert isinstance(meta.failed, StorageFailed)
    assert len(failures) == 1
    assert meta.state.settings == {"a": "1"}
    assert meta.state.partitions[1].start_offset == 0
    with pytest.raises(StorageFailed):
        commit(meta, PutSnapshot(b"c", b"3"))
    assert list(meta.snapshots()) == [(b"a", b"1")]
    meta.close()


def test_a_write_that_fails_is_never_acknowledged(path: Path):
    """A file size limit makes SQLite's write fail as an I/O error."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))

    done = subprocess.run(
        [sys.executable, "-m", "tests.meta.committer", str(path)],
        cwd=ROOT, preexec_fn=limit, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    acked = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert done.returncode != 0
    assert "StorageFailed" in done.stderr
    assert len(acked) > 20
    check_survivors(path, acked)


def test_a_full_disk_refuses_only_what_does_not_fit(tmp_path: Path):
    meta = SqliteMeta.open(tmp_path / "meta.sqlite", create=True, size_max=400_000)

    async def fill() -> int:
        for number in range(1000):
            try:
                ops = [PutSnapshot(bytes([number]), bytes(20_000)), PutSetting("n", str(number))]
                await meta.write(ops)
            except DiskFull:
                return number
        return -1

    fitted = asyncio.run(fill())

    assert fitted > 5
    assert meta.failed is None
    assert meta.state.settings == {"n": str(fitted - 1)}
    before = meta.state.version
    assert commit(meta, *(DeleteSnapshot(bytes([n])) for n in range(5))).version == before + 1
    assert commit(meta, PutSnapshot(b"x", bytes(20_000))).version == before + 2
    assert len(list(meta.snapshots())) == fitted - 5 + 1
    meta.close()


def test_an_older_process_is_fenced_by_a_newer_one(path: Path):
    failures: list[Exception] = []
    older = SqliteMeta.open(path, on_failed=failures.append)
    commit(older, PutSetting("a", "2"))

    newer = SqliteMeta.open(path)

    with pytest.raises(Fenced):
        commit(older, PutSetting("a", "3"))
    with pytest.raises(Fenced):
        commit(older, AllocateIds("segment", 1))
    assert isinstance(failures[0], Fenced)
    assert newer.state.settings == {"a": "2"}
    assert commit(newer, PutSetting("a", "4"))
    older.close()
    newer.close()


def test_too_many_waiting_commits_are_refused(path: Path):
    meta = SqliteMeta.open(path)

    async def flood() -> list[object]:
        with closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            tasks = [
                asyncio.ensure_future(meta.write([PutSetting("n", str(n))]))
                for n in range(WAITING_MAX + 1000)
            ]
            await run_ready_tasks()
            blocker.execute("ROLLBACK")
        return await asyncio.gather(*tasks, return_exceptions=True)

    refused = [each for each in asyncio.run(flood()) if isinstance(each, Exception)]

    assert {str(each) for each in refused} == {"too many changes are waiting"}
    assert {type(each) for each in refused} == {TooManyChanges}
    meta.close()


def test_closing_finishes_what_was_requested(path: Path):
    meta = SqliteMeta.open(path)

    async def leave() -> list[ChangeResult]:
        tasks = [asyncio.ensure_future(meta.write([PutSetting("n", str(n))])) for n in range(100)]
        await run_ready_tasks()
        closer = Thread(target=meta.close)
        closer.start()
        results = await asyncio.gather(*tasks)
        closer.join()
        return results

    assert len(asyncio.run(leave())) == 100
    again = SqliteMeta.open(path)
    assert again.state.settings["n"] == "99"
    again.close()


# ── kills ─────────────────────────────────────────────────────────────────────────────────────


def check_survivors(path: Path, acked: list[int], *, before: int = 0) -> int:
    """All acknowledged commits are there, all up to the last one that is, and none by half."""
    meta = SqliteMeta.open(path)
    last = meta.state.flushed_through
    snapshots = {key: value for key, value in meta.snapshots() if len(key) == 8}

    assert acked == list(range(before + 1, before + 1 + len(acked)))
    assert last >= (acked[-1] if acked else before)
    assert meta.state.settings.get("last", "0") == str(last)
    assert snapshots == {
        number.to_bytes(8, "big"): (str(number) * 50).encode() for number in range(1, last + 1)
    }
    meta.close()
    return last


@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
def test_acknowledged_commits_survive_kills_at_any_moment(path: Path, rounds: int):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    last, total, segment_ids = 0, 0, []
    for _ in range(rounds):
        with subprocess.Popen(
            [sys.executable, "-m", "tests.meta.committer", str(path)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(dice.randrange(60))]
            process.kill()
            lines += process.stdout.readlines()
        pairs = [line.split() for line in lines if line.endswith("\n")]
        acked = [int(number) for number, _ in pairs]
        segment_ids += [int(segment_id) for _, segment_id in pairs]
        total += len(acked)

        last = check_survivors(path, acked, before=last)

    assert total > rounds
    assert len(set(segment_ids)) == len(segment_ids)
