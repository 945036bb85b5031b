"""Tokens that the master gives and takes back: a number for visitors, a text for who has signed.

Both are made from a secret of the node and need no memory:

    visit token     the first 63 bits of HMAC(key, number of the five minutes); the present one is
                    given out, the last three are accepted, so a client that hears of the new one
                    with its next heartbeat is never late
    authorized      user . expires . mark of the password . HMAC(key, all of that and the client id)
    token           so it is of no use to another client, after its time, or once the password is
                    another

The secret is kept in meta: tokens outlive a restart.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import NamedTuple

from trilogue.broker.errors import AuthenticationFailed

VISIT_MS = 5 * 60_000  # wire fact: renewed every five minutes
VISITS_ACCEPTED = 3
INT63 = (1 << 63) - 1
TOKEN_SIZE_MAX = 1_024
MARK_SIZE = 8
BAD_VISIT = "Visit Authorized Token is invalid!"  # as a real broker says it


class Issued(NamedTuple):
    """What a token of ours says."""

    user: str
    expires_ms: int
    mark: bytes  # of the password that was signed with


class Tokens:
    """Makes and reads them."""

    def __init__(self, key: bytes, now_ms: Callable[[], int], *, checks_visit: bool) -> None:
        self._key = key
        self._now_ms = now_ms
        self._checks_visit = checks_visit
        self._period = -1
        self._visits: tuple[int, ...] = ()

    # -- visitors

    @property
    def visit(self) -> int:
        """The visit token that is given out now."""
        self._renew()
        return self._visits[0]

    def check_visit(self, token: int) -> None:
        """Refuse a visit token that is none of the last ones, where they are checked."""
        if not self._checks_visit:
            return
        self._renew()
        if token not in self._visits:
            raise AuthenticationFailed(BAD_VISIT)

    def _renew(self) -> None:
        period = self._now_ms() // VISIT_MS
        if period != self._period:
            self._period = period
            self._visits = tuple(self._visit_of(period - back) for back in range(VISITS_ACCEPTED))

    def _visit_of(self, period: int) -> int:
        return int.from_bytes(self._mac("visit", str(period))[:8], "big") & INT63

    # -- who has signed

    def issue(self, user: str, client_id: str, secret: bytes, expires_ms: int) -> str:
        """A token for this user and this client."""
        said = f"{_text(user.encode())}.{expires_ms}.{_text(self.mark(secret))}"
        return f"{said}.{_text(self._mac('token', said, client_id))}"

    def read(self, token: str, client_id: str) -> Issued | None:
        """What a token says; None if it is not ours, or another client's."""
        if len(token) > TOKEN_SIZE_MAX or not token.isascii():
            return None
        said, _, mac = token.rpartition(".")
        if not hmac.compare_digest(mac, _text(self._mac("token", said, client_id))):
            return None
        user, expires, mark = said.split(".")
        return Issued(_bytes(user).decode(), int(expires), _bytes(mark))

    def mark(self, secret: bytes) -> bytes:
        """What tells passwords apart without telling them."""
        return hmac.digest(self._key, b"mark\0" + secret, "sha256")[:MARK_SIZE]

    def _mac(self, *texts: str) -> bytes:
        return hmac.digest(self._key, "\0".join(texts).encode(errors="replace"), "sha256")


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except Base64Error as error:  # it bears our mark, so this cannot be
        raise AssertionError("a token of ours cannot be read") from error
