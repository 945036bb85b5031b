"""Tokens that the master gives and takes back: a number for visitors, a text for who has signed.

Both are made from a secret of the node and need no memory:

    visit token     the first 63 bits of HMAC(key, number of the five minutes . client id . user);
                    the present one is given out, the last three are accepted, so a client that
                    hears of the new one with its next heartbeat is never late. Each client has
                    one of its own: who brings it to the broker was given it by the master.
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
VISITORS_MAX = 100_000  # whose tokens are remembered
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
        self._visits: dict[tuple[str, str], tuple[int, ...]] = {}

    # -- visitors

    def visit(self, client_id: str, user: str = "") -> int:
        """The visit token that is given to a client now; `user` is who it has shown to be."""
        return self._of(client_id, user)[0]

    def is_visit(self, token: int, client_id: str, user: str = "") -> bool:
        """Whether it is one of the last that this client was given."""
        return token in self._of(client_id, user)

    def check_visit(self, token: int, client_id: str, user: str = "") -> None:
        """Refuse a visit token that is none of the last ones, where they are checked."""
        if self._checks_visit and not self.is_visit(token, client_id, user):
            raise AuthenticationFailed(BAD_VISIT)

    def _of(self, client_id: str, user: str) -> tuple[int, ...]:
        period = self._now_ms() // VISIT_MS
        if period != self._period or len(self._visits) >= VISITORS_MAX:
            self._period = period
            self._visits.clear()
        found = self._visits.get((client_id, user))
        if found is None:
            found = self._visits[client_id, user] = tuple(
                self._visit_of(period - back, client_id, user) for back in range(VISITS_ACCEPTED)
            )
        return found

    def _visit_of(self, period: int, client_id: str, user: str) -> int:
        mac = self._mac("visit", str(period), client_id, user)
        return int.from_bytes(mac[:8], "big") & INT63

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
        # Each with its length: a client may have any characters in its id, ours too.
        said = "".join(f"{len(each)}\0{each}" for each in texts)
        return hmac.digest(self._key, said.encode(errors="replace"), "sha256")


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except Base64Error as error:  # it bears our mark, so this cannot be
        raise AssertionError("a token of ours cannot be read") from error
