"""Connections to PostgreSQL: what each must guarantee, and which errors pass."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, Self, TypeVar

import asyncpg
import msgspec

from trilogue.log.errors import CorruptLog, StorageFailed

Result = TypeVar("Result")

SCHEMA_NAME: Final = "trilogue"
CONNECT_S: Final = 10.0
ANSWER_S: Final = 0.5  # of a connection that was prepared; then a new one is tried
STATEMENT_S: Final = 60.0  # a server that does not answer for so long counts as lost
FLUSHED_COMMITS: Final = frozenset({"on", "remote_apply"})  # of synchronous_commit
FULL: Final = "53100"
RETRIED: Final = ("08", "25", "28", "40", "55", "57", "53300", "53400")
"""SQLSTATE classes and codes of what passes: lost connections, a standby, locks, shutdowns."""
LOST: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # also: the server is a standby
)
SERVER_SETTINGS: Final = {
    "search_path": SCHEMA_NAME,
    # A node that is paused inside a transaction must not hold off the others for ever.
    "idle_in_transaction_session_timeout": "20000",
    "lock_timeout": "30000",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class Connection(Protocol):
    """The part of an asyncpg connection that meta uses."""

    async def execute(self, query: str, *values: object) -> str:
        """Run a statement; return its status, such as `UPDATE 1`."""

    async def executemany(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement for each row."""

    async def fetch(self, query: str, *values: object) -> list[Any]:
        """Return all rows."""

    async def fetchrow(self, query: str, *values: object) -> Any:
        """Return the first row, or None."""

    async def fetchval(self, query: str, *values: object) -> Any:
        """Return the first value of the first row, or None."""

    def transaction(
        self, *, isolation: str, readonly: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """Return a block that is one transaction."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def is_closed(self) -> bool:
        """Whether the connection is lost or closed."""

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 - asyncpg has it
        """End the session in order."""

    def terminate(self) -> None:
        """Close the socket."""

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        """Call back with each announcement on a channel."""

    def add_log_listener(self, callback: Callable[..., None]) -> None:
        """Call back with each notice and warning."""


def may_pass(error: Exception) -> bool:
    """Whether an error is one of the connection or of the moment: another attempt may succeed."""
    if isinstance(error, StorageFailed):
        return False
    if isinstance(error, asyncpg.PostgresError):
        return str(error.sqlstate).startswith(RETRIED)
    return isinstance(error, LOST)


async def connect(url: str, application_name: str = "trilogue") -> Connection:
    """Connect to a server whose commits are durable; StorageFailed otherwise."""
    connection: Connection = await asyncpg.connect(
        url,
        timeout=CONNECT_S,
        command_timeout=STATEMENT_S,
        server_settings=SERVER_SETTINGS | {"application_name": application_name},
        target_session_attrs="read-write",
    )
    try:
        await check_durability(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


def is_full(error: Exception) -> bool:
    """Whether the server has no room on its disk."""
    return getattr(error, "sqlstate", None) == FULL


async def check_durability(connection: Connection) -> None:
    """Refuse a server, or a role, for which an answered COMMIT is not on disk: StorageFailed."""
    fsync = await connection.fetchval("SHOW fsync")
    commit = await connection.fetchval("SHOW synchronous_commit")
    if fsync != "on" or commit not in FLUSHED_COMMITS:
        raise StorageFailed(
            f"PostgreSQL has fsync = {fsync} and synchronous_commit = {commit}: a commit that it "
            "answers may be lost; a cluster needs fsync = on and synchronous_commit = on"
        )


class BlockingConnection:
    """A connection for callers that wait without an event loop, or beside one that runs."""

    def __init__(self, url: str) -> None:
        self.has_been_lent = False  # since then it is in use, so an error is one of now
        self._url = url
        self._runner = asyncio.Runner()
        self._executor = ThreadPoolExecutor(1, "postgres")
        self._connection: Connection

    def __enter__(self) -> Self:
        try:
            self._connection = self._call(connect(self._url))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        async def close(connection: Connection) -> None:
            await connection.close(timeout=1.0)

        with contextlib.suppress(Exception):
            self._call(close(self._connection))
        self._end()

    def run(self, work: Callable[[Connection], Coroutine[Any, Any, Result]]) -> Result:
        """Return what `work` returns; errors of PostgreSQL are StorageFailed."""
        return self._call(work(self._connection))

    def answers(self) -> bool:
        """Whether the server answers on this connection, in a short time."""

        async def look(connection: Connection) -> None:
            async with asyncio.timeout(ANSWER_S):
                await connection.execute("SELECT 1")

        try:
            self._call(look(self._connection))
        except StorageFailed:
            return False
        return True

    def _end(self) -> None:
        self._executor.submit(self._runner.close).result()
        self._executor.shutdown()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._executor.submit(self._runner.run, work).result()
        except (*LOST, asyncpg.PostgresError) as error:
            raise StorageFailed(f"PostgreSQL: {error or type(error).__name__}") from error
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
            raise CorruptLog(f"PostgreSQL holds rows that cannot be ({error!r})") from error


_prepared: Final[dict[str, BlockingConnection]] = {}


def prepare_connection(url: str, work: Callable[[Connection], Coroutine[Any, Any, object]]) -> None:
    """Connect before there is a hurry, and run `work`; `blocking_connection` lends it out.

    What has been read once is read again in less time: the connection has its statements, and the
    server's process has what it knows of the tables.
    """
    connection = BlockingConnection(url).__enter__()
    try:
        connection.run(work)
    except BaseException:
        connection.__exit__()
        raise
    _prepared[url] = connection


@contextlib.contextmanager
def blocking_connection(url: str) -> Iterator[BlockingConnection]:
    """Lend the connection that this process has prepared, or else a new one. StorageFailed."""
    prepared = _prepared.pop(url, None)
    if prepared is not None and (prepared.has_been_lent or prepared.answers()):
        prepared.has_been_lent = True
        try:
            yield prepared
        except BaseException:
            prepared.__exit__()  # what it is in the middle of is unknown
            raise
        _prepared[url] = prepared
        return
    if prepared is not None:
        prepared.__exit__()
    with BlockingConnection(url) as connection:
        yield connection
