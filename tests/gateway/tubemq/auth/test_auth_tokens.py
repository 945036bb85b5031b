"""Tokens that stand for a signature: of the master, at the broker, of visits."""

from __future__ import annotations

import pytest

from tests.gateway.tubemq.auth.auth_rig import (
    ALICE,
    NOW_MS,
    AuthenticationRig,
    C,
    P,
    at_broker,
    blanks,
    with_token,
)
from trilogue.broker.access.authorizer import ANONYMOUS
from trilogue.broker.access.users import User
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.tubemq.auth.auth_tokens import VISIT_MS, AuthTokens
from trilogue.gateway.tubemq.auth.authentication import (
    ADMITTED_MAX,
    GRACE_MS,
    TOKEN_MS,
    AdmittedClients,
)

# -- tokens of the master


def test_the_master_gives_a_token_that_serves_instead_of_a_signature():
    gateway = AuthenticationRig()

    assert gateway.request(with_token(gateway.token())) == ALICE
    assert gateway.request(at_broker(gateway.token("c2")), "c2") == ALICE


def test_unsigned_client_gets_no_authorized_token():
    info = AuthenticationRig(frozenset()).rules.authorized_info(ANONYMOUS, "c1")

    assert info.HasField("visitAuthorizedToken")
    assert not info.HasField("authAuthorizedToken")


def test_a_token_is_of_no_use_to_another_client():
    gateway = AuthenticationRig()
    token = gateway.token("c1")

    for proof in (with_token(token), at_broker(token)):
        with pytest.raises(AuthenticationFailed):
            gateway.request(proof, "c2")


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_a_token_that_was_touched_is_refused(at):
    gateway = AuthenticationRig()
    token = gateway.token()
    at %= len(token)
    other = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]

    with pytest.raises(AuthenticationFailed):
        gateway.request(with_token(other))


@pytest.mark.parametrize("token", ["x", "...", "a.b.c.d", "ä.1.b.c", "x" * 5_000, "1 2 3"])
def test_foreign_token_is_refused(token):
    gateway = AuthenticationRig()

    for proof in (with_token(token), at_broker(token)):
        with pytest.raises(AuthenticationFailed):
            gateway.request(proof)


def test_tokens_outlive_a_restart_with_the_same_secret_and_no_other():
    gateway = AuthenticationRig()
    token = gateway.token()

    gateway.rules = gateway.again()
    assert gateway.request(with_token(token)) == ALICE
    gateway.rules = gateway.again(key=b"other")
    with pytest.raises(AuthenticationFailed):
        gateway.request(with_token(token), peer=AdmittedClients())


def test_another_password_ends_tokens_and_what_connections_remember():
    gateway = AuthenticationRig()
    token = gateway.token()
    gateway.request(at_broker(token))
    assert gateway.request(None) == ALICE

    gateway.change_password("alice", b"new")
    for proof in (with_token(token), at_broker(token), None):
        with pytest.raises(AuthenticationFailed):
            gateway.request(proof)


def test_deleted_user_is_refused_at_once():
    gateway = AuthenticationRig()
    token = gateway.token()
    gateway.request(with_token(token))

    gateway.delete_user("alice")
    for proof in (with_token(token), at_broker(token), None):
        with pytest.raises(AuthenticationFailed):
            gateway.request(proof)


def test_a_token_is_renewed_with_every_heartbeat():
    gateway = AuthenticationRig()
    token = gateway.token()
    for _ in range(10):
        gateway.now_ms += TOKEN_MS - 1
        assert gateway.request(with_token(token)) == ALICE
        assert not gateway.rules.needs_signature(P, gateway.peer, "c1", with_token(token))
        token = gateway.rules.authorized_info(ALICE, "c1").authAuthorizedToken


def test_expired_token_is_accepted_once_to_request_a_signature():
    gateway = AuthenticationRig()
    token = with_token(gateway.token())
    gateway.now_ms += TOKEN_MS

    assert gateway.request(token) == ALICE
    assert gateway.rules.needs_signature(P, gateway.peer, "c1", token)
    assert not gateway.rules.authorized_info(ALICE, "c1").HasField("authAuthorizedToken")
    with pytest.raises(AuthenticationFailed):
        gateway.request(at_broker(token.authorizedToken), peer=AdmittedClients())
    signed = gateway.signed()
    gateway.request(signed)
    assert not gateway.rules.needs_signature(P, gateway.peer, "c1", signed)
    assert gateway.rules.authorized_info(ALICE, "c1").HasField("authAuthorizedToken")


def test_long_after_its_end_a_token_is_nothing():
    gateway = AuthenticationRig()
    token = with_token(gateway.token())
    gateway.now_ms += TOKEN_MS + GRACE_MS

    with pytest.raises(AuthenticationFailed):
        gateway.request(token)


# -- at the broker


def test_consumers_sign_in_a_text_with_blanks_and_are_known_on_that_connection():
    gateway = AuthenticationRig()

    assert gateway.request(blanks(gateway), role=C) == ALICE
    assert gateway.request(None, role=C) == ALICE
    assert gateway.request(at_broker(), role=C) == ALICE
    for client, peer in (("c2", gateway.peer), ("c1", AdmittedClients())):
        with pytest.raises(AuthenticationFailed):
            gateway.request(None, client, role=C, peer=peer)


def test_consumers_are_required_to_sign_again_before_expiry():
    gateway = AuthenticationRig()
    assert gateway.rules.needs_signature(C, gateway.peer, "c1", at_broker())
    gateway.request(blanks(gateway), role=C)
    assert not gateway.rules.needs_signature(C, gateway.peer, "c1", at_broker())

    gateway.now_ms += TOKEN_MS // 2
    assert gateway.rules.needs_signature(C, gateway.peer, "c1", at_broker())
    gateway.request(blanks(gateway), role=C)
    gateway.now_ms += TOKEN_MS
    with pytest.raises(AuthenticationFailed):
        gateway.request(None, role=C)


def test_a_signature_for_the_master_is_none_for_the_broker_as_well():
    gateway = AuthenticationRig()
    gateway.request(gateway.signed(nonce=9))

    with pytest.raises(AuthenticationFailed, match="before"):
        gateway.request(blanks(gateway, nonce=9), role=C)


@pytest.mark.parametrize("text", ["alice", "alice 1 2", "alice x 2 s", "alice 1 2 3 4", "  ", " "])
def test_a_text_that_is_no_signature_is_refused(text):
    with pytest.raises(AuthenticationFailed):
        AuthenticationRig().request(at_broker(text), role=C)


def test_a_connection_remembers_only_so_many_clients():
    gateway = AuthenticationRig()
    for number in range(ADMITTED_MAX + 1):
        gateway.request(blanks(gateway, nonce=number), f"c{number}", role=C)

    assert len(gateway.peer.admitted) == ADMITTED_MAX
    with pytest.raises(AuthenticationFailed):
        gateway.request(None, "c0", role=C)


def test_visit_token_of_a_client_known_at_the_master_is_accepted_by_the_broker():
    """Java's consumer sends no more than that."""
    gateway = AuthenticationRig()
    gateway.request(gateway.signed(), role=C)
    visit = gateway.rules.authorized_info(ALICE, "c1").visitAuthorizedToken
    at_other = AdmittedClients()

    assert gateway.request(at_broker(visit=visit), role=C, peer=at_other) == ALICE
    assert gateway.request(None, role=C, peer=at_other) == ALICE


@pytest.mark.parametrize("how", ["other client", "other role", "no user", "guess", "late", "gone"])
def test_but_no_other_one_does(how):
    gateway = AuthenticationRig()
    gateway.request(gateway.signed(), role=C)
    visit = gateway.rules.authorized_info(ALICE, "c1").visitAuthorizedToken
    if how == "no user":
        visit = gateway.rules.authorized_info(ANONYMOUS, "c1").visitAuthorizedToken
    if how == "guess":
        visit += 1
    if how == "late":
        gateway.now_ms += TOKEN_MS
    if how == "gone":
        gateway.delete_user("alice")

    with pytest.raises(AuthenticationFailed):
        gateway.request(
            at_broker(visit=visit),
            "c2" if how == "other client" else "c1",
            role=P if how == "other role" else C,
            peer=AdmittedClients(),
        )


def test_a_visit_token_of_another_nodes_master_names_the_user():
    """Nodes have one key, and the users; the node of the broker did not see the client sign."""
    master = AuthenticationRig()
    master.request(master.signed(), role=C)
    visit = master.rules.authorized_info(ALICE, "c1").visitAuthorizedToken
    broker = AuthenticationRig()
    broker.users = master.users
    broker.rules = broker.again()

    assert broker.request(at_broker(visit=visit), role=C) == ALICE
    assert broker.request(None, role=C) == ALICE
    refused = [
        ("c2", C, visit),
        ("c1", P, visit),
        ("c1", C, visit + 1),
    ]
    for client, role, token in refused:
        with pytest.raises(AuthenticationFailed):
            broker.request(at_broker(visit=token), client, role=role, peer=AdmittedClients())


@pytest.mark.parametrize("how", ["late", "another password", "gone"])
def test_such_a_token_ends_with_its_time_and_with_each_change_of_the_user(how):
    master = AuthenticationRig()
    master.request(master.signed(), role=C)
    visit = master.rules.authorized_info(ALICE, "c1").visitAuthorizedToken
    broker = AuthenticationRig()
    broker.users = master.users
    broker.rules = broker.again()
    if how == "late":
        broker.now_ms += TOKEN_MS
    if how == "another password":
        master.change_password("alice", b"a new one")
    if how == "gone":
        master.delete_user("alice")

    with pytest.raises(AuthenticationFailed):
        broker.request(at_broker(visit=visit), role=C)


def test_heartbeats_keep_clients_admitted_by_a_visit_token():
    gateway, broker = AuthenticationRig(), AdmittedClients()
    master = gateway.signed()
    for _ in range(20):
        gateway.request(master, role=C)
        info = gateway.rules.authorized_info(ALICE, "c1")
        master = with_token(info.authAuthorizedToken)
        gateway.request(at_broker(visit=info.visitAuthorizedToken), role=C, peer=broker)
        assert gateway.request(None, role=C, peer=broker) == ALICE
        gateway.now_ms += 60_000


# -- visit tokens


def test_the_visit_token_changes_every_five_minutes_and_the_last_three_are_good():
    gateway = AuthenticationRig(frozenset(), checks_visit=True)
    first = gateway.rules.tokens.visit_token("c1")
    assert 0 <= first < 1 << 63
    for _ in range(2):
        gateway.now_ms += VISIT_MS
        assert gateway.rules.tokens.visit_token("c1") != first
        gateway.request(at_broker(visit=first))

    gateway.now_ms += VISIT_MS
    with pytest.raises(AuthenticationFailed, match="Visit Authorized Token is invalid!"):
        gateway.request(at_broker(visit=first))


def test_visit_tokens_are_looked_at_only_where_they_are_checked():
    gateway = AuthenticationRig(frozenset())

    assert gateway.request(at_broker(visit=12)) == ANONYMOUS
    gateway.rules.tokens.check_visit(12, "c1")


def test_a_good_token_does_not_stand_in_for_the_visit_token_where_both_are_requested():
    gateway = AuthenticationRig(checks_visit=True)
    token = gateway.token()
    visit = gateway.rules.authorized_info(ALICE, "c1").visitAuthorizedToken

    assert gateway.request(at_broker(token, visit)) == ALICE
    with pytest.raises(AuthenticationFailed, match="Visit"):
        gateway.request(at_broker(token, visit + 1))


def test_visit_tokens_are_the_same_after_a_restart_and_another_for_each_client():
    def visit(key, client="c1", user=None):
        return AuthTokens(key, lambda: NOW_MS, checks_visit=True).visit_token(client, user)

    assert visit(b"a") == visit(b"a")
    assert (
        len({visit(b"a"), visit(b"b"), visit(b"a", "c2"), visit(b"a", "c1", User("alice", 1))}) == 4
    )


@pytest.mark.parametrize("client", ["\0c1", "c1\0c1", "\0"])
def test_no_client_id_makes_a_token_that_another_could_have_been_given(client):
    """Ids may contain any characters, also the separators of the signed text."""
    tokens = AuthTokens(b"k" * 32, lambda: NOW_MS, checks_visit=True)
    response, _, mac = tokens.issue_authorized_token(
        User("alice", 1), client, NOW_MS + 1
    ).rpartition(".")
    moved, _, rest = client.rpartition("\0")

    assert tokens.parse_authorized_token(f"{response}.{mac}", client) is not None
    assert tokens.parse_authorized_token(f"{response}\0{moved}.{mac}", rest) is None
