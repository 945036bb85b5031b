"""Tokens that the master issues: a number for every client, a text for authenticated ones.

Both are derived from a secret of the node and need no memory:

    visit token     12 bits of the CRC of the user's name, then the first 51 bits of HMAC(key,
                    number of the five minutes . client id . user . mark of the user). The present
                    one is issued, the last three are accepted, so a client that gets the new one
                    with its next heartbeat is never late. Each client has its own: a client that
                    sends it to the broker got it from the master. A broker at another node, which
                    did not see the client sign, finds the user by the CRC.
    authorized      user . expires . mark of the user . HMAC(key, all of that and the client id)
    token           It is of no use to another client, after its time, or once the user has another
                    password, was deleted or had its tokens revoked.

The secret is kept in meta: tokens outlive a restart.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable
from typing import NamedTuple
from zlib import crc32

from trilogue.broker.access.users import User, encode_user
from trilogue.broker.errors import AuthenticationFailed

VISIT_MS = 5 * 60_000  # real masters renew visit tokens every five minutes
VISITS_ACCEPTED = 3
VISITS_OF_USERS = 2  # of these, where they show who the client is: ten minutes at most
VISITORS_MAX = 20_000  # clients whose tokens are cached: making them again costs 10 us
TAG_BITS, MAC_BITS = 12, 51  # of the 63 bits of a visit token
TOKEN_SIZE_MAX = 1_024
MARK_SIZE = 8
BAD_VISIT = "Visit Authorized Token is invalid!"  # the text of a real broker


class TokenClaims(NamedTuple):
    """The contents of an authorized token."""

    user: str
    expires_ms: int
    user_mark: bytes  # of the user as it was then


class AuthTokens:
    """Issues and checks tokens."""

    def __init__(self, key: bytes, now_ms: Callable[[], int], *, checks_visit: bool) -> None:
        self._key = key
        self._now_ms = now_ms
        self._checks_visit = checks_visit
        self._period = -1
        self._visit_tokens: dict[tuple[str, str], tuple[User | None, tuple[int, ...]]] = {}

    # -- visit tokens

    def visit_token(self, client_id: str, user: User | None = None) -> int:
        """Return the present visit token of a client; `user` is None without authentication."""
        return self._recent_visit_tokens(client_id, user)[0]

    def accepts_visit_token(self, token: int, client_id: str, user: User | None = None) -> bool:
        """Return whether it is one of the last visit tokens of this client."""
        return token in self._recent_visit_tokens(client_id, user)

    def check_visit(self, token: int, client_id: str, user: User | None = None) -> None:
        """Check a visit token, where they are checked; raises AuthenticationFailed."""
        if self._checks_visit and not self.accepts_visit_token(token, client_id, user):
            raise AuthenticationFailed(BAD_VISIT)

    def find_visitor(self, token: int, client_id: str, users: Iterable[User]) -> User | None:
        """Return the user that a client was when it got a visit token; None if it is over."""
        tag = token >> MAC_BITS
        for user in users:
            if _name_tag(user.name) == tag:
                recent = self._recent_visit_tokens(client_id, user)[:VISITS_OF_USERS]
                if token in recent:
                    return user
        return None

    def _recent_visit_tokens(self, client_id: str, user: User | None) -> tuple[int, ...]:
        period = self._now_ms() // VISIT_MS
        if period != self._period or len(self._visit_tokens) >= VISITORS_MAX:
            self._period = period
            self._visit_tokens.clear()
        key = client_id, "" if user is None else user.name
        known, found = self._visit_tokens.get(key, (user, ()))
        if not found or known is not user:
            found = tuple(
                self._make_visit_token(period - back, client_id, user)
                for back in range(VISITS_ACCEPTED)
            )
            self._visit_tokens[key] = user, found
        return found

    def _make_visit_token(self, period: int, client_id: str, user: User | None) -> int:
        name, mark = ("", "") if user is None else (user.name, self.user_mark(user).hex())
        mac = self._mac("visit", str(period), client_id, name, mark)
        return _name_tag(name) << MAC_BITS | int.from_bytes(mac[:8], "big") >> 64 - MAC_BITS

    # -- authorized tokens

    def issue_authorized_token(self, user: User, client_id: str, expires_ms: int) -> str:
        """Return an authorized token for this user and this client."""
        mark = _encode(self.user_mark(user))
        content = f"{_encode(user.name.encode())}.{expires_ms}.{mark}"
        return f"{content}.{_encode(self._mac('token', content, client_id))}"

    def parse_authorized_token(self, token: str, client_id: str) -> TokenClaims | None:
        """Return the contents of a token; None if this node did not issue it to this client."""
        if len(token) > TOKEN_SIZE_MAX or not token.isascii():
            return None
        content, _, mac = token.rpartition(".")
        if not hmac.compare_digest(mac, _encode(self._mac("token", content, client_id))):
            return None
        user, expires, user_mark = content.split(".")
        return TokenClaims(_decode(user).decode(), int(expires), _decode(user_mark))

    def user_mark(self, user: User) -> bytes:
        """Return a few bytes that change with each change of a user and reveal no secret."""
        return self._mac("mark", encode_user(user))[:MARK_SIZE]

    def _mac(self, *texts: str) -> bytes:
        # Each with its length: a client id may contain any character, also the separator.
        content = "".join(f"{len(each)}\0{each}" for each in texts)
        return hmac.digest(self._key, content.encode(errors="replace"), "sha256")


def _name_tag(name: str) -> int:
    return crc32(name.encode(errors="replace")) & (1 << TAG_BITS) - 1


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except Base64Error as error:  # its MAC is right, so this node wrote it
        raise AssertionError("an issued token cannot be decoded") from error
