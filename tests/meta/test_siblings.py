"""Nodes that share one store: each sees what the others changed, in one order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.meta.samples import segment, topic
from tests.postgres import PostgresServer
from trilogue.meta import queued_meta, sqlite
from trilogue.meta.change_log import differences
from trilogue.meta.errors import Fenced, PreconditionFailed
from trilogue.meta.operations import (
    AssignSlots,
    DeleteSegment,
    DeleteTopic,
    Fence,
    FlushedThroughIs,
    PutPartitionState,
    PutSegment,
    PutSetting,
    PutTopic,
    SetFlushedThrough,
    SetListeners,
    SettingIs,
    SlotRow,
    TopicAbsent,
)
from trilogue.meta.queued_meta import QueuedMeta
from trilogue.meta.sqlite import SqliteMeta
from trilogue.meta.state import Write

Open = Callable[[int], QueuedMeta]


@pytest.fixture(params=["sqlite", "postgres"])
def open_node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    opened: list[QueuedMeta] = []
    url = ""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.emptied_database()

    def open_meta(node_id: int) -> QueuedMeta:
        path = tmp_path / "meta.sqlite"
        if url:
            from trilogue.meta.postgres import PostgresMeta

            meta: QueuedMeta = PostgresMeta.open(url, node_id=node_id)
        else:
            meta = SqliteMeta.open(path, create=not path.exists(), node_id=node_id, shared=True)
        opened.append(meta)
        return meta

    yield open_meta
    for each in opened:
        each.close()


@contextmanager
def following(meta: QueuedMeta) -> Iterator[list[Write]]:
    """What a node is called back with."""
    seen: list[Write] = []
    meta.follow(seen.extend)
    yield seen


async def until_equal(first: QueuedMeta, second: QueuedMeta) -> None:
    """Wait until a node without notification has seen the changes of the first."""
    moved = asyncio.Event()
    before = second.on_followed

    def on_followed(writes: Sequence[Write]) -> None:
        before(writes)
        moved.set()

    second.follow(on_followed)
    async with asyncio.timeout(30):
        while second.state.version < first.state.version:
            await moved.wait()
            moved.clear()
    assert not differences(first.state, second.state)


def test_a_node_follows_every_kind_of_row(open_node: Open):
    first, second = open_node(1), open_node(2)
    orders = topic("orders", 1, 2)

    async def follow() -> list[Write]:
        with following(second) as seen:
            await first.write([PutTopic(orders), PutSegment(segment(1, 1)), PutSetting("a", "1")])
            await first.write([PutPartitionState(1, 2, 9, open_transactions=((7, 3),))])
            await first.write([SetListeners({"kafka": "127.0.0.1:9092"})])
            await until_equal(first, second)
            await first.write([DeleteTopic(*orders.key), DeleteSegment(1)])
            await until_equal(first, second)
        return seen

    seen = asyncio.run(follow())

    assert ("topics", orders.key, orders) in seen
    assert second.state.nodes[1].listeners == {"kafka": "127.0.0.1:9092"}
    assert second.state.topics == second.state.segments == {}


def test_preconditions_hold_against_what_others_wrote(open_node: Open):
    first, second = open_node(1), open_node(2)
    orders = topic("orders", 1)

    async def race() -> list[object]:
        absent = TopicAbsent(*orders.key)
        return await asyncio.gather(
            *(each.write([PutTopic(orders)], [absent]) for each in (first, second)),
            return_exceptions=True,
        )

    outcomes = asyncio.run(race())

    assert sorted(isinstance(each, PreconditionFailed) for each in outcomes) == [False, True]


def test_increments_of_many_nodes_lose_none(open_node: Open):
    nodes = [open_node(number) for number in (1, 2, 3)]

    async def count(meta: QueuedMeta, times: int) -> None:
        while times:
            await meta.catch_up()
            before = meta.state.settings.get("n")
            try:
                value = PutSetting("n", str(int(before or 0) + 1))
                await meta.write([value], [SettingIs("n", before)])
            except PreconditionFailed:
                continue
            times -= 1

    async def together() -> None:
        for each in nodes:
            each.follow(lambda _writes: None)
        await asyncio.gather(*(count(each, 20) for each in nodes))
        for each in nodes:
            await each.catch_up()

    asyncio.run(together())

    assert [each.state.settings["n"] for each in nodes] == ["60"] * 3


def test_ids_of_nodes_are_disjoint(open_node: Open):
    first, second = open_node(1), open_node(2)

    taken = [meta.allocate("partition") for meta in (first, second) for _ in range(100)]

    assert len(set(taken)) == 200


def test_each_node_counts_its_own_journal(open_node: Open):
    first, second = open_node(1), open_node(2)

    async def flush() -> None:
        await first.write([SetFlushedThrough(70)], [FlushedThroughIs(0)])
        await second.write([SetFlushedThrough(4)], [FlushedThroughIs(0)])
        await first.catch_up()

    asyncio.run(flush())

    assert (first.state.flushed_through, second.state.flushed_through) == (70, 4)
    assert {key: row.flushed_through for key, row in first.state.nodes.items()} == {1: 70, 2: 4}


def test_a_second_process_of_a_node_fences_the_first_and_no_other(open_node: Open):
    first, other, again = open_node(1), open_node(2), open_node(1)

    async def write(meta: QueuedMeta) -> object:
        fence = Fence(meta.state.node_id, meta.state.node_epoch)
        return await meta.write([PutSetting("by", str(fence))], (), fence)

    with pytest.raises(Fenced):
        asyncio.run(write(first))
    asyncio.run(write(again))
    asyncio.run(write(other))


def test_an_idle_node_notices_its_successor(open_node: Open):
    first = open_node(1)
    failed = asyncio.Event()

    async def idle() -> None:
        first._on_failed = lambda _error: failed.set()
        first.follow(lambda _writes: None)
        open_node(1)
        async with asyncio.timeout(30):
            await failed.wait()

    asyncio.run(idle())

    assert isinstance(first.failed, Fenced)


def test_a_node_that_was_far_behind_reads_all_rows(
    open_node: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queued_meta, "CHANGES_KEPT", 3)
    monkeypatch.setattr(sqlite, "POLL_S", 3_600)
    first, second = open_node(1), open_node(2)
    if not isinstance(second, SqliteMeta):  # it reads nothing when it is idle
        monkeypatch.setattr(second, "_idle", second._announced.wait)  # type: ignore[attr-defined]

    async def fall_behind() -> list[Write]:
        with following(second) as seen:
            await second.write([PutSetting("gone", "1")])
            for number in range(20):
                await first.write([PutSetting(f"key {number}", "1")])
            await first.write([PutTopic(topic("orders", 1)), PutSegment(segment(1, 1))])
            await second.catch_up()
        return seen

    seen = asyncio.run(fall_behind())

    assert not differences(first.state, second.state)
    assert ("settings", "key 0", "1") in seen


def test_slots_are_made_once_and_given_away(open_node: Open):
    meta = open_node(1)
    orders = topic("orders", *range(1, 9))

    async def assign() -> None:
        await meta.write([PutTopic(orders)])
        await meta.write([AssignSlots((1, 2, 1, 2))])
        epoch = meta.state.slots[0].epoch
        assert epoch > meta.state.node_epoch
        await meta.write([AssignSlots((1, 2, 3, 3))])
        assert meta.state.slots == {
            0: SlotRow(1, epoch),
            1: SlotRow(2, epoch),
            2: SlotRow(3, epoch + 1),
            3: SlotRow(3, epoch + 1),
        }

    asyncio.run(assign())

    slots = [meta.state.partitions[each].slot for each in orders.partitions]
    assert sorted(slots) == [0, 0, 1, 1, 2, 2, 3, 3], "a topic is spread over all slots"
    again = open_node(3)
    assert again.state.slots[3].epoch == meta.state.slots[3].epoch + 1
    assert again.state.slots[1].epoch == meta.state.slots[1].epoch
