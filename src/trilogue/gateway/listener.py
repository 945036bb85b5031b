"""Listening sockets of one gateway: accept within limits, sweep for slow peers, drain, close.

Connections that come faster than a quota of their address allows (KIP-612) are closed too, but only
when they would have been in time: a client that is cut at once only tries again sooner.

The limits hold before anything is built for a connection: too many (in all, or from one address)
are closed at once. A SocketAcceptor accepts, and pauses where descriptors are short.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol, Self

from msgspec.structs import replace

from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.socket_acceptor import SocketAcceptor, descriptor_end
from trilogue.gateway.stream import Limits, Stream, StreamSession
from trilogue.gateway.tls import HANDSHAKE_S, TlsContexts, log_failed_handshake
from trilogue.wire.frames import Frames

log = logging.getLogger(__name__)

BACKLOG = 4_096  # or what the system allows: a full one costs clients a second
HELD_MAX = 1_000  # connections that came too early and are closed later; further ones at once
HOLD_MAX_S = 5.0
SWEPT_AT_ONCE = 1_000  # connections in one step: 1 ms
SWEEP_TIMES_MAX = 2  # of its interval that a sweep counts, however late it comes
NO_OTHERS: Final[Mapping[str, int]] = MappingProxyType({})
KEEPALIVE = ("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)
"""A peer that vanished is detected after two minutes, also while it waits for an answer."""


class ConnectionFactory(Protocol):
    """The gateway of a listener, which makes its connections."""

    name: str

    def make_connection(self) -> StreamSession:
        """Return the handler of a new connection."""

    def frames(self, limit: int) -> Frames:
        """Return the framer of a new connection, with a limit on the bytes of a frame."""


class Listener:
    """The sockets of one gateway and all connections that they accepted."""

    def __init__(
        self,
        factory: ConnectionFactory,
        limits: Limits,
        *,
        monotonic: Callable[[], float],
        memory: ConnectionMemory | None = None,
        tls: TlsContexts | None = None,
    ) -> None:
        self._tls = tls
        self.refused = 0
        self._half_open: set[asyncio.Task[None]] = set()  # TLS handshakes, and those that wait
        self._connecting: set[asyncio.Task[None]] = set()  # accepted, for an iteration or two
        # How much too early a connection from an address comes now, in seconds.
        self.early_s: Callable[[str], float] = _in_time
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self._factory = factory
        self._limits = limits
        self._monotonic = monotonic
        self._memory = memory or ConnectionMemory()
        self._acceptors: list[SocketAcceptor] = []
        self._streams: dict[Stream, StreamSession] = {}
        self._by_address: Counter[str] = Counter()
        self._stack = AsyncExitStack()
        self._tasks: asyncio.TaskGroup
        self._sweeper: asyncio.Task[None]
        self._loop: asyncio.AbstractEventLoop
        self._is_suspended = False
        self.sweeps = 0  # over all connections, so far
        self._emptied = asyncio.Event()
        self._descriptor_end = descriptor_end(limits.spare_descriptors)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._streams)

    def list_clients(self) -> list[tuple[str, str, str]]:
        """Return address, principal, and name and version of the client of each connection."""
        return [
            (
                f"{stream.peer[0]}:{stream.peer[1]}",
                str(getattr(session, "principal", "")),
                str(getattr(session, "client_version", "")),
            )
            for stream, session in self._streams.items()
        ]

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._memory.iterations.open(self._loop.call_soon)
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._sweeper = self._tasks.create_task(self._sweep())
        return self

    async def __aexit__(self, *_problem: object) -> None:
        self.stop_accepting()
        if self._connecting:  # a stream without a transport cannot be closed
            await asyncio.wait(self._connecting)
        for stream in list(self._streams):
            stream.close()
        await self._wait_empty(1.0)
        for stream in list(self._streams):
            stream.abort("connection.cut_at_close")
        await self._wait_empty(1.0)
        self._sweeper.cancel()
        await self._stack.aclose()

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen (port 0: on any free port) and return host and port; raises OSError."""
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _set_keepalive(listening)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        self._acceptors.append(
            SocketAcceptor(self._factory.name, listening, self._admit, self._limits)
        )
        bound = listening.getsockname()
        log.info(
            "listener.opened",
            extra={"listener": self._factory.name, "host": bound[0], "port": bound[1]},
        )
        return str(bound[0]), int(bound[1])

    @property
    def limits(self) -> Limits:
        """The limits that connections have now."""
        return self._limits

    def limit_connections(
        self, connections: int, per_address: int, of_addresses: Mapping[str, int] = NO_OTHERS
    ) -> None:
        """Set how many connections are accepted, also from single addresses; open ones stay."""
        self._limits = replace(
            self._limits,
            connections=connections,
            connections_per_address=per_address,
            connections_of=of_addresses,
        )

    def stop_accepting(self) -> None:
        """Close the listening sockets and end handshakes; connections stay."""
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        for held in list(self._held):
            self._close_held(held)
        for task in list(self._half_open):
            task.cancel()

    def suspend(self) -> None:
        """Close all connections at once, and new ones as they come, until `resume`."""
        self._is_suspended = True
        for task in list(self._half_open):
            task.cancel()
        for stream in list(self._streams):
            stream.abort("connection.suspended")

    def resume(self) -> None:
        """Serve connections again, after `suspend`."""
        self._is_suspended = False

    async def drain(self, deadline_s: float) -> bool:
        """Accept and read no more, answer what is in flight; False if that takes too long."""
        self.stop_accepting()
        for handler in list(self._streams.values()):
            handler.drain()
        return await self._wait_empty(deadline_s)

    # ---- accepting

    def _admit(self, accepted: socket.socket, address: str) -> None:
        if self._is_suspended:
            self.refused += 1
            accepted.close()
            return
        too_many = self.connections + len(self._half_open) >= self._limits.connections
        if too_many or self._has_too_many(address):
            self.refused += 1
            accepted.close()
            reason = "listener.full" if too_many else "listener.address_full"
            log.warning(reason, extra={"listener": self._factory.name, "address": address})
            return
        early_s = self.early_s(address)
        if early_s > 0:
            self._refuse_early(accepted, address, early_s)
            return
        self._by_address[address] += 1
        if self._tls is None:
            stream = self._make_stream(address)
            task = self._tasks.create_task(self._connect(stream, accepted, address))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        else:
            task = self._tasks.create_task(self._shake_hands(self._tls, accepted, address))
            self._half_open.add(task)
            task.add_done_callback(partial(self._end_handshake, accepted, address))

    async def connect_local(self, peer: tuple[str, int]) -> socket.socket:
        """Return a connection to this listener from inside of the process, for a client at `peer`.

        It counts as one of the address of that client. Raises ConnectionRefusedError.
        """
        address, limits = peer[0], self._limits
        too_many = self.connections + len(self._half_open) >= limits.connections
        if self._is_suspended or too_many:
            raise ConnectionRefusedError("the listener takes no more connections")
        if self._has_too_many(address):
            raise ConnectionRefusedError("the address has too many connections")
        ours, theirs = socket.socketpair()
        if theirs.fileno() >= self._descriptor_end:
            ours.close()
            theirs.close()
            raise ConnectionRefusedError("the last descriptors are for files")
        theirs.setblocking(False)
        ours.setblocking(False)
        self._by_address[address] += 1
        stream = self._make_stream(address)
        stream.peer = peer
        await self._connect(stream, theirs, address)
        return ours

    def _has_too_many(self, address: str) -> bool:
        limits = self._limits
        limit = limits.connections_of.get(address, limits.connections_per_address)
        return self._by_address[address] >= limit

    def _make_stream(self, address: str) -> Stream:
        handler = self._factory.make_connection()
        stream = Stream(
            handler,
            self._limits,
            call_soon=self._memory.iterations.defer,
            on_gone=lambda gone: self._gone(gone, address),
            framer=self._factory.frames,
            memory=self._memory,
        )
        self._streams[stream] = handler
        return stream

    async def _connect(self, stream: Stream, accepted: socket.socket, address: str) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: stream, accepted)
        except OSError as problem:
            log.warning(
                "listener.accept_failed", extra={"address": address, "problem": str(problem)}
            )
            accepted.close()
            self._gone(stream, address)

    async def _shake_hands(self, tls: TlsContexts, accepted: socket.socket, address: str) -> None:
        """Open a connection over TLS. Nothing is built for it before its handshake starts."""
        made: list[Stream] = []

        def make() -> Stream:
            made.append(self._make_stream(address))
            return made[0]

        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await tls.connect(self._loop, make, accepted, address)
        except (OSError, asyncio.CancelledError) as problem:  # SSLError, TimeoutError: OSError too
            accepted.close()
            if made:
                self._gone(made[0], address)
            else:
                self._release_address(address)
            if isinstance(problem, asyncio.CancelledError):
                raise  # the listener closes
            log_failed_handshake(self._factory.name, address, problem)

    def _end_handshake(
        self, accepted: socket.socket, address: str, task: asyncio.Task[None]
    ) -> None:
        self._half_open.discard(task)
        if task.cancelled() and accepted.fileno() != -1:  # before its first step
            accepted.close()
            self._release_address(address)

    def _refuse_early(self, accepted: socket.socket, address: str, early_s: float) -> None:
        self.refused += 1
        log.warning(
            "listener.address_early", extra={"listener": self._factory.name, "address": address}
        )
        if len(self._held) >= HELD_MAX or accepted.fileno() >= self._descriptor_end // 2:
            accepted.close()
            return
        self._held[accepted] = self._loop.call_later(
            min(early_s, HOLD_MAX_S), self._close_held, accepted
        )

    def _close_held(self, held: socket.socket) -> None:
        self._held.pop(held).cancel()
        held.close()

    # ---- connections

    def _gone(self, stream: Stream, address: str) -> None:
        if self._streams.pop(stream, None) is None:
            return
        self._memory.closed.add(stream)
        self._release_address(address)
        if not self._streams:
            self._emptied.set()

    def _release_address(self, address: str) -> None:
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    async def _wait_empty(self, deadline_s: float) -> bool:
        if self._streams:
            self._emptied.clear()
            try:
                async with asyncio.timeout(deadline_s):
                    await self._emptied.wait()
            except TimeoutError:
                return False
        return True

    async def _sweep(self) -> None:
        # A loop that was held up has not read what its peers sent meanwhile: no time of theirs.
        served_s, swept_s = 0.0, self._monotonic()
        while True:
            await asyncio.sleep(self._limits.sweep_s)
            now_s = self._monotonic()
            self.sweeps += 1
            served_s += min(now_s - swept_s, SWEEP_TIMES_MAX * self._limits.sweep_s)
            swept_s = now_s
            for count, stream in enumerate(list(self._streams), 1):
                stream.sweep(served_s)
                if count % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)


def _set_keepalive(listening: socket.socket) -> None:
    """Turn TCP keep-alive on; accepted sockets inherit it."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):  # not every system has them all
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _in_time(_address: str) -> float:
    return 0.0
