"""Windows in PostgreSQL: every order in which inserts, a take-over and an emptying may meet.

The actors are coroutines with a connection each, against a real server. A schedule says which actor
takes its next step; a step that waits for a lock goes on when the lock is free. Each mistake that
could be made in the protocol is planted, and some schedule must show it.
"""

from __future__ import annotations

import asyncio
import itertools
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.postgres import PostgresServer

pytest.importorskip("asyncpg")

import asyncpg

from trilogue.log.errors import CorruptLog, StorageFailed
from trilogue.meta import shared_journal
from trilogue.meta.errors import Fenced
from trilogue.meta.shared_journal import (
    PIECE_BYTES,
    RAISE_EPOCH,
    SharedJournal,
    Window,
    epochs_of,
    prepare,
    read_journal,
    read_windows,
    table_of,
    take_over,
)

Step = Callable[[], Coroutine[Any, Any, object]]
NODE = 1
WAIT_S = 30
ONE_STATEMENT = "rows read by the statement that raises the epoch"  # its snapshot is older
READ_FIRST = "rows read before the epoch is raised"


# ── one statement after the other ─────────────────────────────────────────────────────────────


@asynccontextmanager
async def connected(url: str, count: int = 1) -> AsyncIterator[list[Any]]:
    connections = [await asyncpg.connect(url) for _ in range(count)]
    try:
        await connections[0].execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await prepare(connections[0])
        yield connections
    finally:
        for each in connections:
            await each.close(timeout=5)


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


def test_windows_come_back_in_order_and_to_the_byte(url: str):
    sent = [b"", b"a", bytes(PIECE_BYTES), b"x" * (3 * PIECE_BYTES + 1)]

    async def run() -> list[Window]:
        async with connected(url) as (connection,):
            journal = await SharedJournal.open(connection, NODE)
            for number, data in enumerate(sent, 1):
                await journal.write(number, data)
            assert await take_over(connection, NODE, journal.epoch)
            return await read_windows(connection, NODE, journal.epoch)

    found = asyncio.run(run())

    assert found == [Window(number, data) for number, data in enumerate(sent, 1)]


def test_a_window_that_was_stored_may_be_written_again(url: str):
    async def run() -> list[Window]:
        async with connected(url) as (connection,):
            journal = await SharedJournal.open(connection, NODE)
            for _ in range(2):
                await journal.write(1, b"a" * PIECE_BYTES * 2)
            return await read_windows(connection, NODE, journal.epoch)

    assert [each.sequence for each in asyncio.run(run())] == [1]


def test_a_node_that_was_taken_over_writes_nothing(url: str):
    async def run() -> None:
        async with connected(url) as (connection,):
            journal = await SharedJournal.open(connection, NODE)
            await journal.write(1, b"a")
            assert await take_over(connection, NODE, journal.epoch)
            assert not await take_over(connection, NODE, journal.epoch), "one wins"
            for write in (
                lambda: journal.write(2, b"b"),
                lambda: journal.set_flushed_through(1),
                journal.empty_other_half,
            ):
                with pytest.raises(Fenced):
                    await write()
            assert await read_windows(connection, NODE, journal.epoch) == [Window(1, b"a")]

    asyncio.run(run())


def test_windows_behind_a_gap_were_not_acknowledged(url: str):
    async def run() -> list[Window]:
        async with connected(url) as (connection,):
            journal = await SharedJournal.open(connection, NODE)
            for number in (1, 2, 4):
                await journal.write(number, b"%d" % number)
            return await read_windows(connection, NODE, journal.epoch)

    assert [each.sequence for each in asyncio.run(run())] == [1, 2]


def test_a_half_is_emptied_when_all_of_it_is_flushed(url: str):
    async def run() -> None:
        async with connected(url) as (connection,):
            journal = await SharedJournal.open(connection, NODE)
            await journal.write(1, b"a")
            await journal.write(2, b"b")
            journal.swap()
            await journal.write(3, b"c")
            await journal.set_flushed_through(1)
            assert not await journal.empty_other_half()
            await journal.set_flushed_through(2)
            assert await journal.empty_other_half()
            assert await read_windows(connection, NODE, journal.epoch) == [Window(3, b"c")]

    asyncio.run(run())


def test_a_changed_row_is_damage(url: str):
    async def run() -> None:
        async with connected(url) as (connection,):
            journal = await SharedJournal.open(connection, NODE)
            await journal.write(1, b"abc")
            table = table_of(NODE, journal.epoch, 0)
            await connection.execute(f"UPDATE {table} SET data = 'abd'")
            with pytest.raises(CorruptLog):
                await read_windows(connection, NODE, journal.epoch)

    asyncio.run(run())


def test_one_process_begins_the_epoch_after_the_one_that_it_saw(url: str):
    """Its recovery has the windows of all epochs before, until they are flushed."""

    async def run() -> None:
        async with connected(url, 2) as (connection, other):
            first = await SharedJournal.open(connection, NODE, after_epoch=0)
            await first.write(1, b"a")
            second = await SharedJournal.open(other, NODE, after_epoch=1)
            with pytest.raises(Fenced):
                await SharedJournal.open(connection, NODE, after_epoch=1)
            with pytest.raises(Fenced):
                await first.write(2, b"late")
            assert await read_journal(other, NODE, 2, 0) == [Window(1, b"a")]

            await second.write(2, b"b")
            third = await SharedJournal.open(other, NODE, after_epoch=2)
            both = [Window(1, b"a"), Window(2, b"b")]
            assert await read_journal(other, NODE, 3, 0) == both
            assert await read_journal(other, NODE, 3, 1) == both[1:]
            for through, left in ((0, [1, 2]), (1, [2]), (2, [])):
                await third.set_flushed_through(through)
                await third.drop_earlier()
                assert await epochs_of(other, NODE, 3) == left

    asyncio.run(run())


def test_a_server_without_the_last_window_is_refused(url: str):
    async def run() -> None:
        async with connected(url) as (connection,):
            journal = await SharedJournal.open(connection, NODE)
            await journal.write(1, b"a")
            await journal.check_last(1)
            with pytest.raises(StorageFailed, match="has lost window 2"):
                await journal.check_last(2)

    asyncio.run(run())


# ── every order ───────────────────────────────────────────────────────────────────────────────


class Actor:
    """Steps on one connection; a transaction may be open between two of them."""

    def __init__(self, connection: Any, steps: Sequence[Step]) -> None:
        self.pid: int = connection.get_server_pid()
        self.steps = list(steps)
        self.running: asyncio.Task[object] | None = None

    async def finish(self) -> None:
        if self.running is not None:
            await self.running
            self.running = None


async def is_waiting(watcher: Any, actor: Actor) -> bool:
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1"
    return bool(await watcher.fetchval(query, actor.pid))


async def settle(watcher: Any, actors: Sequence[Actor]) -> None:
    """Return when each running step has ended or waits for a lock."""
    for actor in actors:
        while actor.running is not None:
            done, _ = await asyncio.wait([actor.running], timeout=0.002)
            if done:
                await actor.finish()
            elif await is_waiting(watcher, actor):
                break


async def play(watcher: Any, actors: dict[str, Actor], schedule: Sequence[str]) -> None:
    """Let the actors take their steps in this order; one that waits takes its next ones later."""
    left = list(schedule)
    while left:
        at = next((n for n, name in enumerate(left) if actors[name].running is None), None)
        if at is None:  # all wait: for each other, or for a lock that has just become free
            running = [each.running for each in actors.values() if each.running is not None]
            done, _ = await asyncio.wait(running, timeout=WAIT_S, return_when=FIRST_COMPLETED)
            assert done, "a deadlock"
            await settle(watcher, list(actors.values()))
            continue
        actor = actors[left.pop(at)]
        if actor.steps:
            actor.running = asyncio.create_task(actor.steps.pop(0)())
        await settle(watcher, list(actors.values()))


class World:
    """A node with one acknowledged window that is not flushed, and the three actors."""

    def __init__(self, mistake: str, node: Any, cleaner: Any, taker: Any) -> None:
        self.mistake = mistake
        self.node, self.cleaner, self.taker = node, cleaner, taker
        self.acked = {1}
        self.flushed: set[int] = set()
        self.recovered: list[int] = []
        self.epoch = 0
        self.is_fenced = False
        self.open: dict[Any, Any] = {}  # transactions

    async def begin(self) -> None:
        journal = await SharedJournal.open(self.node, NODE)
        self.epoch = journal.epoch
        await journal.write(1, b"1")

    async def begin_on(self, connection: Any) -> None:
        self.open[connection] = connection.transaction(isolation="read_committed")
        await self.open[connection].start()

    async def commit_on(self, connection: Any) -> None:
        if connection in self.open:
            await self.open.pop(connection).commit()

    # the node: a statement and its commit are two steps

    def insert(self, sequence: int) -> list[Step]:
        stored = False

        async def statement() -> None:
            nonlocal stored
            if self.is_fenced:
                return
            await self.begin_on(self.node)
            journal = SharedJournal(self.node, NODE, self.epoch)
            journal.swap()
            try:
                await journal.write(sequence, b"%02d" % sequence)
                stored = True
            except Fenced:
                stored, self.is_fenced = self.mistake == "zero rows acknowledged", True

        async def commit() -> None:
            await self.commit_on(self.node)
            if stored:
                self.acked.add(sequence)

        return [statement, commit]

    # its flush: window 1 is in a segment, so the row goes

    def clean(self) -> list[Step]:
        async def record() -> None:
            await self.begin_on(self.cleaner)
            journal = SharedJournal(self.cleaner, NODE, self.epoch)
            journal.swap()  # the half with window 1 is not written any more
            try:
                await journal.set_flushed_through(1)
                self.flushed = {1}
            except Fenced:
                if self.mistake != "unfenced truncate":
                    return
                await self.cleaner.execute(f"TRUNCATE {table_of(NODE, self.epoch, 0)}")
            else:
                assert await journal.empty_other_half()

        async def commit() -> None:
            await self.commit_on(self.cleaner)

        return [record, commit]

    # the other node

    def take(self) -> list[Step]:
        async def update() -> None:
            await self.begin_on(self.taker)
            if self.mistake == ONE_STATEMENT:
                await self.read_in_update()
            else:
                assert await take_over(self.taker, NODE, self.epoch)

        async def commit() -> None:
            await self.commit_on(self.taker)

        async def nothing() -> None:
            pass

        if self.mistake == READ_FIRST:
            return [self.read, update, commit]
        return [update, commit, nothing if self.mistake == ONE_STATEMENT else self.read]

    async def read_in_update(self) -> None:
        first, second = (table_of(NODE, self.epoch, half) for half in (0, 1))
        query = (
            f"WITH moved AS ({RAISE_EPOCH} RETURNING flushed_through) "
            f"SELECT sequence FROM {first} UNION SELECT sequence FROM {second}"
        )
        self.recovered = [row[0] for row in await self.taker.fetch(query, NODE, self.epoch)]

    async def read(self) -> None:
        self.recovered = [
            each.sequence for each in await read_windows(self.taker, NODE, self.epoch)
        ]

    @property
    def lost(self) -> set[int]:
        """Windows that were acknowledged, and are neither in segments nor with the next owner."""
        return self.acked - self.flushed - set(self.recovered)


SCENARIOS = {
    "two inserts": {"node": 4, "taker": 3},
    "an insert and a flush": {"node": 2, "cleaner": 2, "taker": 3},
}


def orders(counts: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Every order of the steps of the actors."""
    if not counts:
        yield ()
        return
    for name in counts:
        rest = {key: value - (key == name) for key, value in counts.items()}
        for order in orders({key: value for key, value in rest.items() if value}):
            yield (name, *order)


def play_all(url: str, scenario: str, mistake: str = "") -> tuple[int, list[object]]:
    """Return how many schedules were played, and the first one that lost a window, if any."""

    async def run() -> tuple[int, list[object]]:
        played = 0
        async with connected(url, 4) as (watcher, node, cleaner, taker):
            await watcher.execute("SET lock_timeout = 10000")
            for schedule in orders(SCENARIOS[scenario]):
                await watcher.execute("TRUNCATE shared_journals")
                world = World(mistake, node, cleaner, taker)
                await world.begin()
                inserts = [world.insert(2), world.insert(3)][: SCENARIOS[scenario]["node"] // 2]
                actors = {
                    "node": Actor(node, list(itertools.chain.from_iterable(inserts))),
                    "cleaner": Actor(cleaner, world.clean()),
                    "taker": Actor(taker, world.take()),
                }
                try:
                    await play(watcher, actors, schedule)
                    await settle(watcher, list(actors.values()))
                finally:
                    await watcher.execute(
                        f"DROP TABLE {table_of(NODE, world.epoch, 0)}, "
                        f"{table_of(NODE, world.epoch, 1)}"
                    )
                played += 1
                if world.lost:
                    return played, [schedule, world.acked, world.flushed, world.recovered]
        return played, []

    return asyncio.run(run())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_order_loses_an_acknowledged_window(url: str, scenario: str):
    played, lost = play_all(url, scenario)

    assert lost == []
    assert played == {"two inserts": 35, "an insert and a flush": 210}[scenario]


def plant(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    for name in ("INSERT", "INSERT_PIECE"):
        insert = getattr(shared_journal, name)
        if mistake == "no lock":
            insert = insert.replace("FOR SHARE OF shared_journals", "")
        elif mistake == "a key share lock":
            insert = insert.replace("FOR SHARE", "FOR KEY SHARE")
        monkeypatch.setattr(shared_journal, name, insert)


@pytest.mark.parametrize("mistake", ["no lock", "a key share lock"])
def test_a_planted_mistake_loses_a_window_in_pieces(
    url: str, monkeypatch: pytest.MonkeyPatch, mistake: str
):
    monkeypatch.setattr(shared_journal, "PIECE_BYTES", 1)
    plant(monkeypatch, mistake)

    _, lost = play_all(url, "two inserts", mistake)

    assert lost, "the schedules do not show the mistake"


@pytest.mark.parametrize(
    ("mistake", "scenario"),
    [
        ("no lock", "two inserts"),
        ("a key share lock", "two inserts"),
        (ONE_STATEMENT, "two inserts"),
        (READ_FIRST, "two inserts"),
        ("zero rows acknowledged", "two inserts"),
        ("unfenced truncate", "an insert and a flush"),
    ],
)
def test_a_planted_mistake_loses_a_window(
    url: str, monkeypatch: pytest.MonkeyPatch, mistake: str, scenario: str
):
    plant(monkeypatch, mistake)

    _, lost = play_all(url, scenario, mistake)

    assert lost, "the schedules do not show the mistake"
