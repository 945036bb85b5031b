"""Signatures of TubeMQ clients: how one is made and parsed, and that each is accepted once.

    URL-encode(Base64(HMAC-SHA1(key = password, text = user + time + nonce)))

The time is in milliseconds and within `SIGNATURE_WINDOW_MS` of the server's; all numbers are
decimal (docs/reference/wire/tubemq.md). Signatures that were accepted are remembered until their
time is over: here in memory, in a node also in a file (node/used_signatures.py).
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections import deque
from urllib.parse import quote

from trilogue.broker.access.users import NAME_BYTES_MAX
from trilogue.broker.errors import AuthenticationFailed
from trilogue.wire.tubemq.master_pb2 import AuthenticateInfo

SIGNATURE_WINDOW_MS = 20_000
SIGNATURES_MAX = 100_000  # remembered, so that each is accepted once
SIGNATURE_SIZE_MAX = 128
SIGNATURE_PARTS = 4  # of the signature text that consumers send to brokers
REPLAYED_SIGNATURE = "the signature has been used before"
TOO_MANY_SIGNATURES = "too many signatures at once: try again in a minute"


class SignatureCache:
    """The signatures that were accepted lately."""

    def __init__(self) -> None:
        self._keys: set[tuple[str, int, int]] = set()
        self._order: deque[tuple[int, tuple[str, int, int]]] = deque()

    def add(self, key: tuple[str, int, int], now_ms: int) -> None:
        """Remember a signature; raises AuthenticationFailed if it was accepted before."""
        order = self._order
        while order and order[0][0] <= now_ms:
            self._keys.discard(order.popleft()[1])
        if key in self._keys:
            raise AuthenticationFailed(REPLAYED_SIGNATURE)
        if len(self._keys) >= SIGNATURES_MAX:
            raise AuthenticationFailed(TOO_MANY_SIGNATURES)
        self._keys.add(key)
        # Its time is at most one window ahead of the server's: after two windows it is too late.
        order.append((now_ms + 2 * SIGNATURE_WINDOW_MS + 1, key))


def signature(user: str, secret: bytes, timestamp_ms: int, nonce: int) -> str:
    """Return the signature of a client that knows the password."""
    text = f"{user}{timestamp_ms}{nonce}".encode(errors="replace")
    return quote(b64encode(hmac.digest(secret, text, "sha1")), safe="")


def parse_signature_text(text: str) -> AuthenticateInfo | None:
    """Parse `user timestamp nonce signature`, as consumers send it to brokers; None for others."""
    parts = text.split(" ")
    if len(parts) != SIGNATURE_PARTS or len(text) > 2 * NAME_BYTES_MAX + SIGNATURE_SIZE_MAX:
        return None
    user, timestamp, nonce, signature_text = parts
    try:
        return AuthenticateInfo(
            userName=user,
            timestamp=int(timestamp),
            nonce=int(nonce),
            othParams="",
            signature=signature_text,
        )
    except ValueError:
        return None
