"""The certificate of the TLS listeners, which is reloaded when its files change.

TLS 1.2 and later, with forward secrecy and authenticated encryption only. A change of a file is
seen within a second, at the next handshake; open connections stay. A file that cannot be used
leaves the old certificate in place and an error in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec

from trilogue.gateway.frame_dispatcher import IterationBudget
from trilogue.gateway.handshakes import Handshakes
from trilogue.gateway.tls_transport import TlsConnection, TlsMemory

log = logging.getLogger(__name__)

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
RELOAD_S = 1.0
HANDSHAKE_S = 10.0  # from the connection on
REQUIREMENTS = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class TlsError(Exception):
    """Files that make no certificate; the message has the reason."""


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files: the certificate with its chain, its key, the authorities of clients."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    client_certificates: str = "none"


class TlsContexts:
    """The context for new handshakes; TlsError at the start."""

    def __init__(
        self,
        files: TlsFiles,
        monotonic: Callable[[], float],
        iterations: IterationBudget | None = None,
    ) -> None:
        self._files = files
        self._monotonic = monotonic
        self._mark = _mark(files)
        self._context = make_context(files)
        self._checked_s = monotonic()
        self.handshakes = Handshakes()
        self._memory = TlsMemory(iterations)

    def current(self) -> ssl.SSLContext:
        """Return the context of the files as they are now."""
        now_s = self._monotonic()
        if now_s - self._checked_s >= RELOAD_S:
            self._checked_s = now_s
            self.reload()
        return self._context

    async def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        accepted: socket.socket,
        address: str,
    ) -> None:
        """Shake hands on an accepted socket when it is its turn; OSError where that fails.

        The protocol is made after the handshake.
        """

        def end() -> None:
            with contextlib.suppress(OSError):  # the peer was faster
                accepted.shutdown(socket.SHUT_RDWR)

        await self.handshakes.wait_hello(accepted, address)
        async with self.handshakes.turn(address, end):
            connection = TlsConnection(self.current(), make_protocol, self._memory)
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    await loop.connect_accepted_socket(lambda: connection, accepted)
                    await connection.handshake
            except BaseException:
                connection.abort()
                del connection  # or a cycle of it, its error and this frame keeps its 60 KiB
                raise

    def reload(self) -> None:
        """Read the files, if they changed; one that cannot be used is logged, and not used."""
        try:
            mark = _mark(self._files)
            if mark == self._mark:
                return
            self._mark = mark
            self._context = make_context(self._files)
        except TlsError as problem:
            log.error("tls.not_read", extra={"problem": str(problem)})  # noqa: TRY400
        else:
            log.info("tls.read", extra={"certificate": str(self._files.certificate)})


def log_failed_handshake(listener: str, address: str, problem: OSError) -> None:
    """Log one line."""
    log.warning(
        "listener.handshake_failed",
        extra={
            "listener": listener,
            "address": address,
            "problem": str(problem) or "it took too long",
        },
    )


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server's context; TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{files.certificate}, {files.key}: {error.strerror or error}") from error
    context.verify_mode = REQUIREMENTS[files.client_certificates]
    return context


def _mark(files: TlsFiles) -> tuple[object, ...]:
    """Return what identifies the version of the files."""
    found: list[object] = []
    for path in (files.certificate, files.key, files.client_ca):
        if path is not None:
            try:
                status = path.stat()
            except OSError as error:
                raise TlsError(f"{path}: {error.strerror}") from error
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
