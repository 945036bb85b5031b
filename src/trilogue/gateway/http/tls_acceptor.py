"""Accepts the connections of an HTTPS socket: a handshake each, within the limits of all listeners.

`loop.create_server` would keep the certificate of the start, and build every connection before its
client has sent a byte (gateway/handshakes.py).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from trilogue.gateway.listener import (
    ACCEPTS_PER_STEP,
    EXHAUSTED,
    AcceptPauses,
    descriptor_end,
)
from trilogue.gateway.stream import Limits
from trilogue.gateway.tls import HANDSHAKE_S, TlsContexts, log_failed_handshake

NAME = "https"


class TlsAcceptor:
    """One listening socket; `make_protocol` builds the protocol of each connection."""

    def __init__(
        self,
        listening: socket.socket,
        tls: TlsContexts,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        limits: Limits | None = None,
    ) -> None:
        self._listening = listening
        self._tls = tls
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._limits = limits or Limits()
        self._descriptor_end = descriptor_end(self._limits.spare_descriptors)
        self._pauses = AcceptPauses(NAME, self._limits, self._loop.time)
        self._sweep: asyncio.TimerHandle | None = None
        self._start()

    def close(self) -> None:
        """Close the socket and end the handshakes; connections stay."""
        for timer in (self._retry, self._sweep):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for task in self._handshakes:
            task.cancel()

    def _start(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_STEP):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno not in EXHAUSTED:
                    raise
                self._pause(str(problem))
                return
            if accepted.fileno() >= self._descriptor_end:
                accepted.close()
                self._pause("the last descriptors are for files")
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._shake_hands(accepted, str(address[0])))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _pause(self, problem: str) -> None:
        self._pauses.begin(problem)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.sweep_s, self._end_pauses)
        self._loop.remove_reader(self._listening)
        self._retry = self._loop.call_later(self._limits.accept_retry_s, self._start)

    def _end_pauses(self) -> None:
        """Look again each second while there are pauses."""
        self._pauses.end()
        self._sweep = None
        if self._pauses.is_open:
            self._sweep = self._loop.call_later(self._limits.sweep_s, self._end_pauses)

    async def _shake_hands(self, accepted: socket.socket, address: str) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await self._tls.connect(self._loop, self._make_protocol, accepted, address)
        except (OSError, asyncio.CancelledError) as problem:
            accepted.close()
            if isinstance(problem, asyncio.CancelledError):
                raise  # the listener closes
            log_failed_handshake(NAME, address, problem)
