"""The supervisor's control socket: a program of the same user moves slots between nodes.

DIR/nodes/control is a Unix socket that only its owner may connect to. A request is one line of
JSON, and so is the response; a connection carries one request.

    {"move": {"3": 2, "7": 2}}     slots and their new owners
    {"drain": 2}                   the slots of a node, spread over the others
    -> {"slots": {"3": 2, "7": 2}, "seconds": 0.6}   or   {"error": "..."}
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from trilogue.node.errors import ControlError

REQUEST_BYTES_MAX: Final = 256 << 10  # every slot there may be, and more
REQUEST_WAIT_S: Final = 1.0  # for a request that its client sends with the connection
BACKLOG: Final = 8


class ControlRequest:
    """A request that waits for its response."""

    def __init__(self, connection: socket.socket, content: dict[str, Any]) -> None:
        self.content = content
        self._connection = connection

    def respond(self, **content: object) -> None:
        """Send the response and close the connection; its client may be gone."""
        with contextlib.suppress(OSError), self._connection:
            self._connection.sendall(json.dumps(content).encode() + b"\n")

    def forget(self) -> None:
        """Close the descriptor in a forked node; the connection stays."""
        self._connection.close()


class ControlSocket:
    """The listening end."""

    def __init__(self, nodes: Path) -> None:
        """Listen in this folder; OSError."""
        nodes.mkdir(mode=0o700, exist_ok=True)
        self._path = nodes / "control"
        self._path.unlink(missing_ok=True)  # of a supervisor that was killed
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with _short(nodes) as folder:
            before = os.umask(0o177)
            try:
                self._listening.bind(f"{folder}/control")
            finally:
                os.umask(before)
        self._listening.listen(BACKLOG)
        self._listening.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable when a program connects."""
        return self._listening.fileno()

    def accept(self) -> ControlRequest | None:
        """Return the next request, or None; one that is malformed is answered here."""
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return None
        connection.settimeout(REQUEST_WAIT_S)
        try:
            content = json.loads(_read_line(connection))
        except (OSError, ValueError):
            content = None
        if isinstance(content, dict):
            return ControlRequest(connection, content)
        ControlRequest(connection, {}).respond(error="not a request")
        return None

    def forget(self) -> None:
        """Close the descriptor in a forked node; the socket stays."""
        self._listening.close()

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        self._listening.close()
        self._path.unlink(missing_ok=True)


def send_request(data: Path, content: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Send a request to the supervisor of a data directory; return its response. ControlError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with _short(data / "nodes") as folder:
                connection.connect(f"{folder}/control")
            connection.sendall(json.dumps(content).encode() + b"\n")
            response: dict[str, Any] = json.loads(_read_line(connection))
        except TimeoutError as error:
            raise ControlError(f"no response within {timeout_s:g} s") from error
        except (OSError, ValueError) as error:
            raise ControlError(
                f"no supervisor of several nodes answers for {data}: "
                f"{getattr(error, 'strerror', None) or 'it ended'}"
            ) from error
    if "error" in response:
        raise ControlError(str(response["error"]))
    return response


def _read_line(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n") and len(received) < REQUEST_BYTES_MAX:
        part = connection.recv(64 << 10)
        if not part:
            break
        received += part
    return received


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a short name of a folder: the path of a socket has 107 bytes at most."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
