"""The client's side of SASL, without I/O: PLAIN, SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628).

exchange = make_exchange(options)
token = exchange.first()
while not exchange.is_done:
token = exchange.answer(await send(token))
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from trilogue.client.errors import InvalidOption
from trilogue.client.kafka.errors import AuthenticationFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *HASHES, "OAUTHBEARER")
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 1_000_000
NONCE_BYTES: Final = 24
GIVE_UP: Final = b"\x01"
"""What RFC 7628 has a client send after its token was refused."""


class SaslExchange(Protocol):
    """One login."""

    is_done: bool

    def first(self) -> bytes:
        """Return the first token."""

    def answer(self, token: bytes) -> bytes:
        """Return the next token, b"" where it is done; raises AuthenticationFailed."""


def make_exchange(
    mechanism: str, user: str, password: str, token: Callable[[], str] | None
) -> SaslExchange:
    """Return the exchange of a mechanism; InvalidOption for what it lacks."""
    if mechanism == "OAUTHBEARER":
        if token is None:
            raise InvalidOption("sasl_mechanism=OAUTHBEARER needs oauth_token, a function")
        return BearerExchange(token())
    if not user or not password:
        raise InvalidOption(f"sasl_mechanism={mechanism} needs sasl_username and sasl_password")
    if mechanism == "PLAIN":
        return PlainExchange(user, password)
    return ScramExchange(mechanism, user, password)


class PlainExchange:
    """A user's name and password, in clear: for connections with TLS."""

    def __init__(self, user: str, password: str) -> None:
        self.is_done = False
        self._token = b"\0".join((b"", user.encode(), password.encode()))

    def first(self) -> bytes:
        """Return the name and the password."""
        return self._token

    def answer(self, token: bytes) -> bytes:
        """End: the server accepted."""
        del token
        self.is_done = True
        return b""


class BearerExchange:
    """A token that another server issued."""

    def __init__(self, token: str) -> None:
        self.is_done = False
        self._token = token

    def first(self) -> bytes:
        """Return the token."""
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def answer(self, token: bytes) -> bytes:
        """End where the server accepted; otherwise have it send the reason."""
        if token:
            return GIVE_UP
        self.is_done = True
        return b""


class ScramExchange:
    """A password that is proven and not sent; the server proves that it knows it, too."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "") -> None:
        self.is_done = False
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(NONCE_BYTES)
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Return the name and the nonce."""
        return f"n,,{self._bare}".encode()

    def answer(self, token: bytes) -> bytes:
        """Return the proof, then check the server's."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the server's SCRAM message cannot be read") from None
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        if self._signature:
            return self._check_server(fields.get("v", ""))
        try:
            nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (KeyError, ValueError, binascii.Error):
            raise AuthenticationFailed("the server's SCRAM message cannot be read") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server's SCRAM nonce is not made of ours")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AuthenticationFailed(f"the server wants {iterations} iterations of SCRAM")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, signed, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_server(self, text: str) -> bytes:
        expected = base64.b64encode(self._signature)
        if not hmac.compare_digest(text.encode(), expected):
            raise AuthenticationFailed("the server does not know the password: its proof is wrong")
        self.is_done = True
        return b""
