"""SaslHandshake (17) v0-v1, SaslAuthenticate (36) v0-v2: logins.

Handshake: v1 tokens follow inside SaslAuthenticate (after v0 they follow bare). Authenticate: v1
the life of the session (KIP-368) · v2 flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import blob, int16, int64, message, since, string


@message(key=17, versions=(0, 1))
class SaslHandshakeRequest:
    """Choose a mechanism."""

    mechanism: string = since(0)


@message(key=17, versions=(0, 1))
class SaslHandshakeResponse:
    """Whether the mechanism is enabled, and all that are."""

    error_code: int16 = since(0)
    mechanisms: list[string] = since(0)


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest:
    """A token of the mechanism."""

    auth_bytes: blob = since(0)


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    """The server's token, and how long the session lives (0: no limit)."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    auth_bytes: blob = since(0)
    session_lifetime_ms: int64 = since(1)
