"""Credentials: signatures, and the tokens that servers gave for them.

The signature is URL-encode(Base64(HMAC-SHA1(password, user + timestamp + nonce))), numbers in
decimal. A master needs it at the first registration and after a response with `requireAuth`;
otherwise it gets the token that it issued. Brokers always get the visit token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import Callable
from typing import Final
from urllib.parse import quote_plus

from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo
from trilogue.wire.tubemq.master_pb2 import (
    AuthenticateInfo,
    MasterAuthorizedInfo,
    MasterCertificateInfo,
)

NO_TOKEN: Final = -2
_NONCES: Final = 1 << 31


def signature(user: str, password: str, timestamp_ms: int, nonce: int) -> str:
    """Sign a user's name and the moment."""
    text = f"{user}{timestamp_ms}{nonce}".encode()
    digest = hmac.new(password.encode(), text, hashlib.sha1).digest()
    return quote_plus(base64.b64encode(digest))


class Credentials:
    """The signature and the tokens of one producer or consumer."""

    def __init__(
        self,
        user: str | None,
        password: str | None,
        clock: Callable[[], float],
        dice: random.Random,
    ) -> None:
        self._user = user
        self._password = password or ""
        self._clock = clock
        self._dice = dice
        self.visit_token = NO_TOKEN
        self.auth_token: str | None = None
        self.required = True
        """Whether the next request must be signed."""

    def store_tokens(self, given: MasterAuthorizedInfo) -> None:
        """Keep the tokens of an answer; those that came before are worth nothing now."""
        self.visit_token = given.visitAuthorizedToken
        if given.HasField("authAuthorizedToken"):
            self.auth_token = given.authAuthorizedToken

    def for_master(self) -> MasterCertificateInfo | None:
        """What a master wants to see; None where we have no name."""
        if self._user is None:
            return None
        if self.required or self.auth_token is None:
            return MasterCertificateInfo(authInfo=self._sign())
        return MasterCertificateInfo(authorizedToken=self.auth_token)

    def for_producer(self) -> AuthorizedInfo:
        """What a broker wants to see with a message."""
        info = AuthorizedInfo(visitAuthorizedToken=self.visit_token)
        if self.auth_token is not None:
            info.authAuthorizedToken = self.auth_token
        return info

    def for_consumer(self, *, signed: bool) -> AuthorizedInfo:
        """The credentials for a broker: signed at first and where the broker requires it."""
        info = AuthorizedInfo(visitAuthorizedToken=self.visit_token)
        if signed and self._user is not None:
            one = self._sign()
            info.authAuthorizedToken = f"{one.userName} {one.timestamp} {one.nonce} {one.signature}"
        return info

    def _sign(self) -> AuthenticateInfo:
        assert self._user is not None
        timestamp, nonce = int(self._clock() * 1000), self._dice.randrange(_NONCES)
        return AuthenticateInfo(
            userName=self._user,
            timestamp=timestamp,
            nonce=nonce,
            othParams="",
            signature=signature(self._user, self._password, timestamp, nonce),
        )
