"""Authentication of TubeMQ clients: signatures, tokens in their place, and when to sign again.

    client ── user, time, nonce, signature ──► master      the first time
           ◄── authorized token, visit token ──            valid for a while, renewed by heartbeats
           ── authorized token ──► master, broker          producers
           ── visit token, perhaps a signature ──► broker  consumers, when they register

The signature is URL-encode(Base64(HMAC-SHA1(key = password, text = user + time + nonce))), its time
within 20 s of the server's (docs/reference/wire/tubemq.md). Real servers only check that there is
one; here it is verified, and each is accepted once. Errors are 415, with a text that does not tell
a wrong password from an unknown user, and neither does the time that the check takes.

Java's consumers send no signature to a broker unless the response to a heartbeat asked for one. So
a visit token suffices for a client that authenticated at the master, since no other client got it.
They send nothing with a get, so a connection remembers the client ids that were admitted on it.
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

from trilogue.broker.access.authorizer import ANONYMOUS, Principal
from trilogue.broker.access.credentials import Credentials
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.tubemq.auth_tokens import AuthTokens
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo
from trilogue.wire.tubemq.master_pb2 import (
    AuthenticateInfo,
    MasterAuthorizedInfo,
    MasterCertificateInfo,
)

log = logging.getLogger(__name__)

SIGNATURE_WINDOW_MS = 20_000
TOKEN_MS = 10 * 60_000
GRACE_MS = (
    TOKEN_MS  # an expired token is still accepted at a master, which then demands a signature
)
SIGNATURES_MAX = 100_000  # remembered, so that each is accepted once
ADMITTED_MAX = 1_000  # client ids of a connection
CLIENTS_MAX = 100_000  # client ids of a gateway
USER_SIZE_MAX = 128
SIGNATURE_SIZE_MAX = 128
LOG_INTERVAL_MS = 1_000  # between log lines about refusals
LOGGED_MAX = 128  # characters of a client id in the log
SIGNATURE_PARTS = 4  # of the signature text that consumers send to brokers

NO_PROOF = "authentication is needed here: neither a signature nor a token came"
BAD_CREDENTIALS = "the user name or the signature is wrong"
STALE_SIGNATURE = (
    f"the signature's time is more than {SIGNATURE_WINDOW_MS // 1000} s from the server's"
)
REPLAYED_SIGNATURE = "the signature has been used before"
TOO_MANY_SIGNATURES = "too many signatures at once: try again in a minute"
BAD_TOKEN = "the authorized token is wrong or over: sign again"  # noqa: S105
NOT_SIGNED = "authentication is needed here: this client has not signed on this connection"

K = TypeVar("K")
T = TypeVar("T")
Certificate = MasterCertificateInfo | AuthorizedInfo | None


class Role(Enum):
    """The kinds of clients; each kind may have to authenticate or not."""

    PRODUCER = "producers"
    CONSUMER = "consumers"


NO_ROLES: frozenset[Role] = frozenset()
ALL_ROLES = frozenset(Role)


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """The roles that have to authenticate, and whether visit tokens are checked."""

    authenticate: frozenset[Role] = NO_ROLES
    checks_visit: bool = False


class Admission(NamedTuple):
    """The result of a client's authentication on one connection."""

    principal: Principal
    user: str
    secret: bytes  # the password: another one ends the admission
    renew_ms: int  # from here on it should sign, or send a newer token
    ends_ms: int
    token: str  # that was sent; empty for a signature


class AdmittedClients:
    """The clients that were admitted on a connection, by client id."""

    def __init__(self) -> None:
        self.admitted: dict[str, Admission] = {}


class Authentication:
    """Authenticates the clients of the master and the broker."""

    def __init__(
        self,
        settings: AuthenticationSettings,
        credentials: Credentials,
        *,
        key: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.tokens = AuthTokens(key, now_ms, checks_visit=settings.checks_visit)
        self.refused = 0
        self._logged_ms = -LOG_INTERVAL_MS
        self._credentials = credentials
        self._now_ms = now_ms
        self._unknown_user_key = hmac.digest(
            key, b"nobody", "sha256"
        )  # checked for unknown users, so that it takes as long
        self._signatures = _SignatureCache()
        self._must_sign: dict[str, None] = {}  # client ids whose token has expired
        self._master_admissions: dict[
            tuple[Role, str], Admission
        ] = {}  # the last admissions at the master

    def authenticate(
        self, role: Role, peer: AdmittedClients, client_id: str, certificate: Certificate
    ) -> Principal:
        """Return the principal of a request; raises AuthenticationFailed.

        `certificate` is None for requests that carry none.
        """
        try:
            admitted = None
            if role in self.settings.authenticate:
                admitted = self._admit(role, peer, client_id, certificate)
            if isinstance(certificate, AuthorizedInfo):
                user = "" if admitted is None else admitted.user
                self.tokens.check_visit(certificate.visitAuthorizedToken, client_id, user)
        except AuthenticationFailed as problem:
            self._log_refusal(role, client_id, problem)
            raise
        return ANONYMOUS if admitted is None else admitted.principal

    def _log_refusal(self, role: Role, client_id: str, problem: AuthenticationFailed) -> None:
        """Log a refusal: at most one line per second, with the number of refusals so far."""
        self.refused += 1
        now_ms = self._now_ms()
        if abs(now_ms - self._logged_ms) < LOG_INTERVAL_MS:
            return
        self._logged_ms = now_ms
        fields = {"role": role.value, "client": client_id[:LOGGED_MAX], "problem": str(problem)}
        log.warning("authentication.refused", extra={**fields, "refused": self.refused})

    def needs_signature(
        self, role: Role, peer: AdmittedClients, client_id: str, certificate: Certificate
    ) -> bool:
        """Return `requireAuth` of a heartbeat's response: whether the client has to sign next.

        At a master: its token has expired, though it was accepted for this heartbeat. At a broker:
        it has not signed on this connection, or not for a while.
        """
        if role not in self.settings.authenticate:
            return False
        admitted = self._current_admission(peer, client_id)
        if admitted is None:
            return True
        now_ms = self._now_ms()
        if isinstance(certificate, MasterCertificateInfo):
            return now_ms >= admitted.ends_ms
        return now_ms >= admitted.renew_ms

    def authorized_info(self, principal: Principal, client_id: str) -> MasterAuthorizedInfo:
        """Return the tokens for a client: the visit token, and a new authorized token.

        A client whose token has expired gets no authorized token: it has to sign first.
        """
        if principal == ANONYMOUS:
            return MasterAuthorizedInfo(visitAuthorizedToken=self.tokens.visit_token(client_id))
        user = principal.name
        info = MasterAuthorizedInfo(visitAuthorizedToken=self.tokens.visit_token(client_id, user))
        secret = self._credentials.secret(user)
        if secret is not None and client_id not in self._must_sign:
            ends_ms = self._now_ms() + TOKEN_MS
            info.authAuthorizedToken = self.tokens.issue_authorized_token(
                user, client_id, secret, ends_ms
            )
        return info

    # -- proofs

    def _admit(
        self, role: Role, peer: AdmittedClients, client_id: str, certificate: Certificate
    ) -> Admission:
        before = self._current_admission(peer, client_id)
        if certificate is None:
            if before is None:
                raise AuthenticationFailed(NOT_SIGNED)
            return self._check_not_expired(before)
        if isinstance(certificate, MasterCertificateInfo):
            admitted = self._admit_at_master(client_id, certificate)
            _put_bounded(self._master_admissions, (role, client_id), admitted, CLIENTS_MAX)
        else:
            found = self._admit_at_broker(role, before, client_id, certificate)
            if found is before:
                return found
            admitted = found
        if self._now_ms() >= admitted.ends_ms:
            _put_bounded(self._must_sign, client_id, None, CLIENTS_MAX)
        else:
            self._must_sign.pop(client_id, None)
        _put_bounded(peer.admitted, client_id, admitted, ADMITTED_MAX)
        return admitted

    def _admit_at_master(self, client_id: str, certificate: MasterCertificateInfo) -> Admission:
        """Verify what a client sends to a master."""
        if certificate.HasField("authInfo"):
            return self._verify_signature(certificate.authInfo)
        if certificate.authorizedToken:
            return self._verify_token(certificate.authorizedToken, client_id, grace=True)
        raise AuthenticationFailed(NO_PROOF)

    def _admit_at_broker(
        self, role: Role, before: Admission | None, client_id: str, certificate: AuthorizedInfo
    ) -> Admission:
        """Verify what a client sends to a broker, or sent before on this connection."""
        token = certificate.authAuthorizedToken
        if " " in token:
            return self._verify_signature(_parse_signature_text(token))
        if token and (before is None or token != before.token):
            return self._verify_token(token, client_id, grace=False)
        if before is None or self._now_ms() >= before.renew_ms:
            found = self._find_by_visit_token(role, client_id, certificate.visitAuthorizedToken)
            if found is not None:
                return found
        if before is None:
            raise AuthenticationFailed(NO_PROOF)
        return self._check_not_expired(before)

    def _find_by_visit_token(
        self, role: Role, client_id: str, visit_token: int
    ) -> Admission | None:
        """Return the admission of this client at the master, if the visit token is its own."""
        found = self._master_admissions.get((role, client_id))
        if found is None or self._now_ms() >= found.ends_ms:
            return None
        if self._credentials.secret(found.user) != found.secret:
            return None
        if not self.tokens.accepts_visit_token(visit_token, client_id, found.user):
            return None
        return found

    def _current_admission(self, peer: AdmittedClients, client_id: str) -> Admission | None:
        """Return the admission on this connection, unless the password changed since."""
        before = peer.admitted.get(client_id)
        if before is not None and self._credentials.secret(before.user) != before.secret:
            del peer.admitted[client_id]
            return None
        return before

    def _check_not_expired(self, before: Admission) -> Admission:
        if self._now_ms() >= before.ends_ms:
            raise AuthenticationFailed(BAD_TOKEN)
        return before

    def _verify_signature(self, signed: AuthenticateInfo) -> Admission:
        user, signature_text = signed.userName, signed.signature
        if not user or not signature_text:
            raise AuthenticationFailed(NO_PROOF)
        if len(user) > USER_SIZE_MAX or len(signature_text) > SIGNATURE_SIZE_MAX:
            raise AuthenticationFailed(BAD_CREDENTIALS)
        now_ms = self._now_ms()
        if abs(now_ms - signed.timestamp) > SIGNATURE_WINDOW_MS:
            raise AuthenticationFailed(STALE_SIGNATURE)
        secret = self._credentials.secret(user)
        key = self._unknown_user_key if secret is None else secret
        expected = signature(user, key, signed.timestamp, signed.nonce)
        is_good = hmac.compare_digest(expected.encode(), signature_text.encode(errors="replace"))
        if not is_good or secret is None:
            raise AuthenticationFailed(BAD_CREDENTIALS)
        self._signatures.add((user, signed.timestamp, signed.nonce), now_ms)
        return self._make_admission(user, secret, now_ms + TOKEN_MS, "")

    def _verify_token(self, token: str, client_id: str, *, grace: bool) -> Admission:
        issued = self.tokens.parse_authorized_token(token, client_id)
        if issued is None:
            raise AuthenticationFailed(BAD_TOKEN)
        secret = self._credentials.secret(issued.user)
        if secret is None or self.tokens.password_mark(secret) != issued.password_mark:
            raise AuthenticationFailed(BAD_TOKEN)
        if self._now_ms() >= issued.expires_ms + (GRACE_MS if grace else 0):
            raise AuthenticationFailed(BAD_TOKEN)
        return self._make_admission(issued.user, secret, issued.expires_ms, token)

    def _make_admission(self, user: str, secret: bytes, ends_ms: int, token: str) -> Admission:
        principal = self._credentials.principal(user)
        return Admission(principal, user, secret, ends_ms - TOKEN_MS // 2, ends_ms, token)


class _SignatureCache:
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


def _parse_signature_text(text: str) -> AuthenticateInfo:
    """Parse `user timestamp nonce signature`, as consumers send it to brokers."""
    parts = text.split(" ")
    if len(parts) != SIGNATURE_PARTS or len(text) > 2 * USER_SIZE_MAX + SIGNATURE_SIZE_MAX:
        raise AuthenticationFailed(BAD_CREDENTIALS)
    user, timestamp, nonce, signature_text = parts
    try:
        return AuthenticateInfo(
            userName=user,
            timestamp=int(timestamp),
            nonce=int(nonce),
            othParams="",
            signature=signature_text,
        )
    except ValueError as error:
        raise AuthenticationFailed(BAD_CREDENTIALS) from error


def _put_bounded(before: dict[K, T], key: K, value: T, most: int) -> None:
    """Add an entry and remove the oldest one beyond the limit."""
    before.pop(key, None)
    before[key] = value
    if len(before) > most:
        del before[next(iter(before))]
