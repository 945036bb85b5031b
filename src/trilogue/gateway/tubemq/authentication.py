"""Who a client is: signatures, the tokens that stand for them, and when to sign again.

    client ── user, time, nonce, signature ──► master      the first time
           ◄── authorized token, visit token ──            good for a while, renewed by heartbeats
           ── authorized token ──► master, broker          producers
           ── visit token, perhaps a signature ──► broker  consumers, when they register

The signature is URL-encode(Base64(HMAC-SHA1(key = password, text = user + time + nonce))), the time
within 20 s of ours (wire fact). Real servers only look whether there is one; here it is verified,
and none is taken twice. What is refused is 415 with a reason that tells a wrong password from an
unknown user neither by its words nor by the time it takes.

Java's consumers bring no signature to a broker, unless its answer to a heartbeat asked for one. So
a visit token is enough of a client that is known at the master: nobody else was given it. And they
bring nothing with each read: so a connection remembers which client ids were admitted on it.
"""

from __future__ import annotations

import hmac
import logging
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from trilogue.broker.access import ANONYMOUS, Principal
from trilogue.broker.credentials import Credentials
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.tubemq.tokens import Tokens
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo
from trilogue.wire.tubemq.master_pb2 import (
    AuthenticateInfo,
    MasterAuthorizedInfo,
    MasterCertificateInfo,
)

log = logging.getLogger(__name__)

WINDOW_MS = 20_000
TOKEN_MS = 10 * 60_000
GRACE_MS = TOKEN_MS  # after its end a token still serves to be told that it has ended
SIGNATURES_MAX = 100_000  # remembered, so that none is taken twice
ADMITTED_MAX = 1_000  # client ids of a connection
CLIENTS_MAX = 100_000  # client ids of a door
USER_SIZE_MAX = 128
SIGNATURE_SIZE_MAX = 128
QUIET_MS = 1_000  # between lines about refusals
SAID_MAX = 128  # characters of a client id in the log
PARTS = 4  # of what consumers say to brokers

NO_PROOF = "authentication is needed here: neither a signature nor a token came"
WRONG = "the user name or the signature is wrong"
LATE = f"the signature's time is more than {WINDOW_MS // 1000} s from the server's"
TWICE = "the signature has been used before"
TOO_MANY = "too many signatures at once: try again in a minute"
BAD_TOKEN = "the authorized token is wrong or over: sign again"  # noqa: S105
NOT_SIGNED = "authentication is needed here: this client has not signed on this connection"

K = TypeVar("K")
T = TypeVar("T")
Certificate = MasterCertificateInfo | AuthorizedInfo | None


class Role(Enum):
    """What a client wants to do; each may have to authenticate or not."""

    PRODUCER = "producers"
    CONSUMER = "consumers"


NOBODY: frozenset[Role] = frozenset()
BOTH = frozenset(Role)


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """Who has to say who it is, and whether visit tokens are looked at."""

    authenticate: frozenset[Role] = NOBODY
    checks_visit: bool = False


class Admitted(NamedTuple):
    """A client that has shown who it is, on one connection."""

    principal: Principal
    user: str
    secret: bytes  # that was signed with: another password ends it
    renew_ms: int  # from here on it should sign, or bring a newer token
    ends_ms: int
    token: str  # it came with; empty where it has signed


class Peer:
    """What a connection remembers of its clients; connections derive from it or hold one."""

    def __init__(self) -> None:
        self.admitted: dict[str, Admitted] = {}


class Authentication:
    """The rules of a door."""

    def __init__(
        self,
        settings: AuthenticationSettings,
        credentials: Credentials,
        *,
        key: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.tokens = Tokens(key, now_ms, checks_visit=settings.checks_visit)
        self.refused = 0
        self._said_ms = -QUIET_MS
        self._credentials = credentials
        self._now_ms = now_ms
        self._nobody = hmac.digest(key, b"nobody", "sha256")  # signs for who is unknown
        self._signatures = _Signatures()
        self._must_sign: dict[str, None] = {}  # client ids whose token is over
        self._at_master: dict[tuple[Role, str], Admitted] = {}  # who was last admitted there

    def authenticate(
        self, role: Role, peer: Peer, client_id: str, certificate: Certificate
    ) -> Principal:
        """As whom a request acts; AuthenticationFailed. None: a request that brings no proof."""
        try:
            admitted = None
            if role in self.settings.authenticate:
                admitted = self._admit(role, peer, client_id, certificate)
            if isinstance(certificate, AuthorizedInfo):
                user = "" if admitted is None else admitted.user
                self.tokens.check_visit(certificate.visitAuthorizedToken, client_id, user)
        except AuthenticationFailed as problem:
            self._say(role, client_id, problem)
            raise
        return ANONYMOUS if admitted is None else admitted.principal

    def _say(self, role: Role, client_id: str, problem: AuthenticationFailed) -> None:
        """Note a refusal; at most one line a second, with how many there were by then."""
        self.refused += 1
        now_ms = self._now_ms()
        if abs(now_ms - self._said_ms) < QUIET_MS:
            return
        self._said_ms = now_ms
        fields = {"role": role.value, "client": client_id[:SAID_MAX], "problem": str(problem)}
        log.warning("authentication.refused", extra={**fields, "refused": self.refused})

    def require_auth(
        self, role: Role, peer: Peer, client_id: str, certificate: Certificate
    ) -> bool:
        """Whether the answer to a heartbeat shall ask the client to sign the next time.

        At a master: its token is over, though it still served for this heartbeat. At a broker: it
        has not signed on this connection, or a while ago.
        """
        if role not in self.settings.authenticate:
            return False
        admitted = self._still_admitted(peer, client_id)
        if admitted is None:
            return True
        now_ms = self._now_ms()
        if isinstance(certificate, MasterCertificateInfo):
            return now_ms >= admitted.ends_ms
        return now_ms >= admitted.renew_ms

    def authorized_info(self, principal: Principal, client_id: str) -> MasterAuthorizedInfo:
        """What a master gives to who has shown who it is: the visit token, and a new other one.

        Not the other one to a client whose token was over: it has to sign first.
        """
        if principal == ANONYMOUS:
            return MasterAuthorizedInfo(visitAuthorizedToken=self.tokens.visit(client_id))
        user = principal.name
        info = MasterAuthorizedInfo(visitAuthorizedToken=self.tokens.visit(client_id, user))
        secret = self._credentials.secret(user)
        if secret is not None and client_id not in self._must_sign:
            ends_ms = self._now_ms() + TOKEN_MS
            info.authAuthorizedToken = self.tokens.issue(user, client_id, secret, ends_ms)
        return info

    # -- proofs

    def _admit(self, role: Role, peer: Peer, client_id: str, certificate: Certificate) -> Admitted:
        there = self._still_admitted(peer, client_id)
        if certificate is None:
            if there is None:
                raise AuthenticationFailed(NOT_SIGNED)
            return self._in_time(there)
        if isinstance(certificate, MasterCertificateInfo):
            admitted = self._at(client_id, certificate)
            _put(self._at_master, (role, client_id), admitted, CLIENTS_MAX)
        else:
            found = self._at_broker(role, there, client_id, certificate)
            if found is there:
                return found
            admitted = found
        if self._now_ms() >= admitted.ends_ms:
            _put(self._must_sign, client_id, None, CLIENTS_MAX)
        else:
            self._must_sign.pop(client_id, None)
        _put(peer.admitted, client_id, admitted, ADMITTED_MAX)
        return admitted

    def _at(self, client_id: str, certificate: MasterCertificateInfo) -> Admitted:
        """By what is brought to a master."""
        if certificate.HasField("authInfo"):
            return self._by_signature(certificate.authInfo)
        if certificate.authorizedToken:
            return self._by_token(certificate.authorizedToken, client_id, grace=True)
        raise AuthenticationFailed(NO_PROOF)

    def _at_broker(
        self, role: Role, there: Admitted | None, client_id: str, certificate: AuthorizedInfo
    ) -> Admitted:
        """By what is brought to a broker, or was before."""
        token = certificate.authAuthorizedToken
        if " " in token:
            return self._by_signature(_split(token))
        if token and (there is None or token != there.token):
            return self._by_token(token, client_id, grace=False)
        if there is None or self._now_ms() >= there.renew_ms:
            found = self._by_visit(role, client_id, certificate.visitAuthorizedToken)
            if found is not None:
                return found
        if there is None:
            raise AuthenticationFailed(NO_PROOF)
        return self._in_time(there)

    def _by_visit(self, role: Role, client_id: str, visit: int) -> Admitted | None:
        """Who was admitted at the master as this client, and has what it was given there."""
        found = self._at_master.get((role, client_id))
        if found is None or self._now_ms() >= found.ends_ms:
            return None
        if self._credentials.secret(found.user) != found.secret:
            return None
        if not self.tokens.is_visit(visit, client_id, found.user):
            return None
        return found

    def _still_admitted(self, peer: Peer, client_id: str) -> Admitted | None:
        """What was remembered, unless the password is another one since, or the user gone."""
        there = peer.admitted.get(client_id)
        if there is not None and self._credentials.secret(there.user) != there.secret:
            del peer.admitted[client_id]
            return None
        return there

    def _in_time(self, there: Admitted) -> Admitted:
        if self._now_ms() >= there.ends_ms:
            raise AuthenticationFailed(BAD_TOKEN)
        return there

    def _by_signature(self, signed: AuthenticateInfo) -> Admitted:
        user, given = signed.userName, signed.signature
        if not user or not given:
            raise AuthenticationFailed(NO_PROOF)
        if len(user) > USER_SIZE_MAX or len(given) > SIGNATURE_SIZE_MAX:
            raise AuthenticationFailed(WRONG)
        now_ms = self._now_ms()
        if abs(now_ms - signed.timestamp) > WINDOW_MS:
            raise AuthenticationFailed(LATE)
        secret = self._credentials.secret(user)
        key = self._nobody if secret is None else secret
        expected = signature(user, key, signed.timestamp, signed.nonce)
        is_good = hmac.compare_digest(expected.encode(), given.encode(errors="replace"))
        if not is_good or secret is None:
            raise AuthenticationFailed(WRONG)
        self._signatures.use((user, signed.timestamp, signed.nonce), now_ms)
        return self._admission(user, secret, now_ms + TOKEN_MS, "")

    def _by_token(self, token: str, client_id: str, *, grace: bool) -> Admitted:
        issued = self.tokens.read(token, client_id)
        if issued is None:
            raise AuthenticationFailed(BAD_TOKEN)
        secret = self._credentials.secret(issued.user)
        if secret is None or self.tokens.mark(secret) != issued.mark:
            raise AuthenticationFailed(BAD_TOKEN)
        if self._now_ms() >= issued.expires_ms + (GRACE_MS if grace else 0):
            raise AuthenticationFailed(BAD_TOKEN)
        return self._admission(issued.user, secret, issued.expires_ms, token)

    def _admission(self, user: str, secret: bytes, ends_ms: int, token: str) -> Admitted:
        principal = self._credentials.principal(user)
        return Admitted(principal, user, secret, ends_ms - TOKEN_MS // 2, ends_ms, token)


class _Signatures:
    """Signatures that were taken lately."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int, int]] = set()
        self._order: deque[tuple[int, tuple[str, int, int]]] = deque()

    def use(self, key: tuple[str, int, int], now_ms: int) -> None:
        """Take a signature; AuthenticationFailed if it was taken before."""
        order = self._order
        while order and order[0][0] <= now_ms:
            self._seen.discard(order.popleft()[1])
        if key in self._seen:
            raise AuthenticationFailed(TWICE)
        if len(self._seen) >= SIGNATURES_MAX:
            raise AuthenticationFailed(TOO_MANY)
        self._seen.add(key)
        # Its time is at most a window ahead of ours, so it is late for ever after two of them.
        order.append((now_ms + 2 * WINDOW_MS + 1, key))


def signature(user: str, secret: bytes, timestamp_ms: int, nonce: int) -> str:
    """What a client that knows the password signs with."""
    text = f"{user}{timestamp_ms}{nonce}".encode(errors="replace")
    return quote(b64encode(hmac.digest(secret, text, "sha1")), safe="")


def _split(text: str) -> AuthenticateInfo:
    """Read `user timestamp nonce signature`, as consumers send it to brokers."""
    parts = text.split(" ")
    if len(parts) != PARTS or len(text) > 2 * USER_SIZE_MAX + SIGNATURE_SIZE_MAX:
        raise AuthenticationFailed(WRONG)
    user, timestamp, nonce, given = parts
    try:
        return AuthenticateInfo(
            userName=user,
            timestamp=int(timestamp),
            nonce=int(nonce),
            othParams="",
            signature=given,
        )
    except ValueError as error:
        raise AuthenticationFailed(WRONG) from error


def _put(there: dict[K, T], key: K, value: T, most: int) -> None:
    """Keep the newest ones."""
    there.pop(key, None)
    there[key] = value
    if len(there) > most:
        del there[next(iter(there))]
