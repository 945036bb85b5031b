"""Windows of a journal that closes: stored once, also the one whose answer was not read."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.node.cluster.test_window_recovery import CLUSTER, make_frame
from tests.postgres import PostgresServer

pytest.importorskip("asyncpg")

from trilogue.log.files import BLOCK, File, OsFileSystem
from trilogue.log.journal.frame import FileHeader, encode_file_header, file_name
from trilogue.meta.postgres_connection import SCHEMA_NAME, Connection, connect
from trilogue.meta.shared_journal import SharedJournal, prepare, read_windows, take_over
from trilogue.node.cluster.shared_committer import SharedCommitter

HEADER = FileHeader(1, 7, CLUSTER)
LEASE_S = 30.0
ANSWER_S = 0.2  # by then PostgreSQL has answered


@contextmanager
def journal_file(folder: Path) -> Iterator[File]:
    file = OsFileSystem().open(folder / file_name(1), create=True)
    file.pwrite(bytes(encode_file_header(HEADER)).ljust(8 * BLOCK, b"\0"), 0)
    try:
        yield file
    finally:
        file.close()


class JournalAtWork:
    """A committer, its file, and what it reported."""

    def __init__(self, committer: SharedCommitter, file: File, connection: Connection) -> None:
        self.committer, self.file, self.connection = committer, file, connection
        self.results: list[int] = []

    async def commit(self, sequence: int) -> None:
        """Store a window, and wait for the report."""
        count = len(self.results)
        self.submit(sequence)
        while len(self.results) == count:  # noqa: ASYNC110 - the report is a plain callback
            await asyncio.sleep(0.001)

    def submit(self, sequence: int) -> None:
        self.committer.submit(self.file, make_frame(sequence, HEADER), sequence * BLOCK)

    def write_last(self, sequence: int) -> int:
        return self.committer.write_last(self.file, make_frame(sequence, HEADER), sequence * BLOCK)

    async def rows(self) -> list[int]:
        windows = await read_windows(self.connection, 1, self.committer.epoch, 0)
        return [each.sequence for each in windows]


def run_journal(
    url: str, folder: Path, play: Callable[[JournalAtWork], object]
) -> tuple[list[int], list[Exception]]:
    """Return the windows in PostgreSQL at the end, and the failures."""
    failures: list[Exception] = []

    async def run() -> list[int]:
        connection = await connect(url)
        await connection.execute(f"CREATE SCHEMA {SCHEMA_NAME}")
        await prepare(connection)
        epoch = (await SharedJournal.open(connection, 1)).epoch
        committer = SharedCommitter(
            asyncio.get_running_loop(),
            url,
            node_id=1,
            epoch=epoch,
            lease_s=LEASE_S,
            on_failed=failures.append,
        )
        try:
            with journal_file(folder) as file:
                journal = JournalAtWork(committer, file, connection)
                committer.start(journal.results.append)
                await play(journal)  # type: ignore[misc]
                await asyncio.sleep(0)
                return await journal.rows()
        finally:
            committer.close()
            committer.end()
            await connection.close(timeout=1.0)

    return asyncio.run(run()), failures


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.emptied_database()


def test_the_window_under_way_is_stored_by_close_and_reported_once(url: str, tmp_path: Path):
    async def play(journal: JournalAtWork) -> None:
        await journal.commit(1)
        journal.submit(2)  # the loop has not even begun with it

        assert journal.committer.close() == 0
        assert journal.write_last(3) == 0
        await asyncio.sleep(ANSWER_S)
        assert journal.results == [0]

    assert run_journal(url, tmp_path, play) == ([1, 2, 3], [])


def test_a_window_with_an_unread_answer_is_stored_once(url: str, tmp_path: Path):
    async def play(journal: JournalAtWork) -> None:
        await journal.commit(1)
        journal.submit(2)
        await asyncio.sleep(0)  # the row is sent
        time.sleep(ANSWER_S)  # noqa: ASYNC251 - the loop stands still while the answer comes

        assert journal.committer.close() == 0
        assert journal.write_last(3) == 0

    assert run_journal(url, tmp_path, play) == ([1, 2, 3], [])


def test_a_journal_that_was_taken_over_stores_nothing_at_its_end(url: str, tmp_path: Path):
    async def play(journal: JournalAtWork) -> None:
        await journal.commit(1)
        assert await take_over(journal.connection, 1, journal.committer.epoch)
        journal.submit(2)

        assert journal.committer.close() == errno.ESTALE
        assert journal.write_last(3) == errno.ESTALE

    rows, failures = run_journal(url, tmp_path, play)

    assert rows == [1]
    assert {type(each).__name__ for each in failures} == {"Fenced"}


def test_the_half_that_was_emptied_is_written_after_a_swap(url: str, tmp_path: Path):
    """Also by the last windows, which another connection stores."""

    async def play(journal: JournalAtWork) -> None:
        committer = journal.committer
        await journal.commit(1)
        committer.flushed(1)
        while not committer._swap_due:  # noqa: ASYNC110 - it is set by a thread
            await asyncio.sleep(0.01)
        await journal.commit(2)  # the last one of this half
        journal.submit(3)

        assert committer.close() == 0
        assert journal.write_last(4) == 0
        for half, count in ((0, 2), (1, 2)):
            table = f"windows_1_{committer.epoch}_{half}"
            assert await journal.connection.fetchval(f"SELECT count(*) FROM {table}") == count

    assert run_journal(url, tmp_path, play) == ([1, 2, 3, 4], [])
