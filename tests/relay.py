"""A TCP relay before a server: what it does with a connection is the subclass's."""

from __future__ import annotations

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

    def serve(self, client: socket.socket) -> None:
        """Pass on what a client sends and gets, until both ends are closed."""
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()
