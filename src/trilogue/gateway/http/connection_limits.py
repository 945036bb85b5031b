"""The limits of HTTP connections."""

from __future__ import annotations

import msgspec

BACKLOG = 256  # connections that the kernel holds until they are accepted


class HttpLimits(msgspec.Struct, frozen=True):
    """The limits of connections."""

    connections: int = 1_000
    connections_per_address: int = 500
    head_s: float = 30.0  # from the first chance to send a request to its whole head
    piece_s: float = 60.0  # that a client may take to read a piece of a reply
    keep_alive_s: int = 5
    websockets: int = 5_000
    websockets_per_address: int = 2_500
    websocket_message_bytes: int = 8 << 20  # a message of 5 MiB in base64, and its properties
