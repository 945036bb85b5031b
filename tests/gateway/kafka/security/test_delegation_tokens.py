"""Delegation tokens (KIP-48, KIP-373): made, renewed, expired, described, and logins with them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.broker.access.test_users import PASSWORD, Client
from tests.gateway.kafka.rig import NOW_MS, Peer, Rig, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import ANY_HOST, Acl, Pattern
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import Operation, Principal, ResourceKind
from trilogue.broker.access.delegation_tokens import DAY_MS, DelegationTokenLimits
from trilogue.broker.access.scram import HASHES, make_verifier
from trilogue.broker.access.users import User
from trilogue.broker.errors import StorageFailed
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.metadata import MetadataRequest
from trilogue.wire.kafka.security.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from trilogue.wire.kafka.security.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

SASL = ListenerSecurity("kafka-sasl", lambda: ("broker.example", 9094), sasl=True)
TLS = ListenerSecurity("kafka-ssl", lambda: ("broker.example", 9093), tls=True)
SECRET = b"the secret of the node"
MECHANISM = "SCRAM-SHA-256"
UNKNOWN = bytes(64)
USERS = ("alice", "bob", "carol")


class Secured(Rig):
    """A gateway with a login, users and delegation tokens; its authorizer has ACLs."""

    def __init__(self, *, secret=SECRET, session_max_ms=0, **limits):
        settings = KafkaSettings(sasl_mechanisms=tuple(HASHES), sasl_session_max_ms=session_max_ms)
        super().__init__(settings=settings)
        self._secret, self._limits = secret, limits
        self.lines: list[dict[str, object]] = []

    def make_gateway(self):
        if self._secret is not None:
            limits = DelegationTokenLimits(**self._limits)
            self.broker.delegation_tokens.enable(lambda: self._secret, limits)
        self.rules = AclAuthorizer(self.broker.acls)
        gateway = super().make_gateway()
        gateway.audit = AuditLog(self.lines.append, lambda: self.now_ms)
        return gateway

    async def log_in(self, user="alice", password=PASSWORD, *, peer=None, token=False) -> Any:
        """Log in by SCRAM; returns the peer and the response to the last request."""
        if token is False and self.broker.users.find(user) is None and user in USERS:
            verifiers = {MECHANISM: make_verifier(MECHANISM, PASSWORD)}
            await self.commit(self.broker.users.plan_put(User(user, 1, verifiers)))
        peer = peer or self.peer(listener=SASL)
        client = Client(MECHANISM, user, password)
        if token:
            client.bare += ",tokenauth=true"
        answer = await peer.request(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        assert not answer.error_code
        answer = await peer.request(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
        assert not answer.error_code, answer
        final = client.final(bytes(answer.auth_bytes))
        return peer, await peer.request(SaslAuthenticateRequest(auth_bytes=final), 2)

    async def user(self, name="alice") -> Peer:
        peer, answer = await self.log_in(name)
        assert not answer.error_code, answer
        return peer

    async def log_in_by_token(self, token, *, peer=None) -> Any:
        password = base64.b64encode(bytes(token.hmac))
        return await self.log_in(token.token_id, password, peer=peer, token=True)

    async def allow(self, user, operation, kind, name):
        principal = Principal("User", user)
        acl = Acl(kind, Pattern.LITERAL, name, principal, ANY_HOST, operation, allow=True)
        await self.commit(self.broker.acls.plan_create([acl]))


async def create(peer: Peer, *, owner=None, renewers=(), lifetime_ms=-1, version=3) -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type="User", principal_name=n) for n in renewers],
        max_lifetime_ms=lifetime_ms,
    )
    return await peer.request(request, version)


async def renew(peer: Peer, hmac, period_ms=-1, version=2) -> tuple[int, int]:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = await peer.request(request, version)
    return answer.error_code, answer.expiry_timestamp_ms


async def expire(peer: Peer, hmac, period_ms=-1, version=2) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = await peer.request(request, version)
    return answer.error_code, answer.expiry_timestamp_ms


async def describe(peer: Peer, owners=None, version=3) -> Any:
    if owners is not None:
        owners = [
            DescribeDelegationTokenOwner(principal_type="User", principal_name=n) for n in owners
        ]
    return await peer.request(DescribeDelegationTokenRequest(owners=owners), version)


async def request_each(peer: Peer, hmac=UNKNOWN) -> list[int]:
    """Return the codes of 38 to 41."""
    return [
        (await create(peer)).error_code,
        (await renew(peer, hmac))[0],
        (await expire(peer, hmac))[0],
        (await describe(peer)).error_code,
    ]


@pytest.mark.parametrize("version", versions(38))
@on_loop
async def test_a_token_is_made_described_renewed_and_expired(version):
    async with Secured() as rig:
        peer = await rig.user()
        made = await create(peer, renewers=["bob"], version=version)

        assert made.error_code == 0
        assert (made.principal_type, made.principal_name) == ("User", "alice")
        assert made.issue_timestamp_ms == NOW_MS
        assert made.expiry_timestamp_ms == NOW_MS + DAY_MS
        assert made.max_timestamp_ms == NOW_MS + 7 * DAY_MS
        assert len(made.hmac) == 64
        if version >= 3:
            assert made.token_requester_principal_name == "alice"

        (found,) = (await describe(peer, version=version)).tokens
        assert (found.token_id, found.hmac) == (made.token_id, made.hmac)
        assert [each.principal_name for each in found.renewers] == ["bob"]
        assert found.max_timestamp == made.max_timestamp_ms

        rig.now_ms += 1_000
        moved = NOW_MS + 1_000 + DAY_MS
        other = min(version, 2)
        assert await renew(peer, made.hmac, version=other) == (0, moved)
        assert await expire(peer, made.hmac, 5_000, version=other) == (0, rig.now_ms + 5_000)
        assert await expire(peer, made.hmac, version=other) == (0, rig.now_ms)
        assert (await describe(peer, version=version)).tokens == []
        assert await expire(peer, made.hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)


@on_loop
async def test_changes_are_in_the_audit_log_without_the_hmac():
    async with Secured() as rig:
        peer = await rig.user()
        made = await create(peer)
        await renew(peer, made.hmac)
        await expire(peer, made.hmac)

        assert [line["operation"] for line in rig.lines] == [
            "create delegation token",
            "renew delegation token",
            "expire delegation token",
        ]
        for line in rig.lines:
            assert line["principal"] == line["owner"] == "User:alice"
            assert line["resource"] == f"delegation token {made.token_id}"
        secrets = (bytes(made.hmac).hex(), base64.b64encode(bytes(made.hmac)).decode())
        assert not any(secret in str(rig.lines) for secret in secrets)


@on_loop
async def test_a_connection_without_a_login_may_request_nothing():
    """64 on plain text, on TLS without a certificate, and after a login by a token."""
    async with Secured() as rig:
        refused = [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED] * 4
        assert await request_each(rig.peer()) == refused
        plain = ListenerSecurity("kafka", lambda: ("broker.example", 9092))
        assert await request_each(rig.peer(listener=plain)) == refused
        assert await request_each(rig.peer(listener=TLS)) == refused

        made = await create(await rig.user())
        by_token, answer = await rig.log_in_by_token(made)
        assert not answer.error_code
        assert await request_each(by_token, made.hmac) == refused


@on_loop
async def test_a_certificate_is_a_login():
    async with Secured() as rig:
        peer = rig.peer(listener=TLS)
        peer.session.access.set_principal(Principal("User", "alice"))
        made = await create(peer)

        assert (made.error_code, made.principal_name) == (0, "alice")


@on_loop
async def test_a_node_without_tokens_answers_61():
    async with Secured(secret=None) as rig:
        peer = await rig.user()

        assert await request_each(peer) == [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED] * 4


@pytest.mark.parametrize("hmac", [UNKNOWN, b"", b"x", bytes(10_000)])
@on_loop
async def test_an_unknown_token_is_62(hmac):
    async with Secured() as rig:
        peer = await rig.user()
        await create(peer)

        assert await renew(peer, hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
        assert await expire(peer, hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)


@on_loop
async def test_only_the_owner_and_renewers_renew_and_expire():
    async with Secured() as rig:
        alice, bob, carol = [await rig.user(name) for name in USERS]
        made = await create(alice, renewers=["bob"])

        mismatch = (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
        assert await renew(carol, made.hmac) == mismatch
        assert await expire(carol, made.hmac) == mismatch
        assert (await renew(bob, made.hmac))[0] == 0
        assert (await expire(bob, made.hmac))[0] == 0


@on_loop
async def test_an_expired_token_is_66_and_can_be_removed():
    async with Secured() as rig:
        peer = await rig.user()
        made = await create(peer)
        rig.now_ms = made.expiry_timestamp_ms

        expired = (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)
        assert await renew(peer, made.hmac) == expired
        assert await expire(peer, made.hmac, 1_000) == expired
        assert (await expire(peer, made.hmac))[0] == 0


@on_loop
async def test_a_token_for_another_owner_needs_create_tokens_on_the_user():
    """KIP-373: the resource is `User:bob`."""
    async with Secured() as rig:
        alice, bob = await rig.user(), await rig.user("bob")
        refused = await create(alice, owner="bob")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_id) == ("bob", "")
        assert rig.lines[-1]["event"] == "refused"
        assert rig.lines[-1]["operation"] == "create tokens"
        assert rig.lines[-1]["resource"] == "user User:bob"

        await rig.allow("alice", Operation.CREATE_TOKENS, ResourceKind.USER, "User:bob")
        made = await create(alice, owner="bob")
        assert made.error_code == 0
        assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")
        by_token, answer = await rig.log_in_by_token(made)
        assert not answer.error_code, answer
        assert by_token.session.principal == Principal("User", "bob")
        assert [each.token_id for each in (await describe(alice)).tokens] == [made.token_id]
        mismatch = (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
        assert await renew(alice, made.hmac) == mismatch
        assert (await renew(bob, made.hmac))[0] == 0


@on_loop
async def test_an_owner_that_one_names_oneself_needs_no_right():
    async with Secured() as rig:
        assert (await create(await rig.user(), owner="alice")).error_code == 0


@pytest.mark.parametrize("part", ["owner", "renewer"])
@on_loop
async def test_principals_are_users(part):
    async with Secured() as rig:
        peer = await rig.user()
        await rig.allow("alice", Operation.CREATE_TOKENS, ResourceKind.USER, "*")
        request = CreateDelegationTokenRequest(
            owner_principal_type="Group" if part == "owner" else None,
            owner_principal_name="g" if part == "owner" else None,
            max_lifetime_ms=-1,
        )
        if part == "renewer":
            request.renewers = [CreatableRenewers(principal_type="Group", principal_name="g")]

        answer = await peer.request(request, 3)
        assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize("renewer", ["", "a\nb", "x" * 20_000])
@on_loop
async def test_names_of_renewers_are_checked(renewer):
    async with Secured() as rig:
        answer = await create(await rig.user(), renewers=[renewer])

        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert not len(rig.broker.delegation_tokens)


@on_loop
async def test_the_limit_is_44():
    async with Secured(tokens_max=1) as rig:
        peer = await rig.user()
        assert (await create(peer)).error_code == 0

        assert (await create(peer)).error_code == ErrorCode.POLICY_VIOLATION


@on_loop
async def test_a_secret_that_cannot_be_stored_is_56():
    async with Secured() as rig:
        peer = await rig.user()

        def fail() -> bytes:
            raise StorageFailed("the disk is full")

        rig.broker.delegation_tokens.enable(fail, DelegationTokenLimits())
        assert (await create(peer)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not len(rig.broker.delegation_tokens)


@on_loop
async def test_describing_is_by_owner_and_by_right():
    async with Secured() as rig:
        alice, bob, carol = [await rig.user(name) for name in USERS]
        first = await create(alice, renewers=["bob"])
        rig.now_ms += 1
        second = await create(bob)

        async def ids(peer, owners=None):
            answer = await describe(peer, owners)
            assert answer.error_code == 0
            return [each.token_id for each in answer.tokens]

        assert await ids(alice) == [first.token_id]
        assert await ids(bob) == [first.token_id, second.token_id]
        assert await ids(bob, ["alice"]) == [first.token_id]
        assert await ids(bob, ["carol"]) == []
        assert await ids(bob, []) == []
        assert await ids(carol) == []
        token = ResourceKind.DELEGATION_TOKEN
        await rig.allow("carol", Operation.DESCRIBE, token, first.token_id)
        assert await ids(carol) == [first.token_id]
        await rig.allow("carol", Operation.DESCRIBE_TOKENS, ResourceKind.USER, "User:bob")
        assert await ids(carol) == [first.token_id, second.token_id]
        assert [line for line in rig.lines if line["event"] == "refused"] == []


@on_loop
async def test_many_tokens_are_described_in_steps():
    async with Secured() as rig:
        alice = await rig.user()
        for _ in range(450):
            await create(alice)

        assert len((await describe(alice)).tokens) == 450


@on_loop
async def test_a_session_ends_with_its_token_and_is_renewed_by_a_login():
    """KIP-368: the life of the session is that of the token."""
    async with Secured() as rig:
        made = await create(await rig.user(), lifetime_ms=60_000)
        rig.now_ms += 10_000
        peer, answer = await rig.log_in_by_token(made)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 50_000)
        assert peer.session.principal == Principal("User", "alice")
        await peer.request(MetadataRequest(topics=[]), 9)

        rig.now_ms += 49_999
        peer, answer = await rig.log_in_by_token(made, peer=peer)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 1)
        rig.now_ms += 1
        peer.send(MetadataRequest(topics=[]), 9)
        await settle()
        assert peer.is_cut


@on_loop
async def test_the_longest_session_of_the_settings_holds_for_tokens():
    async with Secured(session_max_ms=5_000) as rig:
        made = await create(await rig.user())
        _, answer = await rig.log_in_by_token(made)

        assert answer.session_lifetime_ms == 5_000


@pytest.mark.parametrize("change", ["expired", "removed", "wrong", "disabled", "without"])
@on_loop
async def test_a_login_that_no_token_proves_is_refused(change):
    async with Secured() as rig:
        alice = await rig.user()
        made = await create(alice)
        if change == "expired":
            rig.now_ms = made.expiry_timestamp_ms
        elif change == "removed":
            await expire(alice, made.hmac)
        elif change == "wrong":
            made.hmac = bytes(64)
        elif change == "disabled":
            rig.broker.delegation_tokens._secret = None
        password = base64.b64encode(bytes(made.hmac))
        peer, answer = await rig.log_in(made.token_id, password, token=change != "without")

        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "the user or the password is wrong"
        await settle()
        assert peer.is_cut


@on_loop
async def test_a_users_name_is_no_token_and_its_password_no_hmac():
    async with Secured() as rig:
        await rig.user()
        _, answer = await rig.log_in("alice", PASSWORD, token=True)

        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("change", ["removed", "shortened", "user", "requester", "renewed"])
@on_loop
async def test_sessions_end_when_their_token_does(change):
    async with Secured() as rig:
        alice, bob = await rig.user(), await rig.user("bob")
        await rig.allow("bob", Operation.CREATE_TOKENS, ResourceKind.USER, "User:alice")
        made = await create(bob, owner="alice")
        other = await create(bob)
        by_token, answer = await rig.log_in_by_token(made)
        assert not answer.error_code, answer
        stays, _ = await rig.log_in_by_token(other)
        users = rig.broker.users
        if change == "removed":
            await expire(alice, made.hmac)
        elif change == "shortened":
            await expire(alice, made.hmac, 1_000)
        elif change == "renewed":
            await renew(alice, made.hmac)
        elif change == "user":
            await rig.commit(users.plan_revoke_tokens("alice", rig.now_ms))
        else:
            await rig.commit(users.plan_delete("bob", rig.now_ms))
        await settle()

        assert by_token.is_cut == (change != "renewed")
        assert stays.is_cut == (change == "requester")


@on_loop
async def test_a_session_follows_the_token_of_its_last_login():
    async with Secured() as rig:
        alice = await rig.user()
        first, second = await create(alice), await create(alice)
        peer, _ = await rig.log_in_by_token(first)
        await rig.log_in_by_token(second, peer=peer)
        await expire(alice, first.hmac)
        await settle()
        assert not peer.is_cut

        await expire(alice, second.hmac)
        await settle()
        assert peer.is_cut
        assert not rig.gateway.authenticator._token_sessions
