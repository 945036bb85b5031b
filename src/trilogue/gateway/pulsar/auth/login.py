"""Logins of Pulsar clients: the credentials of CONNECT, proxies, and tokens that are renewed.

    token    a JSON web token; clients of OAuth 2.0 send one by this name too
    basic    `user:password`
    tls      the certificate that the client showed to the TLS listener
    none     the anonymous user, where `access.anonymous` names one; a certificate alone is no login
    others   the anonymous user, too, as at a real broker

A proxy connects as itself and names its client in `original_principal`, with that client's own
credentials or without. Only the users of `pulsar.proxy-roles` may do so, and they have to. Whatever
is refused is one line of the audit log, then ERROR(AuthenticationError), and the connection ends.

A token ends: `CHALLENGE_MS` before that, and when it has ended, a client that declared
supports_auth_refresh gets AUTH_CHALLENGE, and answers with a new token of the same user. It has
`ANSWER_MS` from the end of the old one. Any other client loses the connection when its token ends.

Source: PulsarApi.proto; `ServerCnx` of Apache Pulsar 4.0.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trilogue import __version__
from trilogue.broker.access.authorizer import USER, Principal
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.authentication import Login
from trilogue.gateway.pulsar.services import ClientConnection, PulsarServices
from trilogue.gateway.stream import Stream
from trilogue.wire.pulsar.pulsar_pb2 import AuthData, CommandConnect

PROTOCOL: Final = "pulsar"
NO_METHOD: Final = "none"
REFRESH: Final = b"PulsarAuthRefresh"  # what a challenge contains for a token to be renewed
CHALLENGE_MS: Final = 10_000
ANSWER_MS: Final = 5_000
METHOD_MAX: Final = 20  # characters of an unknown method's name that the audit log gets


class Credentials(msgspec.Struct, frozen=True):
    """A method and its data, as a client sends them."""

    method: str
    data: bytes
    certificate: Login | None = None  # what the certificate of the connection stands for

    @classmethod
    def of_auth_data(cls, message: AuthData) -> Credentials:
        """Return the credentials of an AUTH_RESPONSE."""
        return cls(message.auth_method_name or NO_METHOD, message.auth_data)


class ClientLogin(msgspec.Struct, frozen=True):
    """The login of a connection: the client's, and that of the proxy between, if there is one."""

    client: Login
    proxy: Login | None = None

    @property
    def logins(self) -> list[Login]:
        """All users whose change ends the connection."""
        return [self.client] if self.proxy is None else [self.client, self.proxy]

    @property
    def expires_ms(self) -> int | None:
        """The end of the first token that ends, in ms of the epoch."""
        return min((each.expires_ms for each in self.logins if each.expires_ms), default=None)


async def verify_credentials(gateway: PulsarServices, credentials: Credentials, host: str) -> Login:
    """Return the login of credentials; raises AuthenticationFailed after a line of the audit."""
    method, data = credentials.method, credentials.data
    authenticator = gateway.authenticator
    try:
        if method == "token":
            return authenticator.verify_token(data.decode(), protocol=PROTOCOL, host=host)
        if method == "basic":
            user, _, password = data.partition(b":")
            return await authenticator.verify_password(
                user.decode(), password, protocol=PROTOCOL, host=host, method=method
            )
    except UnicodeDecodeError:
        raise refuse(gateway, host, method, "the credentials are no text") from None
    if method == "tls":
        if credentials.certificate is None:
            raise refuse(gateway, host, method, "no client certificate with a principal")
        return credentials.certificate
    if gateway.anonymous:
        return Login(Principal(USER, gateway.anonymous), NO_METHOD)
    if method != NO_METHOD:
        raise refuse(gateway, host, method, "the method is not served: token, basic, tls")
    raise refuse(gateway, host, method, "credentials are needed: a token or a password")


async def log_in(gateway: PulsarServices, command: CommandConnect, stream: Stream) -> ClientLogin:
    """Return the login of a CONNECT; raises AuthenticationFailed after a line of the audit log."""
    host = stream.peer[0]
    certificate = gateway.authenticator.identify_certificate(stream.peer_certificate)
    sent = Credentials(command.auth_method_name or NO_METHOD, command.auth_data, certificate)
    login = await verify_credentials(gateway, sent, host)
    roles = gateway.settings.proxy_roles
    if login.principal.name not in roles:
        if _has_proxy_fields(command):
            reason = "the fields of a proxy need a user of pulsar.proxy-roles"
            raise refuse(gateway, host, sent.method, reason, login.principal.name)
        return ClientLogin(login)
    original = await _log_in_original(gateway, command, host)
    if original.principal.name in roles:
        reason = "the original principal is needed, and is no proxy"
        raise refuse(gateway, host, sent.method, reason, login.principal.name)
    return ClientLogin(original, login)


def refuse(
    gateway: PulsarServices, host: str, method: str, reason: str, user: str = ""
) -> AuthenticationFailed:
    """Return the error of a refused login, after its line in the audit log."""
    return gateway.authenticator.login_failed(
        user, protocol=PROTOCOL, host=host, method=method[:METHOD_MAX], reason=reason
    )


async def _log_in_original(gateway: PulsarServices, command: CommandConnect, host: str) -> Login:
    name = command.original_principal
    if not command.HasField("original_auth_data"):
        method = "proxy"
        if not name:
            reason = "a proxy has to name the original principal of its client"
            raise refuse(gateway, host, method, reason)
        return Login(Principal(USER, name), method)
    sent = Credentials(
        command.original_auth_method or NO_METHOD, command.original_auth_data.encode()
    )
    login = await verify_credentials(gateway, sent, host)
    if name and name != login.principal.name:
        reason = "the original principal is not that of its credentials"
        raise refuse(gateway, host, sent.method, reason, name)
    return login


def _has_proxy_fields(command: CommandConnect) -> bool:
    return bool(
        command.original_principal
        or command.original_auth_data
        or command.original_auth_method
        or command.proxy_version
    )


class LoginExpiry:
    """Watches the token of one connection: challenges its client, or ends the connection."""

    def __init__(self, connection: ClientConnection, login: ClientLogin) -> None:
        self.login = login
        self.is_challenged = False
        self._connection = connection
        self._early = self._late = False  # challenges that were sent for this token

    def tick(self, now_ms: int) -> None:
        """Send the challenge that is due, or end the connection; called about once a second."""
        expires_ms = self.login.expires_ms
        if expires_ms is None or now_ms < expires_ms - CHALLENGE_MS:
            return
        if now_ms < expires_ms:
            if not self._early and self._can_renew:
                self._early = True
                self._challenge()
            return
        if not self._late and self._can_renew:
            self._late = True
            self._challenge()
        elif not self.is_challenged or now_ms >= expires_ms + ANSWER_MS:
            self._connection.stream.abort("connection.session_ended", problem="the token ended")

    def renew(self, login: Login) -> None:
        """Watch the token of a new login of the same user."""
        self.is_challenged = False
        if login.expires_ms != self.login.expires_ms:
            self._early = self._late = False
        self.login = ClientLogin(login)

    @property
    def _can_renew(self) -> bool:
        """Whether the client answers a challenge; one behind a proxy gets none."""
        return self.login.proxy is None and self._connection.features.supports_auth_refresh

    def _challenge(self) -> None:
        method = self.login.client.method
        self.is_challenged = self._connection.send_command(
            "authChallenge",
            server_version=f"Trilogue {__version__}",
            protocol_version=self._connection.protocol_version,
            challenge=AuthData(auth_method_name=method, auth_data=REFRESH),
        )
