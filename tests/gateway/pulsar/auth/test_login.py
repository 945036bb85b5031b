"""CONNECT with credentials, the fields of a proxy, and tokens that end while a client is there."""

from __future__ import annotations

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig, settle
from tests.waiting import pass_time
from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import ANY_HOST, Acl, Pattern
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import Operation, Principal, ResourceKind
from trilogue.broker.access.tokens import TokenRules, TokenValidator, read_keys
from trilogue.broker.names import NamespaceName
from trilogue.broker.topics.namespaces import Namespace
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.pulsar.gateway import PulsarGateway
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandSubscribe

SECRET = b"a secret of thirty-two bytes, or more"
KEYS = read_keys(SECRET)
ORDERS = "persistent://public/default/orders"
REFRESHING = {"feature_flags": {"supports_auth_refresh": True}}


class Secured(Rig):
    """A gateway whose clients have to log in; `anonymous` is who comes without credentials."""

    anonymous = ""

    def make_gateway(self) -> PulsarGateway:
        self.audit: list[dict[str, object]] = []
        self.rules = AclAuthorizer(self.broker.acls)
        authenticator = Authenticator(
            self.broker.users,
            audit=AuditLog(self.audit.append, lambda: self.now_ms),
            now_ms=lambda: self.now_ms,
            tokens=TokenValidator(lambda: KEYS, TokenRules(), now_ms=lambda: self.now_ms),
        )
        return PulsarGateway(
            broker=self.broker,
            log=self.log,
            write_metadata=self.commit,
            advertised=lambda: ("broker.example", 6650),
            settings=PulsarSettings(proxy_roles=frozenset({"proxy", "proxy2"})),
            authorizer=self.rules,
            authenticator=authenticator,
            requires_login=True,
            anonymous=self.anonymous,
            now_ms=lambda: self.now_ms,
            executor=self.executor,
        )

    def token(self, user: str, life_s: int | None = None) -> bytes:
        """Return a token of a user that ends in so many seconds."""
        claims: dict[str, object] = {"sub": user, "iat": self.now_ms // 1_000}
        if life_s is not None:
            claims["exp"] = self.now_ms // 1_000 + life_s
        return jwt.encode(claims, SECRET, algorithm="HS256").encode()

    def by_token(self, user: str, life_s: int | None = None) -> dict[str, object]:
        return {"auth_method_name": "token", "auth_data": self.token(user, life_s)}

    async def pass_seconds(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1_000)
        await pass_time(2.0)

    async def allow(
        self,
        user: str,
        operation: Operation = Operation.WRITE,
        *,
        kind: ResourceKind = ResourceKind.TOPIC,
        pattern: Pattern = Pattern.LITERAL,
        name: str = "public/default/orders",
    ) -> None:
        acl = Acl(kind, pattern, name, Principal("User", user), ANY_HOST, operation, True)
        await self.commit(self.broker.acls.plan_create([acl]))


async def refusal(rig: Secured, **fields: object) -> str:
    """Connect with these fields, which is refused; return the reason in the audit log."""
    peer = rig.peer()
    before = len(rig.audit)
    peer.send_command("connect", client_version="rig", protocol_version=21, **fields)
    error = await peer.answer("error")
    assert error.error == ServerError.AuthenticationError
    assert peer.is_cut
    assert len(rig.audit) == before + 1
    return str(rig.audit[-1]["reason"])


def test_credentials_decide_and_other_methods_are_refused():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            assert "needed" in await refusal(rig)
            assert "needed" in await refusal(rig, auth_method_name="none", auth_data=b"none")
            assert "not served" in await refusal(rig, auth_method_name="athenz")
            assert "no text" in await refusal(rig, auth_method_name="token", auth_data=b"\xff")
            nested = b"e30." * 2 + b"x"
            assert "not valid" in await refusal(rig, auth_method_name="token", auth_data=nested)
            peer = await rig.connected(**rig.by_token("alice"))
            assert peer.connection.principal.name == "alice"

    scenario()


def test_without_credentials_a_client_is_the_anonymous_user_where_there_is_one():
    @on_loop
    async def scenario():
        rig = Secured()
        rig.anonymous = "guest"
        async with rig:
            for method in ("none", "athenz"):  # as a real broker does for methods it does not have
                peer = await rig.connected(auth_method_name=method)
                assert peer.connection.principal.name == "guest"
            await refusal(rig, auth_method_name="token", auth_data=b"wrong")

    scenario()


@pytest.mark.parametrize(
    ("user", "fields"),
    [
        ("alice", {"original_principal": "bob"}),
        ("alice", {"proxy_version": "4"}),
        ("alice", {"original_auth_method": "token"}),
        ("proxy", {}),
        ("proxy", {"original_principal": "proxy"}),
        ("proxy", {"original_principal": "proxy2"}),
        ("proxy", {"original_auth_method": "token", "original_auth_data": "wrong"}),
        ("proxy", {"original_auth_data": ""}),
    ],
)
def test_the_fields_of_a_proxy_are_refused(user, fields):
    @on_loop
    async def scenario():
        async with Secured() as rig:
            await refusal(rig, **rig.by_token(user), **fields)

    scenario()


def test_a_client_behind_a_proxy_may_do_what_both_may():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            rig.topic(ORDERS)
            await rig.allow("alice")
            peer = await rig.connected(**rig.by_token("proxy"), original_principal="alice")
            assert peer.connection.principal.name == "alice"
            refused = await peer.request("producer", "error", topic=ORDERS, producer_id=1)
            assert refused.error == ServerError.AuthorizationError

            await rig.allow("proxy")
            await peer.producer(ORDERS)
            other = await rig.connected(**rig.by_token("proxy"), original_principal="bob")
            refused = await other.request("producer", "error", topic=ORDERS, producer_id=1)
            assert refused.error == ServerError.AuthorizationError

    scenario()


def test_the_credentials_behind_a_proxy_are_checked():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            behind = {
                "original_auth_method": "token",
                "original_auth_data": rig.token("alice").decode(),
            }
            peer = await rig.connected(**rig.by_token("proxy"), **behind)
            assert peer.connection.principal.name == "alice"
            reason = await refusal(rig, **rig.by_token("proxy"), **behind, original_principal="bob")
            assert "not that" in reason

    scenario()


def test_a_client_that_cannot_renew_its_token_is_cut_at_its_end():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            peer = await rig.connected(**rig.by_token("alice", 60))
            await rig.pass_seconds(57)
            assert not peer.is_cut
            await rig.pass_seconds(3)
            assert peer.is_cut

    scenario()


def test_a_token_is_renewed_before_it_ends():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            peer = await rig.connected(**rig.by_token("alice", 60), **REFRESHING)
            await rig.pass_seconds(52)
            challenge = await peer.answer("authChallenge")
            assert challenge.challenge.auth_method_name == "token"
            assert challenge.challenge.auth_data == b"PulsarAuthRefresh"
            peer.send_command("authResponse", response=rig.by_token("alice", 60))
            await rig.pass_seconds(20)
            assert not peer.is_cut
            assert peer.answered == 0

    scenario()


def test_the_old_token_again_is_challenged_once_more_at_its_end():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            old = rig.by_token("alice", 60)
            peer = await rig.connected(**old, **REFRESHING)
            for seconds in (52, 8):
                await rig.pass_seconds(seconds)
                await peer.answer("authChallenge")
                assert not peer.is_cut
                peer.send_command("authResponse", response=old)
                await settle()
            await rig.pass_seconds(1)
            assert peer.is_cut

    scenario()


@pytest.mark.parametrize("answer", ["another user", "another method", "wrong", "none"])
def test_a_wrong_answer_to_a_challenge_ends_the_session(answer):
    @on_loop
    async def scenario():
        async with Secured() as rig:
            peer = await rig.connected(**rig.by_token("alice", 60), **REFRESHING)
            await rig.pass_seconds(60)
            await peer.answer("authChallenge")
            answers = {
                "another user": rig.by_token("bob", 60),
                "another method": {"auth_method_name": "basic", "auth_data": b"alice:x"},
                "wrong": {"auth_method_name": "token", "auth_data": b"wrong"},
            }
            if answer in answers:
                peer.send_command("authResponse", response=answers[answer])
                error = await peer.answer("error")
                assert error.error == ServerError.AuthenticationError
            else:
                await rig.pass_seconds(5)
            assert peer.is_cut

    scenario()


def test_an_answer_without_a_challenge_ends_the_connection():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            peer = await rig.connected(**rig.by_token("alice"))
            peer.send_command("authResponse", response=rig.by_token("alice"))
            assert peer.is_cut

    scenario()


@settings(max_examples=100, deadline=None)
@given(
    method=st.sampled_from(["token", "basic", "none", "tls", "oauth2", ""]) | st.text(max_size=30),
    data=st.binary(max_size=60),
    original=st.text(max_size=10),
    original_data=st.text(max_size=30),
)
def test_random_credentials_are_refused(method, data, original, original_data):
    @on_loop
    async def scenario():
        async with Secured() as rig:
            await refusal(
                rig,
                auth_method_name=method,
                auth_data=data,
                original_principal=original,
                original_auth_data=original_data,
            )

    scenario()


def test_a_subscription_has_the_role_before_its_name_where_it_must():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            rig.topic("orders")
            for user in ("alice", "ops"):
                await rig.allow(user, Operation.READ)
            whole = {"pattern": Pattern.PREFIXED, "name": "public/default/"}
            await rig.allow("ops", Operation.ALTER, **whole)
            await rig.policies("public/default", subscriptionAuthMode="Prefix")
            alice = await rig.connected(**rig.by_token("alice"))
            ops = await rig.connected(**rig.by_token("ops"))

            refused = await subscribe(alice, "billing", "error")
            assert refused.error == ServerError.AuthorizationError
            assert rig.audit[-1]["resource"] == "group billing"
            await subscribe(alice, "alice-billing", "success")
            await subscribe(ops, "billing", "success")

            await rig.policies("public/default", subscriptionAuthMode="None")
            await subscribe(alice, "billing", "success")

    scenario()


def test_a_subscription_with_roles_is_for_them():
    @on_loop
    async def scenario():
        async with Secured() as rig:
            rig.topic("orders")
            for user in ("alice", "bob"):
                await rig.allow(user, Operation.READ)
            namespaces, name = rig.broker.namespaces, NamespaceName("public", "default")
            roles = {"billing": ["bob"]}
            await rig.commit(namespaces.plan_alter(name, Namespace(subscription_roles=roles)))
            alice = await rig.connected(**rig.by_token("alice"))
            bob = await rig.connected(**rig.by_token("bob"))

            refused = await subscribe(alice, "billing", "error")
            assert refused.error == ServerError.AuthorizationError
            await subscribe(alice, "other", "success")
            await subscribe(bob, "billing", "success")

    scenario()


async def subscribe(peer, subscription: str, answer: str):
    consumer_id = peer.number()
    return await peer.request(
        "subscribe",
        answer,
        topic=ORDERS,
        subscription=subscription,
        consumer_id=consumer_id,
        subType=CommandSubscribe.Shared,
    )
