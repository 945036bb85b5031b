"""An authentication without a gateway, and the proofs that clients send."""

from __future__ import annotations

from tests.gateway.tubemq.rig import SIGNING_KEY, put_users
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import Principal
from trilogue.broker.access.users import Users
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.tubemq.auth.authentication import (
    ALL_ROLES,
    AdmittedClients,
    Authentication,
    AuthenticationSettings,
    Role,
)
from trilogue.gateway.tubemq.auth.signatures import signature
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo
from trilogue.wire.tubemq.master_pb2 import AuthenticateInfo, MasterCertificateInfo

NOW_MS = 1_795_262_482_479
ALICE = Principal("User", "alice")
P, C = Role.PRODUCER, Role.CONSUMER


class PeerAt(AdmittedClients):
    """A connection from an address."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    @property
    def host(self) -> str:
        return self._host


class AuthenticationRig:
    """An authentication with a clock of its own and users that can change."""

    def __init__(self, roles: frozenset[Role] = ALL_ROLES, *, checks_visit: bool = False) -> None:
        self.now_ms = NOW_MS
        self.nonce = 1_000
        self.passwords = {"alice": b"wonder+land/=", "bob": b"other"}
        self.users = Users({})
        put_users(self.users, self.passwords)
        self.lines: list[dict[str, object]] = []
        self.peer = AdmittedClients()
        self.rules = self.again(roles, checks_visit=checks_visit)

    def again(
        self,
        roles: frozenset[Role] = ALL_ROLES,
        *,
        checks_visit: bool = False,
        key: bytes = b"k" * 32,
    ) -> Authentication:
        authenticator = Authenticator(
            self.users,
            audit=AuditLog(self.lines.append, lambda: self.now_ms),
            now_ms=lambda: self.now_ms,
            signing_key=lambda: SIGNING_KEY,
        )
        return Authentication(AuthenticationSettings(roles, checks_visit), authenticator, key=key)

    def change_password(self, user: str, password: bytes) -> None:
        self.passwords[user] = password
        put_users(self.users, {user: password})

    def delete_user(self, user: str) -> None:
        self.users.plan_delete(user, self.now_ms).apply()

    def request(self, certificate, client="c1", *, role=P, peer=None) -> Principal:
        return self.rules.authenticate(role, peer or self.peer, client, certificate)

    def signed(self, user="alice", *, password=None, after_ms=0, nonce=7) -> MasterCertificateInfo:
        time_ms = self.now_ms + after_ms
        secret = password or self.passwords.get(user, b"-")
        return certificate(user, time_ms, nonce, signature(user, secret, time_ms, nonce))

    def token(self, client="c1") -> str:
        self.nonce += 1
        self.request(self.signed(nonce=self.nonce), client, peer=AdmittedClients())
        return self.rules.authorized_info(ALICE, client).authAuthorizedToken


def certificate(user, time_ms, nonce, signed) -> MasterCertificateInfo:
    info = AuthenticateInfo(
        userName=user, timestamp=time_ms, nonce=nonce, othParams="", signature=signed
    )
    return MasterCertificateInfo(authInfo=info)


def with_token(token: str) -> MasterCertificateInfo:
    return MasterCertificateInfo(authorizedToken=token)


def at_broker(token: str = "", visit: int = 0) -> AuthorizedInfo:
    return AuthorizedInfo(visitAuthorizedToken=visit, authAuthorizedToken=token)


def blanks(gateway: AuthenticationRig, user="alice", *, nonce=9, password=None) -> AuthorizedInfo:
    secret = password or gateway.passwords[user]
    signed = signature(user, secret, gateway.now_ms, nonce)
    return at_broker(f"{user} {gateway.now_ms} {nonce} {signed}")
