"""WebSockets of Pulsar's API by the library websocket-client."""

from __future__ import annotations

import base64
import json
from typing import Any

import websocket

LIMIT_S = 60


def encode(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


class Socket:
    """One WebSocket; JSON in and out. It is closed with the test that made it.

    With `sslopt` it is one over TLS.
    """

    def __init__(self, address: str, path: str, **how: Any) -> None:
        how.setdefault("suppress_origin", True)
        scheme = "wss" if "sslopt" in how else "ws"
        self.made = websocket.create_connection(
            f"{scheme}://{address}/ws/v2/{path}", timeout=LIMIT_S, **how
        )

    def send(self, **fields: Any) -> None:
        self.made.send(json.dumps(fields))

    def receive(self) -> dict[str, Any]:
        return json.loads(self.made.recv())

    def produce(self, payload: bytes, **fields: Any) -> dict[str, Any]:
        self.send(payload=encode(payload), **fields)
        return self.receive()

    def take(self) -> bytes:
        """Receive a message and acknowledge it."""
        message = self.receive()
        self.send(messageId=message["messageId"])
        return base64.b64decode(message["payload"])

    def close(self) -> None:
        try:
            self.made.close()
        finally:
            self.made.shutdown()


def refusal(address: str, path: str, **how: Any) -> tuple[int, str]:
    """Return the status and the reason of a connection that is refused."""
    try:
        Socket(address, path, **how)
    except websocket.WebSocketBadStatusException as problem:
        return problem.status_code, json.loads(problem.resp_body)["reason"]
    raise AssertionError(f"{path} was accepted")
