"""The login of one connection: mechanism, exchange, session, and the login that renews it.

    handshake ──► begin ──► answer, once or twice ──► logged in ──► (before the end) handshake ...

A session ends when its token expires, or after the longest life that the settings allow. The client
logs in again on the same connection before that (KIP-368), as the same principal; afterwards every
other request closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from trilogue.broker.access.authorizer import Principal
from trilogue.broker.access.scram import FAILED, ScramExchange
from trilogue.broker.access.scram import MECHANISMS as SCRAM
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.authentication import Authenticator, Login
from trilogue.gateway.listener_security import ListenerSecurity

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
TOKEN_BYTES_MAX: Final = 64 << 10
FAILURE_DELAY_S: Final = 0.1  # Kafka's connection.failed.authentication.delay.ms
PROTOCOL: Final = "kafka"
SEPARATOR: Final = "\x01"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'


class LoginConnection(Protocol):
    """The connection of a login, for its requests."""

    login: SaslLogin | None
    listener: ListenerSecurity | None

    def drain(self) -> None:
        """Accept no more requests, answer those in flight, then close."""


class SaslLogin:
    """The state of one connection's login; `on_login` is called after each."""

    def __init__(
        self,
        authenticator: Authenticator,
        host: str,
        mechanisms: tuple[str, ...],
        on_login: Callable[[Login], None],
        *,
        lifetime_max_ms: int = 0,
    ) -> None:
        self.mechanisms = mechanisms
        self.principal: Principal | None = None  # of the login that is valid
        self.expires_ms: int | None = None
        self.token_id = ""  # of the delegation token of the login, if it was by one
        self.lifetime_ms = 0  # of the session that has just begun; 0: no limit
        self.is_bare = False  # tokens come without a request around them
        self._authenticator = authenticator
        self._host = host
        self._on_login = on_login
        self._lifetime_max_ms = lifetime_max_ms
        self._mechanism = ""
        self._scram: ScramExchange | None = None
        self._refused = ""  # why a bearer's token was refused: the client asks once more

    @property
    def is_exchanging(self) -> bool:
        """Whether a mechanism was chosen, and the login is not complete."""
        return bool(self._mechanism)

    @property
    def is_valid(self) -> bool:
        """Whether the client is logged in, and its session has not ended."""
        if self.principal is None:
            return False
        return self.expires_ms is None or self._authenticator.now_ms() < self.expires_ms

    def begin(self, mechanism: str, *, bare: bool) -> None:
        """Begin an exchange."""
        self._mechanism, self.is_bare, self._refused = mechanism, bare, ""
        self._scram = self._authenticator.start_scram(mechanism) if mechanism in SCRAM else None

    async def answer(self, token: bytes) -> bytes:
        """Return the server's token for one of the client; raises AuthenticationFailed."""
        if len(token) > TOKEN_BYTES_MAX:
            raise self._fail("", "the token is too long")
        if self._scram is not None:
            return self._answer_scram(self._scram, token)
        if self._mechanism == PLAIN:
            user, password = self._parse_plain(token)
            login = await self._authenticator.verify_password(
                user, password, protocol=PROTOCOL, host=self._host, method=PLAIN
            )
            self._complete(login)
            return b""
        return self._answer_bearer(token)

    # ---- mechanisms

    def _parse_plain(self, token: bytes) -> tuple[str, bytes]:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise self._fail("", "a PLAIN token has three parts")
        try:
            authorization_id, user = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            raise self._fail("", "a name is UTF-8") from None
        if not user or not parts[2]:
            raise self._fail(user, "a user and a password are needed")
        if authorization_id not in {"", user}:
            raise self._fail(user, "a client may act for itself only")
        return user, parts[2]

    def _answer_scram(self, exchange: ScramExchange, token: bytes) -> bytes:
        try:
            answer = self._authenticator.respond_scram(exchange, token, self._host)
        except AuthenticationFailed as problem:
            raise self._fail(exchange.user, str(problem)) from None
        if exchange.is_done:
            login = self._authenticator.finish_scram(self._mechanism, exchange)
            if login is None:
                raise self._fail(exchange.user, FAILED)
            self._complete(login)
        return answer

    def _answer_bearer(self, token: bytes) -> bytes:
        if self._refused:
            raise AuthenticationFailed(self._refused)
        fields = token.decode("utf-8", "replace").split(SEPARATOR)
        bearer = next((each for each in fields if each.lower().startswith("auth=bearer ")), "")
        header = fields[0]
        if not bearer or not header.startswith("n,"):
            raise self._fail("", "an OAUTHBEARER token has n,, and auth=Bearer")
        try:
            login = self._authenticator.verify_token(
                bearer.partition(" ")[2].strip(),
                protocol=PROTOCOL,
                host=self._host,
                method=OAUTHBEARER,
            )
        except AuthenticationFailed as problem:
            self._refused = str(problem)
            return INVALID_TOKEN  # RFC 7628: the client answers, then it is refused
        authorization_id = header.split(",")[1].removeprefix("a=")
        if authorization_id not in {"", login.principal.name}:
            raise self._fail(login.principal.name, "a client may act for itself only")
        self._complete(login)
        return b""

    # ---- the end of an exchange

    def _complete(self, login: Login) -> None:
        if self.principal is not None and self.principal != login.principal:
            raise self._fail(login.principal.name, "a session is renewed by its own principal only")
        now_ms = self._authenticator.now_ms()
        lives = [] if login.expires_ms is None else [max(1, login.expires_ms - now_ms)]
        if self._lifetime_max_ms > 0:
            lives.append(self._lifetime_max_ms)
        self.lifetime_ms = min(lives, default=0)
        self.expires_ms = now_ms + self.lifetime_ms if lives else None
        self.principal = login.principal
        self._mechanism, self._scram = "", None
        self._on_login(login)
        self.token_id = login.token_id

    def _fail(self, user: str, reason: str) -> AuthenticationFailed:
        return self._authenticator.login_failed(
            user, protocol=PROTOCOL, host=self._host, method=self._mechanism, reason=reason
        )
