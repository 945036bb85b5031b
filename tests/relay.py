"""A TCP relay before a server: it passes everything on, but for what a subclass changes."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Listens at a free port; each connection is served by a thread of its own."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def connect(self) -> socket.socket:
        """Connect to the server; OSError."""
        return socket.create_connection(("127.0.0.1", self._target))

    def wait_until_open(self) -> None:
        """Return when connections are made and data are passed on: at once."""

    def serve(self, client: socket.socket) -> None:
        """Pass on what a client sends and gets, until both ends are closed."""
        self.wait_until_open()
        with client:
            try:
                server = self.connect()
            except OSError:
                return
            with server:
                back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
                back.start()
                self._pass(client, server)
                back.join()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.wait_until_open()
                target.sendall(data)
        self.wait_until_open()
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()
