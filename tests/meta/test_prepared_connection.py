"""A connection to PostgreSQL that a process makes before it needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer
from trilogue.log.errors import StorageFailed

pytest.importorskip("asyncpg")

from trilogue.meta import postgres_connection
from trilogue.meta.postgres import PostgresMeta
from trilogue.meta.postgres_connection import (
    BlockingConnection,
    Connection,
    blocking_connection,
    prepare_connection,
)
from trilogue.meta.postgres_opening import read_beforehand

END_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trilogue'"
)


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.emptied_database()
    PostgresMeta.open(url).close()
    prepare_connection(url, read_beforehand)
    yield url
    for each in postgres_connection._prepared.values():
        each.__exit__()
    postgres_connection._prepared.clear()


async def backend(connection: Connection) -> int:
    pid: int = await connection.fetchval("SELECT pg_backend_pid()")
    return pid


def lent(url: str) -> int:
    with blocking_connection(url) as connection:
        return connection.run(backend)


def test_one_connection_is_lent_again_and_again(url: str):
    assert lent(url) == lent(url)


def test_an_opening_makes_one_connection_for_its_writer_only(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    """The other one, of the process that opens, was there before."""
    made: list[str] = []
    enter = BlockingConnection.__enter__

    def count(connection: BlockingConnection) -> BlockingConnection:
        made.append("")
        return enter(connection)

    monkeypatch.setattr(BlockingConnection, "__enter__", count)

    meta = PostgresMeta.open(url)
    assert list(meta.snapshots()) == []
    meta.close()

    assert made == []


def test_a_connection_that_has_ended_is_replaced(url: str, postgres_server: PostgresServer):
    postgres_server.run(END_ALL)

    assert lent(url)


def test_a_connection_with_an_error_is_not_lent_again(url: str):
    first = lent(url)

    with pytest.raises(StorageFailed), blocking_connection(url) as connection:
        connection.run(lambda connection: connection.execute("SELECT FROM nowhere"))

    assert lent(url) != first


def test_a_second_borrower_gets_a_connection_of_its_own(url: str):
    with blocking_connection(url) as connection:
        assert lent(url) != connection.run(backend)


def test_a_server_that_is_away_is_an_error_before_there_is_a_hurry():
    with pytest.raises(StorageFailed, match="PostgreSQL"):
        prepare_connection("postgresql://trilogue@127.0.0.1:1/trilogue", read_beforehand)
    assert postgres_connection._prepared == {}
