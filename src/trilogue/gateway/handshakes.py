"""TLS handshakes under way at all listeners of a node: a bounded number, which no peer can hold.

    await handshakes.wait_hello(accepted, address)  # the ClientHello is here
    async with handshakes.turn(address, end):       # waits until the handshake may start
        ...                                         # `end` is called if it has to give way

A peer that has not sent its ClientHello costs a socket: it is looked at in the kernel's buffer, and
nothing is built before it is whole. The handshake itself costs 60 KiB until it ends, and up to a
millisecond of CPU. So a few start in each loop iteration, and `limit` are under way: then one that
has lasted `STALLED_S` gives way, the oldest first. Since few start at once, a handshake lasts that
long only if its peer is slow, not because the server is. Those that wait start newest first, and
addresses take turns: a client that comes during a flood does not wait for the flood of another
address. Where more than `waiting_max` wait, the oldest of the address with too many are dropped,
those without a ClientHello first.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import msgspec

LIMIT = 1_500
WAITING_MAX = 3_000
STARTS_PER_STEP = 4
STALLED_S = 0.25
RECORD_HEAD = 5  # type, version, length
RECORD_MAX = (16 << 10) + 256
HANDSHAKE_RECORD = 22
DRAINED_BYTES = 64 << 10
LOOK_AGAIN_S = 0.05


class Handshakes:
    """The handshakes that are under way, and those that wait for their turn."""

    def __init__(self, limit: int = LIMIT, waiting_max: int = WAITING_MAX) -> None:
        self.limit = limit
        self.waiting_max = waiting_max
        self._silent: dict[str, dict[asyncio.Future[None], None]] = {}  # without a ClientHello
        self._waiting: dict[str, deque[_Turn]] = {}  # by address, in turn
        self._count: Counter[str] = Counter()  # of both, by address
        self.waiting = 0  # both
        self._running: dict[_Turn, float] = {}  # since when, the oldest first
        self._timer: asyncio.Handle | None = None

    @property
    def running(self) -> int:
        """How many are under way."""
        return len(self._running)

    async def wait_hello(self, accepted: socket.socket, address: str) -> None:
        """Wait until the first record of a client is whole.

        Raises ConnectionError where it is no TLS, or the connection has to give way to others.
        """
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        hello = _HelloReader(accepted, arrived)
        silent = self._silent.setdefault(address, {})
        silent[arrived] = None
        self._count_one(address)
        hello.start()
        try:
            await arrived
        finally:
            loop.remove_reader(accepted)
            if arrived in silent:
                self._forget_silent(address, arrived)

    @asynccontextmanager
    async def turn(self, address: str, end: Callable[[], None]) -> AsyncIterator[None]:
        """Wait until a handshake may start; `end` is called once if others need its place.

        Raises ConnectionAbortedError where too many wait.
        """
        turn = _Turn(asyncio.get_running_loop().create_future(), end)
        self._waiting.setdefault(address, deque()).append(turn)
        self._count_one(address)
        if self._timer is None:
            self._schedule()
        try:
            await turn.start  # where that is cancelled, the turn is passed over
            yield
        finally:
            self._running.pop(turn, None)
            if self._waiting:
                self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_soon(self._start_some)

    def _start_some(self) -> None:
        """Start a few of those that wait, and come back for the rest."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for _ in range(STARTS_PER_STEP):
            if not self._waiting:
                return
            if len(self._running) >= self.limit:
                oldest, since_s = next(iter(self._running.items()))
                if now_s - since_s < STALLED_S:
                    self._timer = loop.call_at(since_s + STALLED_S, self._start_some)
                    return
                del self._running[oldest]
                oldest.end()
            self._start_next(now_s)
        self._schedule()

    def _start_next(self, now_s: float) -> None:
        while self._waiting:
            turn = self._take(next(iter(self._waiting)), deque.pop)
            if not turn.start.done():
                self._running[turn] = now_s
                turn.start.set_result(None)
                return

    def _count_one(self, address: str) -> None:
        """Count one more of an address; where there are too many, drop the oldest of most."""
        self._count[address] += 1
        self.waiting += 1
        if self.waiting > self.waiting_max:
            if self._count[address] == 1:
                address = max(self._count, key=self._count.__getitem__)
            self._drop_one(address)

    def _discount_one(self, address: str) -> None:
        self.waiting -= 1
        self._count[address] -= 1
        if not self._count[address]:
            del self._count[address]

    def _drop_one(self, address: str) -> None:
        """Drop the oldest of an address, those without a ClientHello first."""
        silent = self._silent.get(address)
        if silent:
            dropped = next(iter(silent))
            self._forget_silent(address, dropped)
        else:
            dropped = self._take(address, deque.popleft).start
        if not dropped.done():
            dropped.set_exception(ConnectionAbortedError("too many handshakes wait"))

    def _forget_silent(self, address: str, arrived: asyncio.Future[None]) -> None:
        silent = self._silent[address]
        del silent[arrived]
        if not silent:
            del self._silent[address]
        self._discount_one(address)

    def _take(self, address: str, take: Callable[[deque[_Turn]], _Turn]) -> _Turn:
        """Take one of those that wait from an address, which is behind the others then."""
        waiting = self._waiting.pop(address)
        turn = take(waiting)
        self._discount_one(address)
        if waiting:
            self._waiting[address] = waiting
        return turn


class _Turn(msgspec.Struct, frozen=True, eq=False):
    """One handshake: what it waits for, and how it is ended."""

    start: asyncio.Future[None]
    end: Callable[[], None]


class _HelloReader:
    """Looks at the first record of a client in the kernel's buffer, and leaves it there.

    The socket becomes readable when as many bytes are there as are needed next (SO_RCVLOWAT), when
    the client has closed it, and with fewer bytes where the kernel is short of memory for sockets:
    then this looks again in a moment.
    """

    def __init__(self, accepted: socket.socket, arrived: asyncio.Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = accepted
        self._arrived = arrived
        self._needed = 1

    def start(self) -> None:
        """Look when bytes have come."""
        if not self._arrived.done():
            self._loop.add_reader(self._socket, self.read)

    def read(self) -> None:
        """Look at what has come."""
        if self._arrived.done():
            return
        try:
            self._look()
        except BlockingIOError:
            pass
        except OSError as problem:
            with suppress(OSError):
                self._need(1)
            self._arrived.set_exception(problem)

    def _look(self) -> None:
        found = self._socket.recv(max(self._needed, RECORD_HEAD), socket.MSG_PEEK)
        if len(found) < self._needed:
            if not found or self._is_closed():
                raise ConnectionResetError("the client closed the connection")
            self._loop.remove_reader(self._socket)
            self._loop.call_later(LOOK_AGAIN_S, self.start)
            return
        if found[0] != HANDSHAKE_RECORD:
            self._refuse()
        if len(found) < RECORD_HEAD:
            self._need(RECORD_HEAD)
            return
        size = RECORD_HEAD + int.from_bytes(found[3:RECORD_HEAD], "big")
        if size > RECORD_MAX:
            self._refuse()
        if len(found) < size and self._needed < size:
            self._need(size)
            return
        self._need(1)
        self._arrived.set_result(None)

    def _is_closed(self) -> bool:
        """Whether the client sends no more."""
        look = select.poll()
        look.register(self._socket, select.POLLRDHUP)
        return bool(look.poll(0))

    def _refuse(self) -> NoReturn:
        """Read what has come: bytes that are left would make the close a reset."""
        self._socket.recv(DRAINED_BYTES)
        raise ConnectionAbortedError("the client does not speak TLS")

    def _need(self, size: int) -> None:
        self._needed = size
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
