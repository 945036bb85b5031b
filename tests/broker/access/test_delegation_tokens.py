"""Delegation tokens (KIP-48): what is stored, how long they live, how many there may be."""

from __future__ import annotations

import base64
import hmac

import pytest

from tests.broker.access.test_users import Client
from tests.broker.topics.test_namespaces import House
from trilogue.broker.access import delegation_tokens as module
from trilogue.broker.access.authorizer import Principal
from trilogue.broker.access.delegation_tokens import (
    DAY_MS,
    PREFIX,
    DelegationTokenLimits,
    DelegationTokens,
)
from trilogue.broker.access.scram import HASHES, ScramExchange, ScramShape, imagine_verifier
from trilogue.broker.access.users import User
from trilogue.broker.errors import (
    AuthenticationFailed,
    ConcurrentChange,
    InUse,
    InvalidRequest,
)
from trilogue.log.errors import CorruptLog

ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
SECRET = b"the secret of the node"
NOW_MS = 1_700_000_000_000


class Tokens:
    """The tokens of a broker whose metadata is in memory."""

    def __init__(self, **limits):
        self.house = House()
        self.store = self.house.broker.delegation_tokens
        self.store.enable(lambda: SECRET, DelegationTokenLimits(**limits))
        self.removed = []
        self.store.listeners.append(self.removed.append)

    def create(self, owner=ALICE, requester=None, renewers=(), *, lifetime_ms=-1, now_ms=NOW_MS):
        token = self.store.make_token(
            owner, requester or owner, renewers, lifetime_ms=lifetime_ms, now_ms=now_ms
        )
        self.house.carry_out(self.store.plan_create(token))
        return token

    def replace(self, token):
        self.house.carry_out(self.store.plan_replace(token))

    def remove(self, *tokens):
        self.house.carry_out(self.store.plan_remove(tokens))

    def reopen(self, secret=SECRET):
        store = DelegationTokens(
            self.house.meta.state.settings, self.house.broker.users.tokens_from_ms
        )
        store.enable(lambda: secret, DelegationTokenLimits())
        return store


@pytest.fixture
def tokens():
    return Tokens()


def test_tokens_outlive_a_restart_and_their_hmacs_are_not_stored(tokens):
    token = tokens.create(renewers=[BOB, CAROL, BOB])
    digest = tokens.store.hmac_of(token.token_id)

    again = tokens.reopen()
    assert list(again) == [token]
    assert again.find_by_hmac(digest) == token
    assert token.renewers == (BOB, CAROL)
    assert digest == hmac.digest(SECRET, token.token_id.encode(), "sha512")
    stored = str(dict(tokens.house.meta.state.settings))
    assert token.token_id in stored
    assert base64.b64encode(digest).decode() not in stored
    assert digest.hex() not in stored


def test_another_secret_makes_other_hmacs(tokens):
    token = tokens.create()
    digest = tokens.store.hmac_of(token.token_id)

    again = tokens.reopen(b"another secret of the node")
    assert again.find_by_hmac(digest) is None
    assert again.find_by_hmac(again.hmac_of(token.token_id)) == token


def test_ids_are_random_and_written_as_kafka_writes_them(tokens):
    ids = {tokens.create().token_id for _ in range(100)}

    assert len(ids) == 100
    for token_id in ids:
        assert len(base64.urlsafe_b64decode(f"{token_id}==")) == 16
        assert len(token_id) == 22
        assert not token_id.startswith("-")


@pytest.mark.parametrize(
    ("lifetime_ms", "end_ms", "expires_ms"),
    [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (1, 1, 1),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (8 * DAY_MS, 7 * DAY_MS, DAY_MS),
        ((1 << 63) - 1, 7 * DAY_MS, DAY_MS),
    ],
)
def test_a_lifetime_is_bounded(tokens, lifetime_ms, end_ms, expires_ms):
    token = tokens.create(lifetime_ms=lifetime_ms)

    assert (token.end_ms - NOW_MS, token.expires_ms - NOW_MS) == (end_ms, expires_ms)


@pytest.mark.parametrize(
    ("period_ms", "now_ms", "expires_ms"),
    [
        (-1, DAY_MS // 2, DAY_MS + DAY_MS // 2),
        (10, 5, 15),
        (9 * DAY_MS, 0, DAY_MS),
        (-1, 7 * DAY_MS - 1, 7 * DAY_MS),
    ],
)
def test_a_renewal_is_bounded_by_its_period_and_by_the_end(tokens, period_ms, now_ms, expires_ms):
    renewed = tokens.store.renew(tokens.create(), period_ms, NOW_MS + now_ms)

    assert renewed.expires_ms - NOW_MS == expires_ms


def test_a_replaced_token_is_stored_and_an_earlier_expiry_is_announced(tokens):
    token = tokens.create()
    later = tokens.store.renew(token, -1, NOW_MS + 1_000)
    tokens.replace(later)
    assert tokens.removed == []

    sooner = tokens.store.expire(later, 10, NOW_MS)
    tokens.replace(sooner)
    assert tokens.removed == [token.token_id]
    assert list(tokens.reopen()) == [sooner]
    assert tokens.store.expire(later, 1 << 62, NOW_MS).expires_ms == token.end_ms


def test_owners_and_renewers_renew_and_requesters_only_see(tokens):
    token = tokens.create(ALICE, BOB, [CAROL])

    assert [each.name for each in (ALICE, BOB, CAROL, DAVE) if token.may_be_renewed_by(each)] == [
        "alice",
        "carol",
    ]
    assert token.principals == {ALICE, BOB, CAROL}


@pytest.mark.parametrize("name", ["alice", "bob"])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_token_is_gone_when_its_owners_or_requesters_tokens_are_revoked(tokens, name, is_deleted):
    users = tokens.house.broker.users
    tokens.house.carry_out(users.plan_put(User(name, 1)))
    token = tokens.create(ALICE, BOB)
    digest = tokens.store.hmac_of(token.token_id)
    plan = users.plan_delete if is_deleted else users.plan_revoke_tokens
    tokens.house.carry_out(plan(name, NOW_MS))

    assert tokens.store.find(token.token_id) is None
    assert tokens.store.find_by_hmac(digest) is None
    assert tokens.store.find_verifier(token.token_id, "SCRAM-SHA-256", NOW_MS) is None
    assert list(tokens.store) == []
    assert tokens.store.find_removable(NOW_MS) == [token]
    later = tokens.create(ALICE, BOB, now_ms=NOW_MS + 1)
    assert list(tokens.store) == [later]


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_proves_the_hmac_until_the_token_expires(tokens, mechanism):
    token = tokens.create()
    password = base64.b64encode(tokens.store.hmac_of(token.token_id))

    def log_in(client, now_ms):
        server = ScramExchange(
            mechanism,
            lambda name, _: tokens.store.find_verifier(name, mechanism, now_ms),
            imagine=lambda name, _: imagine_verifier(ScramShape(mechanism), name, b"k" * 32),
        )
        try:
            server.respond(client.final(server.respond(client.first())))
        except AuthenticationFailed:
            return False
        return server.is_done

    right = Client(mechanism, token.token_id, password)
    assert log_in(right, NOW_MS)
    assert log_in(right, token.expires_ms - 1)
    assert not log_in(right, token.expires_ms)
    assert not log_in(Client(mechanism, token.token_id, b"wrong"), NOW_MS)
    assert not log_in(Client(mechanism, "unknown", password), NOW_MS)
    tokens.remove(token)
    assert not log_in(right, NOW_MS)


def test_a_removed_token_is_gone_for_ever_and_once(tokens):
    token, other = tokens.create(), tokens.create()
    digest = tokens.store.hmac_of(token.token_id)
    assert tokens.store.find_by_hmac(digest) == token
    tokens.remove(token)
    tokens.remove(token)

    assert tokens.store.find_by_hmac(digest) is None
    assert tokens.removed == [token.token_id]
    assert list(tokens.reopen()) == [other]


def test_a_token_that_was_removed_meanwhile_does_not_come_back_by_a_renewal(tokens):
    token = tokens.create()
    renewal = tokens.store.plan_replace(tokens.store.renew(token, -1, NOW_MS + 1))
    tokens.remove(token)

    with pytest.raises(ConcurrentChange):
        tokens.house.carry_out(renewal)


def test_their_number_is_bounded_and_expired_ones_give_way():
    tokens = Tokens(tokens_max=3)
    for owner in (ALICE, BOB, CAROL):
        tokens.create(owner, lifetime_ms=1_000)
    with pytest.raises(InUse, match="3 delegation tokens"):
        tokens.create(DAVE)

    kept = tokens.create(DAVE, now_ms=NOW_MS + 1_000)
    assert list(tokens.store) == [kept]
    assert len(tokens.store) == 1
    assert len([key for key in tokens.house.meta.state.settings if key.startswith(PREFIX)]) == 1


def test_an_owner_cannot_take_the_place_of_others(tokens, monkeypatch):
    monkeypatch.setattr(module, "TOKENS_PER_OWNER_MAX", 2)
    tokens.create()
    tokens.create()
    with pytest.raises(InUse, match="an owner"):
        tokens.create()
    tokens.create(BOB)
    tokens.create(now_ms=NOW_MS + DAY_MS)


@pytest.mark.parametrize(
    "renewers",
    [
        [Principal("User", "")],
        [Principal("User", "a\nb")],
        [Principal("User", "x" * 20_000)],
        [Principal("User", f"renewer-{number}") for number in range(1_000)],
    ],
)
def test_names_are_checked_and_bounded(tokens, renewers):
    with pytest.raises(InvalidRequest):
        tokens.create(renewers=renewers)
    assert not len(tokens.store)


def test_without_a_secret_there_is_no_login(tokens):
    token = tokens.create()
    store = DelegationTokens(tokens.house.meta.state.settings)

    assert not store.is_enabled
    assert store.find_verifier(token.token_id, "SCRAM-SHA-256", NOW_MS) is None


def test_unreadable_delegation_token_raises_corrupt_log():
    with pytest.raises(CorruptLog, match="delegation token"):
        DelegationTokens({f"{PREFIX}x": "{"})
