"""Authentication of TubeMQ clients: signatures, tokens in their place, and when to sign again.

    client ── user, time, nonce, signature ──► master      the first time
           ◄── authorized token, visit token ──            valid for a while, renewed by heartbeats
           ── authorized token ──► master, broker          producers
           ── visit token, perhaps a signature ──► broker  consumers, when they register

Real servers only check that there is a signature; here it is verified with the password of the
cluster's user, and each is accepted once (signatures.py). Errors are 415. Their text is the same
for a wrong password, an unknown user and a user without a password for signatures (Kafka's tools
send a SCRAM verifier only), and so is the time that the check takes; the audit log has the reason.

Java's consumers send no signature to a broker unless the response to a heartbeat asked for one. So
a visit token suffices for a client that authenticated at the master, since no other client got it;
at a broker of another node than the master's it shows who the client is.
They send nothing with a get, so a connection remembers the client ids that were admitted on it.

An address with many wrong signatures is refused without a check for a while (failed_logins.py);
clients with tokens are not.

An admission ends with any change of its user: another password, deletion, revoked tokens.
"""

from __future__ import annotations

import hmac
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import msgspec

from trilogue.broker.access.authorizer import ANONYMOUS, Principal
from trilogue.broker.access.users import NAME_BYTES_MAX, User
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.failed_logins import TOO_MANY_FAILURES, FailedLogins
from trilogue.gateway.tubemq.auth.auth_tokens import AuthTokens
from trilogue.gateway.tubemq.auth.signatures import (
    SIGNATURE_SIZE_MAX,
    SIGNATURE_WINDOW_MS,
    SignatureCache,
    parse_signature_text,
    signature,
)
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo
from trilogue.wire.tubemq.master_pb2 import (
    AuthenticateInfo,
    MasterAuthorizedInfo,
    MasterCertificateInfo,
)

PROTOCOL = "tubemq"
TOKEN_MS = 10 * 60_000
GRACE_MS = (
    TOKEN_MS  # an expired token is still accepted at a master, which then demands a signature
)
ADMITTED_MAX = 1_000  # client ids of a connection
CLIENTS_MAX = 100_000  # client ids of a gateway, for each thing that is remembered of them
ID_SIZE_MAX, ID_DIGEST_SIZE = (
    128,
    32,
)  # characters of an id as it is; bytes of a longer one's digest

NO_PROOF = "authentication is needed here: neither a signature nor a token came"
BAD_CREDENTIALS = (
    "the user name or the signature is wrong, or the user has no password for signatures: those "
    "that Kafka's tools made get one from `trilogue users set-password`"
)
NO_SIGNING_PASSWORD = "the user has no password for signatures: `trilogue users set-password`"  # noqa: S105
OTHER_KEY = "the user's password was encrypted with another key file: `trilogue users set-password`"
NO_KEY_FILE = "the server cannot read the key file of passwords"
TOO_MANY_CLIENTS = "as many clients as there may be have authenticated on open connections"
STALE_SIGNATURE = (
    f"the signature's time is more than {SIGNATURE_WINDOW_MS // 1000} s from the server's"
)
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


class AuthenticationSettings(msgspec.Struct, frozen=True):
    """The roles that have to authenticate, and whether visit tokens are checked."""

    authenticate: frozenset[Role] = NO_ROLES
    checks_visit: bool = False


class Admission(NamedTuple):
    """The result of a client's authentication on one connection."""

    user: User  # as it was then: any change of the user ends the admission
    principal: Principal
    renew_ms: int  # from here on it should sign, or send a newer token
    ends_ms: int
    token: str  # that was sent; empty for a signature


class AdmittedClients:
    """The clients that were admitted on a connection, by client id."""

    def __init__(self) -> None:
        self.admitted: dict[str, Admission] = {}
        self.principals: set[Principal] = set()

    @property
    def host(self) -> str:
        """The address of the peer."""
        return ""

    def end_session(self, reason: str) -> None:
        """Close: one of the users was changed or deleted. Its admissions are void already."""


class Authentication:
    """Authenticates the clients of the master and the broker."""

    def __init__(
        self,
        settings: AuthenticationSettings,
        authenticator: Authenticator,
        *,
        key: bytes,
        signatures: SignatureCache | None = None,
    ) -> None:
        self.settings = settings
        self._authenticator = authenticator
        self._users = authenticator.users
        self._now_ms = authenticator.now_ms
        self.tokens = AuthTokens(key, self._now_ms, checks_visit=settings.checks_visit)
        # The key of an unknown user's signature, so that its check takes as long.
        self._unknown_user_key = hmac.digest(key, b"unknown user", "sha256")
        self._signatures = SignatureCache() if signatures is None else signatures
        self._failures = FailedLogins()
        self._must_sign: dict[str, None] = {}  # client ids whose token has expired
        # The last admissions at the master.
        self._master_admissions: dict[tuple[Role, str], Admission] = {}
        self._admitted_count = 0  # on all connections

    def authenticate(
        self, role: Role, peer: AdmittedClients, client_id: str, certificate: Certificate
    ) -> Principal:
        """Return the principal of a request; raises AuthenticationFailed.

        `certificate` is None for requests that carry none.
        """
        admitted = None
        if len(client_id) > ID_SIZE_MAX:
            client_id = _shorten(client_id)
        if role in self.settings.authenticate:
            admitted = self._admit(role, peer, client_id, certificate)
        if isinstance(certificate, AuthorizedInfo):
            user = None if admitted is None else admitted.user
            try:
                self.tokens.check_visit(certificate.visitAuthorizedToken, client_id, user)
            except AuthenticationFailed as problem:
                name = "" if user is None else user.name
                raise self._refusal(peer, name, "visit token", str(problem)) from None
        return ANONYMOUS if admitted is None else admitted.principal

    def close_peer(self, peer: AdmittedClients) -> None:
        """Forget the clients of a connection that is closed."""
        for principal in peer.principals:
            self._authenticator.remove_session(principal, peer)
        self._admitted_count -= len(peer.admitted)
        peer.admitted.clear()
        peer.principals.clear()

    def _refusal(
        self, peer: AdmittedClients, user: str, method: str, text: str, reason: str = ""
    ) -> AuthenticationFailed:
        """Return the error of a refused request, after the line of the audit log."""
        self._authenticator.login_failed(
            user, protocol=PROTOCOL, host=peer.host, method=method, reason=reason or text
        )
        return AuthenticationFailed(text)

    def needs_signature(
        self, role: Role, peer: AdmittedClients, client_id: str, certificate: Certificate
    ) -> bool:
        """Return `requireAuth` of a heartbeat's response: whether the client has to sign next.

        At a master: its token has expired, though it was accepted for this heartbeat. At a broker:
        it has not signed on this connection, or not for a while.
        """
        if role not in self.settings.authenticate:
            return False
        admitted = self._current_admission(peer, _shorten(client_id))
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
        client_id = _shorten(client_id)
        if principal == ANONYMOUS:
            return MasterAuthorizedInfo(visitAuthorizedToken=self.tokens.visit_token(client_id))
        user = self._users.find(principal.name)
        info = MasterAuthorizedInfo(visitAuthorizedToken=self.tokens.visit_token(client_id, user))
        if user is not None and client_id not in self._must_sign:
            ends_ms = self._now_ms() + TOKEN_MS
            token = self.tokens.issue_authorized_token(user, client_id, ends_ms)
            info.authAuthorizedToken = token
        return info

    # -- proofs

    def _admit(
        self, role: Role, peer: AdmittedClients, client_id: str, certificate: Certificate
    ) -> Admission:
        before = self._current_admission(peer, client_id)
        if certificate is None:
            if before is None:
                raise self._refusal(peer, "", "session", NOT_SIGNED)
            return self._check_not_expired(peer, before)
        if isinstance(certificate, MasterCertificateInfo):
            admitted = self._admit_at_master(peer, client_id, certificate)
            _put_bounded(self._master_admissions, (role, client_id), admitted, CLIENTS_MAX)
        else:
            found = self._admit_at_broker(role, peer, before, client_id, certificate)
            if found is before:
                return found
            admitted = found
        if self._now_ms() >= admitted.ends_ms:
            _put_bounded(self._must_sign, client_id, None, CLIENTS_MAX)
        else:
            self._must_sign.pop(client_id, None)
        self._remember(peer, client_id, admitted)
        return admitted

    def _admit_at_master(
        self, peer: AdmittedClients, client_id: str, certificate: MasterCertificateInfo
    ) -> Admission:
        """Verify what a client sends to a master."""
        if certificate.HasField("authInfo"):
            return self._verify_signature(peer, certificate.authInfo)
        if certificate.authorizedToken:
            return self._verify_token(peer, certificate.authorizedToken, client_id, grace=True)
        raise self._refusal(peer, "", "signature", NO_PROOF)

    def _admit_at_broker(
        self,
        role: Role,
        peer: AdmittedClients,
        before: Admission | None,
        client_id: str,
        certificate: AuthorizedInfo,
    ) -> Admission:
        """Verify what a client sends to a broker, or sent before on this connection."""
        token = certificate.authAuthorizedToken
        if " " in token:
            signed = parse_signature_text(token)
            if signed is None:
                raise self._refusal(peer, "", "signature", BAD_CREDENTIALS)
            return self._verify_signature(peer, signed)
        if token and (before is None or token != before.token):
            return self._verify_token(peer, token, client_id, grace=False)
        if before is None or self._now_ms() >= before.renew_ms:
            found = self._find_by_visit_token(role, client_id, certificate.visitAuthorizedToken)
            if found is not None:
                return found
        if before is None:
            raise self._refusal(peer, "", "signature", NO_PROOF)
        return self._check_not_expired(peer, before)

    def _find_by_visit_token(
        self, role: Role, client_id: str, visit_token: int
    ) -> Admission | None:
        """Return the admission of this client at the master, if the visit token is its own."""
        found = self._master_admissions.get((role, client_id))
        if found is None and role is Role.CONSUMER:  # the master may be at another node
            user = self.tokens.find_visitor(visit_token, client_id, self._users)
            return None if user is None else _make_admission(user, self._now_ms() + TOKEN_MS, "")
        if found is None or self._now_ms() >= found.ends_ms or not self._is_current(found):
            return None
        return (
            found if self.tokens.accepts_visit_token(visit_token, client_id, found.user) else None
        )

    def _is_current(self, admission: Admission) -> bool:
        return self._users.find(admission.user.name) is admission.user

    def _current_admission(self, peer: AdmittedClients, client_id: str) -> Admission | None:
        """Return the admission on this connection, unless the user changed since."""
        before = peer.admitted.get(client_id)
        return before if before is not None and self._is_current(before) else None

    def _check_not_expired(self, peer: AdmittedClients, before: Admission) -> Admission:
        if self._now_ms() >= before.ends_ms:
            raise self._refusal(peer, before.user.name, "session", BAD_TOKEN)
        return before

    def _remember(self, peer: AdmittedClients, client_id: str, admission: Admission) -> None:
        """Note an admission on its connection; raises AuthenticationFailed beyond the limit."""
        count = len(peer.admitted)
        if client_id not in peer.admitted and self._admitted_count >= CLIENTS_MAX:
            raise self._refusal(peer, admission.user.name, "signature", TOO_MANY_CLIENTS)
        _put_bounded(peer.admitted, client_id, admission, ADMITTED_MAX)
        self._admitted_count += len(peer.admitted) - count
        peer.principals.add(admission.principal)
        self._authenticator.add_session(admission.principal, peer)

    def _verify_signature(self, peer: AdmittedClients, signed: AuthenticateInfo) -> Admission:
        name, signature_text = signed.userName, signed.signature
        if not name or not signature_text:
            raise self._refusal(peer, name, "signature", NO_PROOF)
        if len(name) > NAME_BYTES_MAX or len(signature_text) > SIGNATURE_SIZE_MAX:
            raise self._refusal(peer, name, "signature", BAD_CREDENTIALS)
        now_ms = self._now_ms()
        if self._failures.is_full(peer.host):
            raise AuthenticationFailed(TOO_MANY_FAILURES)
        if abs(now_ms - signed.timestamp) > SIGNATURE_WINDOW_MS:
            raise self._refusal(peer, name, "signature", STALE_SIGNATURE)
        try:
            password = self._authenticator.signing_password(name)
        except OSError as error:
            reason = f"{NO_KEY_FILE}: {error.strerror}"
            raise self._refusal(peer, name, "signature", NO_KEY_FILE, reason) from error
        key = self._unknown_user_key if password is None else password
        expected = signature(name, key, signed.timestamp, signed.nonce)
        is_good = hmac.compare_digest(expected.encode(), signature_text.encode(errors="replace"))
        user = self._users.find(name)
        if not is_good or password is None or user is None:
            self._failures.count(peer.host)
            reason = _describe_refusal(user, password)
            raise self._refusal(peer, name, "signature", BAD_CREDENTIALS, reason)
        try:
            self._signatures.add((name, signed.timestamp, signed.nonce), now_ms)
        except AuthenticationFailed as problem:
            raise self._refusal(peer, name, "signature", str(problem)) from None
        return _make_admission(user, now_ms + TOKEN_MS, "")

    def _verify_token(
        self, peer: AdmittedClients, token: str, client_id: str, *, grace: bool
    ) -> Admission:
        issued = self.tokens.parse_authorized_token(token, client_id)
        if issued is None:
            raise self._refusal(peer, "", "token", BAD_TOKEN)
        user = self._users.find(issued.user)
        if user is None or not hmac.compare_digest(self.tokens.user_mark(user), issued.user_mark):
            raise self._refusal(peer, issued.user, "token", BAD_TOKEN)
        if self._now_ms() >= issued.expires_ms + (GRACE_MS if grace else 0):
            raise self._refusal(peer, issued.user, "token", BAD_TOKEN)
        return _make_admission(user, issued.expires_ms, token)


def _make_admission(user: User, ends_ms: int, token: str) -> Admission:
    return Admission(user, user.principal, ends_ms - TOKEN_MS // 2, ends_ms, token)


def _describe_refusal(user: User | None, password: bytes | None) -> str:
    """Return the reason of a refused signature for the audit log."""
    if user is None:
        return "there is no such user"
    if not user.signing:
        return NO_SIGNING_PASSWORD
    return OTHER_KEY if password is None else "the signature is wrong"


def _shorten(client_id: str) -> str:
    """Return the id under which a client is remembered: of bounded size, as no client id is."""
    if len(client_id) <= ID_SIZE_MAX:
        return client_id
    return blake2b(client_id.encode(errors="replace"), digest_size=ID_DIGEST_SIZE).hexdigest()


def _put_bounded(before: dict[K, T], key: K, value: T, most: int) -> None:
    """Add an entry and remove the oldest one beyond the limit."""
    before.pop(key, None)
    before[key] = value
    if len(before) > most:
        del before[next(iter(before))]
