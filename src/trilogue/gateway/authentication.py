"""Logins of all gateways: passwords, tokens, SCRAM, certificates; and the end of sessions.

A session ends when its user is changed or deleted, and when its delegation token is removed.

A password costs 50 ms of CPU: it is checked in a pool of `POOL_THREADS` threads with a bounded
queue, in which addresses take turns. What the queue has no room for, or what has waited longer than
clients do, is refused unchecked with `TooManyLogins`, so that the client tries again. A correct one
is remembered by a digest with a key of this process, so that clients that send it with every
request (HTTP, many connections) pay once.
Whatever fails is one line of the audit log and `AuthenticationFailed`; its text does not tell an
unknown user from a wrong password.
A user's logins from an address are refused without a check after many failures (failed_logins.py),
whether there is such a user or not. Clients that send one password at the same time share a check.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import Protocol

import msgspec

from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import USER, Principal
from trilogue.broker.access.certificates import MappingRule, map_subject, subject_of
from trilogue.broker.access.delegation_tokens import DelegationTokens
from trilogue.broker.access.passwords import (
    PASSWORD_BYTES_MAX,
    check_password,
    decrypt_password,
    encrypt_password,
)
from trilogue.broker.access.scram import (
    FAILED,
    ScramExchange,
    ScramShape,
    ScramVerifier,
    imagine_verifier,
)
from trilogue.broker.access.tokens import TokenSigner, TokenValidator
from trilogue.broker.access.users import User, Users
from trilogue.broker.errors import AuthenticationFailed, TooManyLogins
from trilogue.gateway.address_turns import AddressTurns, TooManyWaiting, Turn
from trilogue.gateway.failed_logins import (
    TOO_MANY_FAILURES_OF_USER,
    FailedLogins,
    key_of_user,
)

POOL_THREADS = 2
WAITING_MAX = 1_000  # logins by password that wait for a thread
WAITING_PER_HOST_MAX = 500  # of them from one address
WAITED_MAX_S = 20.0  # clients wait for 30 s
TOO_MANY_AT_ONCE = "too many logins at once"
REMEMBERED_MAX = 10_000
KEY_BYTES = 32


class Login(msgspec.Struct, frozen=True):
    """A client that is authenticated; `expires_ms` is the end of its token, if it has one.

    `token_id` is that of a delegation token, `signer` is of a JSON web token, if the login was by
    one.
    """

    principal: Principal
    method: str
    expires_ms: int | None = None
    token_id: str = ""
    signer: TokenSigner | None = None


class Session(Protocol):
    """A connection with a login."""

    def end_session(self, reason: str) -> None:
        """Close: the user was deleted or has another secret, or the key of its token is gone."""


class Authenticator:
    """Checks credentials against the users of the cluster and the keys of the node."""

    def __init__(
        self,
        users: Users,
        *,
        audit: AuditLog,
        now_ms: Callable[[], int],
        tokens: TokenValidator | None = None,
        signing_key: Callable[[], bytes] | None = None,
        certificate_rules: Sequence[MappingRule] = (MappingRule(),),
        delegation_tokens: DelegationTokens | None = None,
    ) -> None:
        self.users = users
        if delegation_tokens is None:
            delegation_tokens = DelegationTokens({})
        self.delegation_tokens = delegation_tokens
        self.audit = audit
        self.tokens = tokens
        self.now_ms = now_ms
        self._signing_key = signing_key
        self._certificate_rules = certificate_rules
        self._imagined_signing = ""  # decrypted in place of an unknown user's
        self._key = secrets.token_bytes(KEY_BYTES)
        self._remembered: OrderedDict[bytes, int] = OrderedDict()
        self._failures = FailedLogins()
        self._under_way: Counter[str] = Counter()  # checks, by the key of a user's failures
        self._checks: dict[tuple[str, bytes], asyncio.Task[tuple[User | None, str]]] = {}
        self._turns = AddressTurns(
            POOL_THREADS,
            waiting_max=WAITING_MAX,
            waiting_of_address_max=WAITING_PER_HOST_MAX,
            patience_s=WAITED_MAX_S,
        )
        self._pool: ThreadPoolExecutor | None = None
        self._sessions: dict[str, dict[Session, None]] = {}
        self._token_sessions: dict[str, dict[Session, None]] = {}  # by delegation token
        self._signers: dict[Session, list[TokenSigner]] = {}  # of sessions by JSON web tokens
        users.listeners.append(self._end_sessions)
        self.delegation_tokens.listeners.append(self._end_token_sessions)

    def close(self) -> None:
        """End the threads of the pool."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    # -- methods

    def recall_password(
        self, user: str, password: bytes, *, method: str = "password"
    ) -> Login | None:
        """Return the login by a password that was right before, or None: it has to be verified."""
        found = self.users.find(user)
        digest = self._digest(user, password)
        if found is None or self._remembered.get(digest) != found.changed_ms:
            return None
        self._remembered.move_to_end(digest)
        return Login(found.principal, method)

    async def verify_password(
        self, user: str, password: bytes, *, protocol: str, host: str, method: str = "password"
    ) -> Login:
        """Return the login of a user by password; raises AuthenticationFailed, TooManyLogins."""
        recalled = self.recall_password(user, password, method=method)
        if recalled is not None:
            return recalled
        if len(password) > PASSWORD_BYTES_MAX:
            raise self._failed(user, protocol, host, method, FAILED)
        digest = self._digest(user, password)
        check = self._checks.get((host, digest))
        if check is None:
            key = key_of_user(user, host)
            if self._failures.is_full(key, self._under_way[key]):
                raise self._failed(user, protocol, host, method, TOO_MANY_FAILURES_OF_USER)
            try:
                turn = self._turns.request(host)
            except TooManyWaiting:
                reason = TOO_MANY_AT_ONCE
                raise self._failed(user, protocol, host, method, reason) from None
            self._under_way[key] += 1
            work = self._check_password(user, password, digest, host, turn)
            check = self._checks[host, digest] = asyncio.create_task(work)
        found, reason = await asyncio.shield(check)
        if found is None or not self._is_current(found):  # it may have changed since the check
            raise self._failed(user, protocol, host, method, reason)
        return Login(found.principal, method)

    def verify_token(self, token: str, *, protocol: str, host: str, method: str = "token") -> Login:
        """Return the login of a bearer of a token; raises AuthenticationFailed."""
        if self.tokens is None:
            reason = "no key for tokens is configured (access.token-key)"
            raise self._failed("", protocol, host, method, reason)
        try:
            claims = self.tokens.validate(token)
        except AuthenticationFailed as problem:
            raise self._failed("", protocol, host, method, str(problem)) from None
        return Login(claims.principal, method, claims.expires_ms, signer=claims.signer)

    def identify_certificate(self, certificate: Mapping[str, object]) -> Login | None:
        """Return the login of a client certificate that a TLS listener has verified.

        None: the client has shown none (it is empty), or no rule has a name for its subject.
        """
        if not certificate:
            return None
        name = map_subject(subject_of(certificate), self._certificate_rules)
        return Login(Principal(USER, name), "tls") if name else None

    def start_scram(self, mechanism: str) -> ScramExchange:
        """Return a SCRAM exchange of a user, or of a delegation token if the client names one."""

        def find_verifier(name: str, extensions: Mapping[str, str]) -> ScramVerifier | None:
            if _is_token_login(extensions):
                return self.delegation_tokens.find_verifier(name, mechanism, self.now_ms())
            user = self.users.find(name)
            return None if user is None else user.scram.get(mechanism)

        def imagine(name: str, extensions: Mapping[str, str]) -> ScramVerifier:
            shape = ScramShape(mechanism)  # of delegation tokens
            if not _is_token_login(extensions):
                shape = self.users.choose_shape(mechanism, self._digest_of_name(name))
            return imagine_verifier(shape, name, self._salt_key)

        return ScramExchange(mechanism, find_verifier, imagine=imagine)

    def _digest_of_name(self, name: str) -> bytes:
        return hmac.digest(self._salt_key, b"shape of " + name.encode(), "sha256")

    @cached_property
    def _salt_key(self) -> bytes:
        """The key of unknown users' salts: as known ones' they are the same at every node."""
        key = self._key
        if self._signing_key is not None:
            with suppress(OSError):
                key = self._signing_key()
        return hmac.digest(key, b"salts of unknown users", "sha256")

    def respond_scram(self, exchange: ScramExchange, token: bytes, host: str) -> bytes:
        """Return the answer to a token of an exchange; raises AuthenticationFailed."""
        key = key_of_user(exchange.user, host)
        if exchange.user and self._failures.is_full(key):
            raise AuthenticationFailed(TOO_MANY_FAILURES_OF_USER)
        try:
            return exchange.respond(token)
        except AuthenticationFailed:
            if exchange.user:
                self._failures.count(key)
            raise

    def finish_scram(self, mechanism: str, exchange: ScramExchange) -> Login | None:
        """Return the login of an exchange that is done; None: what it is of has changed meanwhile.

        A client may begin an exchange, and end it when the user has another password. The principal
        of a login with a delegation token is the token's owner.
        """
        if not _is_token_login(exchange.extensions):
            user = self.users.find(exchange.user)
            if user is None or not exchange.is_against(user.scram.get(mechanism)):
                return None
            return Login(user.principal, mechanism)
        token = self.delegation_tokens.find(exchange.user)
        if token is None or token.is_expired(self.now_ms()):
            return None
        return Login(token.owner, mechanism, token.expires_ms, token.token_id)

    def signing_password(self, user: str) -> bytes | None:
        """Return the password that a user's signatures are made with, or None.

        It takes as long for an unknown user as for a known one. Raises OSError where the key file
        cannot be read.
        """
        if self._signing_key is None:
            return None
        key = self._signing_key()
        found = self.users.find(user)
        if found is not None and found.signing:
            return decrypt_password(found.signing, key)
        if not self._imagined_signing:
            self._imagined_signing = encrypt_password(self._key, key)
        decrypt_password(self._imagined_signing, key)
        return None

    def login_failed(
        self, user: str, *, protocol: str, host: str, method: str, reason: str
    ) -> AuthenticationFailed:
        """Return the error of a login that a gateway refused, after its line in the audit log."""
        return self._failed(user, protocol, host, method, reason)

    # -- sessions

    def add_session(self, principal: Principal, session: Session) -> None:
        """End this session when the user of its principal changes."""
        self._sessions.setdefault(principal.name, {})[session] = None

    def remove_session(self, principal: Principal, session: Session) -> None:
        """Forget a session; one that is not there is no error."""
        found = self._sessions.get(principal.name)
        if found is not None:
            found.pop(session, None)
            if not found:
                del self._sessions[principal.name]

    def add_token_session(self, token_id: str, session: Session) -> None:
        """End this session when the delegation token is removed or expires earlier than before."""
        self._token_sessions.setdefault(token_id, {})[session] = None

    def remove_token_session(self, token_id: str, session: Session) -> None:
        """Forget a session of a delegation token; one that is not there is no error."""
        found = self._token_sessions.get(token_id)
        if found is not None:
            found.pop(session, None)
            if not found:
                del self._token_sessions[token_id]

    def set_signers(self, session: Session, logins: Iterable[Login]) -> None:
        """End this session when a key that signed a token of its logins is gone.

        The logins take the place of those before; without any the session is forgotten.
        """
        signers = [login.signer for login in logins if login.signer is not None]
        if signers:
            self._signers[session] = signers
        else:
            self._signers.pop(session, None)

    def end_unsigned_sessions(self) -> None:
        """End the sessions by tokens that the present keys do not check."""
        if self.tokens is None:
            return
        accepts = self.tokens.accepts
        for session, signers in list(self._signers.items()):
            if not all(map(accepts, signers)):
                self._signers.pop(session, None)
                session.end_session("the key of the token is not configured any more")

    def _end_sessions(self, user: str) -> None:
        for session in self._sessions.pop(user, {}):
            session.end_session("the user was changed or deleted")
        for token_id in list(self._token_sessions):  # its requester may have been that user
            if self.delegation_tokens.find(token_id) is None:
                self._end_token_sessions(token_id)

    def _end_token_sessions(self, token_id: str) -> None:
        for session in self._token_sessions.pop(token_id, {}):
            session.end_session("the delegation token was removed or expires earlier")

    # -- parts

    def _digest(self, user: str, password: bytes) -> bytes:
        return hmac.digest(self._key, f"{len(user)}:{user}:".encode() + password, "sha256")

    async def _check_password(
        self, user: str, password: bytes, digest: bytes, host: str, turn: Turn
    ) -> tuple[User | None, str]:
        """Return the user whose password is right, or count a failure, and the reason."""
        key = key_of_user(user, host)
        found = self.users.find(user)
        try:
            async with self._turns.hold(turn) as has_place:
                if not has_place:
                    return None, TOO_MANY_AT_ONCE
                is_right = await self._check_in_pool(user, found, password)
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
            del self._checks[host, digest]
        if not is_right or found is None or not self._is_current(found):
            self._failures.count(key)
            return None, FAILED
        self._remembered[digest] = found.changed_ms
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return found, FAILED

    def _is_current(self, user: User) -> bool:
        """Return whether a user still exists and has the same secrets."""
        now = self.users.find(user.name)
        return now is not None and now.changed_ms == user.changed_ms

    async def _check_in_pool(self, name: str, user: User | None, password: bytes) -> bool:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(POOL_THREADS, "passwords")
        loop = asyncio.get_running_loop()
        hashed = None if user is None else user.password
        verifiers = {} if user is None else user.scram
        shape = self.users.choose_first_shape(self._digest_of_name(name))
        return await loop.run_in_executor(
            self._pool, check_password, password, hashed, verifiers, shape
        )

    def _failed(
        self, user: str, protocol: str, host: str, method: str, reason: str
    ) -> AuthenticationFailed:
        self.audit.login_failed(user, protocol, host, method=method, reason=reason)
        kind = TooManyLogins if reason == TOO_MANY_AT_ONCE else AuthenticationFailed
        return kind(reason)


def _is_token_login(extensions: Mapping[str, str]) -> bool:
    """Return whether a SCRAM client logs in with a delegation token (KIP-48)."""
    return extensions.get("tokenauth", "").lower() == "true"
