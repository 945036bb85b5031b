"""The committer of a node with `ack=shared`: a window is durable when PostgreSQL has its row.

```
 loop ──submit()──► INSERT ... WHERE its epoch   one row: stored
   ▲        │          no answer: the same bytes again, until PostgreSQL is back
   │        ▼          no row: taken over; nothing is acknowledged any more
   └─── commit thread: the journal file (for the flush), meanwhile, without a sync
```

Windows have a connection on the node's own loop: an acknowledgement waits for one round trip, and
for no other thread's Python. A thread with an event loop and a connection of its own keeps the
lease, records flushed-through and empties tables, also while the node's loop is busy. It stores the
last windows, too, since the node's loop stands still while the journal closes.

A row has the number and the incarnation of the journal file, and the frame as it is in that file: a
recovery writes the files again (window_recovery.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from trilogue.log.errors import StorageFailed
from trilogue.log.files import BLOCK, File
from trilogue.log.journal.commit import thread_committer
from trilogue.log.journal.frame import FileHeader, decode_file_header
from trilogue.meta import leases
from trilogue.meta.errors import Fenced
from trilogue.meta.postgres_connection import Connection, connect, is_full, may_pass
from trilogue.meta.shared_journal import SharedJournal
from trilogue.node.cluster.window_recovery import encode_row

log = logging.getLogger(__name__)

RENEWALS: Final = 6  # in the time of a lease
RECONNECT_S: Final = (0.05, 0.2, 0.5, 1.0)
CLOSE_S: Final = 5.0
START_S: Final = 10.0

OnFailed = Callable[[Exception], None]


class SharedCommitter:
    """Commits windows in PostgreSQL, and keeps the lease of the node from the beginning."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        url: str,
        *,
        node_id: int,
        epoch: int,
        lease_s: float,
        on_failed: OnFailed,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread; the process has begun this epoch of the node."""
        self.node_id, self.epoch = node_id, epoch
        self._renewed_s = monotonic()
        self.lease_ends_s = self._renewed_s + lease_s
        self.keeps_lease = False  # at the end: this process starts as the node again
        self._released_as = leases.RELEASED
        self._loop = loop
        self._url = url
        self._lease_s = lease_s
        self._on_failed = on_failed
        self._monotonic = monotonic
        self._on_done: Callable[[int], None]
        self._file: tuple[File | None, FileHeader | None] = (None, None)
        self._journal: SharedJournal | None = None
        self._lease_connection: Connection | None = None
        self._warnings: list[str] = []
        self._last = 0  # the last window that was acknowledged
        self._flushed = self._recorded = 0
        self._swap_due = False
        self._busy = False
        self._is_closing = False
        self._pending: tuple[int, bytes] = (0, b"")  # the window under way, and its row
        self._result = 0
        self._parts = 0  # of the pending window: its row and the write of its file
        self._files = thread_committer(loop, is_durable=False)
        self._away_since: float | None = None
        self._started = threading.Event()
        self._thread_loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Event
        self._more: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="shared journal", daemon=True)
        self._thread.start()
        if not self._started.wait(START_S):
            raise StorageFailed("the thread of the shared journal does not start")

    # -- the loop's side -----------------------------------------------------------------------

    @property
    def lease_left_s(self) -> float:
        """For how many seconds the lease is still valid; 0 if it is over."""
        return max(0.0, self.lease_ends_s - self._monotonic())

    @property
    def unavailable_s(self) -> float:
        """For how many seconds a window has waited for PostgreSQL; 0 if none waits."""
        since = self._away_since
        return 0.0 if since is None else self._monotonic() - since

    def start(self, on_done: Callable[[int], None]) -> None:
        """Store the callback."""
        self._on_done = on_done
        self._files.start(self._end_part)

    def submit(self, file: File, data: memoryview, offset: int) -> None:
        """Commit a window."""
        if self._busy or self._is_closing:
            raise RuntimeError("one commit at a time")
        self._busy = True
        try:
            self._pending = encode_row(self._header_of(file), data)
        except OSError as error:
            self._parts = 1
            self._loop.call_soon(self._end_part, error.errno or errno.EIO)
            return
        self._parts = 2
        self._files.submit(file, data, offset)
        self._task = self._loop.create_task(self._commit(*self._pending))

    def close(self) -> int | None:
        """Store the window under way, if there is one, and return the result."""
        self._is_closing = True
        self._result = self._files.close() or self._result
        if not self._busy:
            return None
        self._busy = False
        if self._journal is not None:
            self._journal.connection.terminate()  # the row may be stored already, or not
        return self._result or self._store_last(*self._pending)

    def write_last(self, file: File, data: memoryview, offset: int) -> int:
        """Commit a window after `close`, and return 0 or an errno."""
        try:
            row = encode_row(self._header_of(file), data)
        except OSError as error:
            return error.errno or errno.EIO
        return self._files.write_last(file, data, offset) or self._store_last(*row)

    def flushed(self, sequence: int) -> None:
        """Note that all windows up to a sequence are in segments, which others can read."""
        self._flushed = max(self._flushed, sequence)
        with contextlib.suppress(RuntimeError):  # the thread has ended
            self._thread_loop.call_soon_threadsafe(self._more.set)

    def end(self) -> None:
        """Give the lease up, unless this process keeps it, and end the thread.

        Everything else of the node is closed.
        """
        if self._journal is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._journal.connection.terminate)
        if self._thread.is_alive():
            self._thread_loop.call_soon_threadsafe(self._ended.set)
            self._thread_loop.call_soon_threadsafe(self._more.set)
            self._thread.join(CLOSE_S)

    def end_recovery(self) -> None:
        """Give the lease up at the end, for a node without slots: nothing is left to do."""
        self.keeps_lease = False
        self._released_as = leases.SPREAD

    # windows, on the loop

    async def _commit(self, sequence: int, row: bytes) -> None:
        result = 0
        try:
            await self._store(sequence, row)
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing may be acked
            if self._is_closing:
                return  # `close` stores it
            result = self._refuse(error, sequence)
        self._end_part(result)

    def _end_part(self, result: int) -> None:
        """Deliver 0 or an errno when the row is stored and the file, which stays open, written."""
        self._result = self._result or result
        self._parts -= 1
        if self._parts == 0 and self._busy:
            self._busy = False
            self._on_done(self._result)

    def _refuse(self, error: Exception, sequence: int) -> int:
        """Let the node end, and return the errno of a window that is not stored."""
        if not isinstance(error, Fenced):
            log.error("journal.window_failed", extra={"sequence": sequence}, exc_info=error)
        self._report(error)
        return errno.ESTALE if isinstance(error, Fenced) else errno.EIO

    def _header_of(self, file: File) -> FileHeader:
        known, header = self._file
        if known is not file or header is None:
            header = decode_file_header(memoryview(file.map())[:BLOCK])
            if header is None:
                raise OSError(errno.EIO, "the header of the journal file does not read")
            self._file = file, header
        return header

    async def _store(self, sequence: int, row: bytes) -> None:
        """Store a window: the same bytes again and again until the outcome is known."""
        while True:
            try:
                journal = await self._connected()
                await self._store_once(journal, sequence, row)
            except Exception as error:
                if self._is_closing or not (may_pass(error) or is_full(error)):
                    raise
                await self._wait_after(error)
            else:
                break
        self._last = sequence
        if self._away_since is not None:
            away_s = round(self._monotonic() - self._away_since, 3)
            log.info("journal.postgres_back", extra={"away_s": away_s})
            self._away_since = None
        if self._swap_due:
            journal.swap()
            self._swap_due = False  # after it: the thread empties the other half from now on

    async def _store_once(self, journal: SharedJournal, sequence: int, row: bytes) -> None:
        self._warnings.clear()
        await journal.write(sequence, row)
        if self._warnings:  # durable here, but not on the synchronous standby
            raise ConnectionError(f"answered with a warning: {self._warnings}")

    async def _connected(self) -> SharedJournal:
        if self._is_closing:
            raise ConnectionError("the journal is closed")
        journal = self._journal
        if journal is None or journal.connection.is_closed():
            journal = self._journal = await self._connect()
        return journal

    async def _connect(self) -> SharedJournal:
        """Return the journal with a new connection, to a server with all that was acknowledged."""
        connection = await connect(self._url)
        connection.add_log_listener(self._on_message)
        known = self._journal or SharedJournal(connection, self.node_id, self.epoch)
        journal = known.reached_by(connection)
        try:
            if self._last:
                await journal.check_last(self._last)
        except BaseException:
            connection.terminate()
            raise
        return journal

    async def _wait_after(self, error: Exception) -> None:
        if self._journal is not None:
            self._journal.connection.terminate()
        now = self._monotonic()
        if self._away_since is None:
            self._away_since = now
            log.warning("journal.postgres_away", extra={"reason": repr(error)})
        away_s = now - self._away_since
        await asyncio.sleep(next((each for each in RECONNECT_S if away_s < 4 * each), 1.0))

    def _on_message(self, _connection: object, message: object) -> None:
        if getattr(message, "severity_en", None) == "WARNING":
            self._warnings.append(str(message))

    def _store_last(self, sequence: int, row: bytes) -> int:
        """Store a window by the thread, while the loop stands still; return 0 or an errno."""
        future = asyncio.run_coroutine_threadsafe(
            self._store_beside(sequence, row), self._thread_loop
        )
        try:
            future.result(2 * CLOSE_S)
        except TimeoutError:
            return errno.ETIMEDOUT  # may be stored, and is not acknowledged
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing may be acked
            return self._refuse(error, sequence)
        return 0

    # -- the thread's side ---------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._thread_loop = asyncio.get_running_loop()
        self._ended, self._more = asyncio.Event(), asyncio.Event()
        self._started.set()
        await self._keep_lease()
        await self._ended.wait()
        connection = self._lease_connection
        if connection is None:
            return
        with contextlib.suppress(Exception):
            if not self.keeps_lease:
                await leases.release(connection, self.node_id, self.epoch, self._released_as)
        with contextlib.suppress(Exception):
            await connection.close(timeout=1.0)

    def _report(self, error: Exception) -> None:
        """Let the node end with an error."""
        log.error("journal.shared_failed", extra={"reason": str(error)})
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_failed, error)

    async def _store_beside(self, sequence: int, row: bytes) -> None:
        """Store a window by a connection of its own, once, unless it is known to be stored."""
        if sequence <= self._last:
            return
        async with asyncio.timeout(CLOSE_S):
            journal = await self._connect()
            try:
                await self._store_once(journal, sequence, row)
            finally:
                with contextlib.suppress(Exception):
                    await journal.connection.close(timeout=1.0)
        self._last = sequence

    # the lease

    async def _keep_lease(self) -> None:
        """Renew the lease until the end, and remove what is flushed."""
        while not self._ended.is_set():
            self._more.clear()
            began = self._monotonic()
            try:
                async with asyncio.timeout(self._lease_s):
                    connection = await self._renew(began)
                await self._remove_flushed(connection)
            except Exception as error:  # noqa: BLE001 - whatever it is, the node has no lease
                if not (may_pass(error) or is_full(error)):
                    self._report(error)
                    return
                self._shorten_lease()
                if self._lease_connection is not None:
                    self._lease_connection.terminate()
                    self._lease_connection = None
                log.debug("lease.not_renewed", extra={"reason": repr(error)})
                await asyncio.sleep(RECONNECT_S[1])
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_s / RENEWALS):
                    await self._more.wait()

    def _shorten_lease(self) -> None:
        """Let the lease end when others may see that this process is not connected."""
        renewed_s = self._renewed_s
        self.lease_ends_s = min(self.lease_ends_s, renewed_s + self._lease_s * leases.GONE_PART)

    async def _renew(self, began_s: float) -> Connection:
        connection = self._lease_connection
        if connection is None or connection.is_closed():
            connection = self._lease_connection = await connect(self._url)
        if not await leases.renew(connection, self.node_id, self.epoch):
            raise Fenced(f"node {self.node_id} was taken over in epoch {self.epoch}")
        self._renewed_s = began_s
        self.lease_ends_s = began_s + self._lease_s
        return connection

    async def _remove_flushed(self, connection: Connection) -> None:
        """Record what is flushed, and empty and drop the tables that hold nothing else."""
        journal, flushed = self._journal, self._flushed
        if flushed > self._recorded and journal is not None:
            await journal.set_flushed_through(flushed, beside=connection)
            await journal.drop_earlier(beside=connection)
            if not self._swap_due:
                self._swap_due = await journal.empty_other_half(beside=connection)
            self._recorded = flushed
