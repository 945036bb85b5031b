"""Moves of a slot in PostgreSQL: every order in which a move and a take-over of the node may meet.

The node inserts a window, has it flushed, and gives the slot away; another process takes the node
over. The steps are statements and commits of their own on a real server, as in
test_shared_journal.py, and some schedule must show each planted mistake.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tests.meta.test_shared_journal import Actor, Step, connected, orders, play, settle
from tests.postgres import PostgresServer

pytest.importorskip("asyncpg")

from trilogue.meta import slot_moves
from trilogue.meta.errors import Fenced
from trilogue.meta.postgres_schema import LOCK_CLUSTER
from trilogue.meta.shared_journal import SharedJournal, read_windows, table_of, take_over

NODE, OTHER, SLOT = 1, 2, 0
UNSEALED: Final = "a slot moved without seal"
UNFENCED: Final = "a move without a fence"
UNFLUSHED: Final = "a slot moved before the flush"
SCHEMA: Final = """
CREATE TABLE identity (key TEXT PRIMARY KEY, value BYTEA NOT NULL);
CREATE TABLE nodes (node_id BIGINT PRIMARY KEY, epoch BIGINT NOT NULL);
CREATE TABLE slots (slot BIGINT PRIMARY KEY, node_id BIGINT NOT NULL);
CREATE TABLE flushed (through BIGINT NOT NULL);
INSERT INTO identity VALUES ('cluster_id', 'x');
INSERT INTO nodes VALUES (1, 1), (2, 1);
INSERT INTO slots VALUES (0, 1);
INSERT INTO flushed VALUES (0);
"""


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


class World:
    """A node with a slot; what each process knows and serves."""

    def __init__(self, mistake: str, node: Any, taker: Any) -> None:
        self.mistake = mistake
        self.node, self.taker = node, taker
        self.acked: set[int] = set()
        self.epoch = 0
        self.is_fenced = self.is_given = False
        self.taker_serves: bool | None = None
        self.recovered: set[int] = set()
        self.open: Any = None

    async def begin(self) -> None:
        self.epoch = (await SharedJournal.open(self.node, NODE)).epoch

    async def begin_on(self, connection: Any) -> Any:
        transaction = connection.transaction(isolation="read_committed")
        await transaction.start()
        return transaction

    # the node

    def insert(self) -> list[Step]:
        async def run() -> None:
            try:
                await SharedJournal(self.node, NODE, self.epoch).write(1, b"1")
                self.acked.add(1)
            except Fenced:
                self.is_fenced = True

        return [run]

    def change(self, query: str, *, is_fence_needed: bool = True) -> list[Step]:
        """A transaction of metadata, as PostgresMeta has it: lock, fence, rows; then its commit."""
        transaction: Any = None
        is_done = False

        async def run() -> None:
            nonlocal transaction, is_done
            if self.is_fenced and is_fence_needed:
                return
            transaction = await self.begin_on(self.node)
            await self.node.fetchval(LOCK_CLUSTER)
            fence = "SELECT epoch FROM nodes WHERE node_id = $1 FOR SHARE"
            if is_fence_needed and await self.node.fetchval(fence, NODE) != 1:
                self.is_fenced = True
                return
            await self.node.execute(query)
            is_done = True

        async def commit() -> None:
            if transaction is not None:
                await transaction.commit()
            if is_done and "slots" in query:
                self.is_given = True

        return [run, commit]

    def steps(self) -> list[Step]:
        flush = self.change("UPDATE flushed SET through = 1")
        give = self.change(
            f"UPDATE slots SET node_id = {OTHER} WHERE slot = {SLOT}",
            is_fence_needed=self.mistake != UNFENCED,
        )
        if self.mistake == UNSEALED:  # a window with entries of the slot comes after the move
            return [*give, *self.insert(), *flush]
        if self.mistake == UNFLUSHED:
            return [*self.insert(), *give, *flush]
        return [*self.insert(), *flush, *give]

    # who takes the node over

    def take(self) -> list[Step]:
        transaction: Any = None

        async def journal() -> None:
            assert await take_over(self.taker, NODE, self.epoch)

        async def meta() -> None:
            nonlocal transaction
            transaction = await self.begin_on(self.taker)
            await self.taker.fetchval(LOCK_CLUSTER)
            await self.taker.execute("UPDATE nodes SET epoch = 2 WHERE node_id = $1", NODE)
            owner = await self.taker.fetchval(slot_moves.OWNERS)
            self.taker_serves = owner == NODE

        async def commit() -> None:
            await transaction.commit()

        async def read() -> None:
            through = await self.taker.fetchval("SELECT through FROM flushed")
            windows = await read_windows(self.taker, NODE, self.epoch)
            self.recovered = {each.sequence for each in windows if each.sequence > through}

        return [journal, meta, commit, read]

    async def verdict(self) -> str:
        """Return what is wrong in the end; empty if nothing is."""
        owner = await self.taker.fetchval(slot_moves.OWNERS)
        through = await self.taker.fetchval("SELECT through FROM flushed")
        if self.taker_serves and owner == OTHER:
            return "two nodes serve the slot"
        if self.is_given != (owner == OTHER):
            return "the slot has no owner"
        known = set(range(1, through + 1)) | (self.recovered if self.taker_serves else set())
        return f"lost: {self.acked - known}" if self.acked - known else ""


def play_all(url: str, mistake: str = "") -> tuple[int, list[object]]:
    """Return how many schedules were played, and the first bad one."""

    async def run() -> tuple[int, list[object]]:
        played = 0
        async with connected(url, 3) as (watcher, node, taker):
            await watcher.execute("SET lock_timeout = 10000")
            await watcher.execute(SCHEMA)
            for schedule in orders({"node": 5, "taker": 4}):
                await watcher.execute(
                    "TRUNCATE shared_journals; UPDATE nodes SET epoch = 1; "
                    "UPDATE slots SET node_id = 1; UPDATE flushed SET through = 0"
                )
                world = World(mistake, node, taker)
                await world.begin()
                actors = {"node": Actor(node, world.steps()), "taker": Actor(taker, world.take())}
                try:
                    await play(watcher, actors, schedule)
                    await settle(watcher, list(actors.values()))
                    wrong = await world.verdict()
                finally:
                    tables = ", ".join(table_of(NODE, world.epoch, half) for half in (0, 1))
                    await watcher.execute(f"DROP TABLE {tables}")
                played += 1
                if wrong:
                    return played, [schedule, wrong]
        return played, []

    return asyncio.run(run())


def test_no_order_of_a_move_and_a_take_over_loses_a_window_or_makes_two_owners(url: str):
    played, wrong = play_all(url)

    assert wrong == []
    assert played == 126


@pytest.mark.parametrize("mistake", [UNSEALED, UNFENCED, UNFLUSHED])
def test_a_planted_mistake_of_a_move_is_found(url: str, mistake: str):
    _, wrong = play_all(url, mistake)

    assert wrong, "the schedules do not show the mistake"
