"""Signatures and tokens: what proves who a client is, and everything that does not."""

from __future__ import annotations

import pytest

from trilogue.broker.access import ANONYMOUS, Principal
from trilogue.broker.credentials import Users
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.tubemq import authentication
from trilogue.gateway.tubemq.authentication import (
    ADMITTED_MAX,
    BOTH,
    GRACE_MS,
    TOKEN_MS,
    WINDOW_MS,
    Authentication,
    AuthenticationSettings,
    Peer,
    Role,
    signature,
)
from trilogue.gateway.tubemq.tokens import VISIT_MS, Tokens
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo
from trilogue.wire.tubemq.master_pb2 import AuthenticateInfo, MasterCertificateInfo

NOW_MS = 1_795_262_482_479
ALICE = Principal("user", "alice")
P, C = Role.PRODUCER, Role.CONSUMER


class Door:
    """An authentication with a clock of its own and passwords that can change."""

    def __init__(self, roles: frozenset[Role] = BOTH, *, checks_visit: bool = False) -> None:
        self.now_ms = NOW_MS
        self.nonce = 1_000
        self.passwords = {"alice": b"wonder+land/=", "bob": b"other"}
        self.peer = Peer()
        self.rules = self.again(roles, checks_visit=checks_visit)

    def again(
        self, roles: frozenset[Role] = BOTH, *, checks_visit: bool = False, key: bytes = b"k" * 32
    ) -> Authentication:
        users = Users()
        users._secrets = self.passwords
        return Authentication(
            AuthenticationSettings(roles, checks_visit), users, key=key, now_ms=lambda: self.now_ms
        )

    def ask(self, certificate, client="c1", *, role=P, peer=None) -> Principal:
        return self.rules.authenticate(role, peer or self.peer, client, certificate)

    def signed(self, user="alice", *, password=None, after_ms=0, nonce=7) -> MasterCertificateInfo:
        time_ms = self.now_ms + after_ms
        secret = password or self.passwords.get(user, b"-")
        return certificate(user, time_ms, nonce, signature(user, secret, time_ms, nonce))

    def token(self, client="c1") -> str:
        self.nonce += 1
        self.ask(self.signed(nonce=self.nonce), client, peer=Peer())
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


# -- signatures


def test_the_signature_is_that_of_the_java_client():
    """TStringUtils.getAuthSignature of the Java client 1.13.0 said this."""
    assert signature("alice", b"wonder+land/=", 1795262482479, 1717) == (
        "S8iyenX4IXz5osv0HSYAbVLeZu4%3D"
    )


def test_a_good_signature_is_who_it_says():
    door = Door()

    assert door.ask(door.signed()) == ALICE


def test_nobody_is_asked_where_authentication_is_off():
    door = Door(frozenset())

    assert door.ask(None) == ANONYMOUS
    assert door.ask(door.signed(password=b"wrong")) == ANONYMOUS
    assert not door.rules.require_auth(P, door.peer, "c1", None)


def test_producers_and_consumers_are_asked_each_for_themselves():
    door = Door(frozenset({P}))

    assert door.ask(None, role=C) == ANONYMOUS
    with pytest.raises(AuthenticationFailed):
        door.ask(None, role=P)


def test_an_unknown_user_is_refused_in_the_words_of_a_wrong_password():
    door = Door()
    with pytest.raises(AuthenticationFailed) as wrong:
        door.ask(door.signed(password=b"wrong"))
    with pytest.raises(AuthenticationFailed) as unknown:
        door.ask(door.signed("carol"))

    assert str(wrong.value) == str(unknown.value)
    assert door.rules.refused == 2


def test_refusals_are_said_in_the_log_once_a_second_and_with_their_number(caplog):
    door = Door()
    for _ in range(3):
        with pytest.raises(AuthenticationFailed):
            door.ask(door.signed(password=b"wrong"))
    door.now_ms += 1_000
    with pytest.raises(AuthenticationFailed):
        door.ask(None)

    assert [record.refused for record in caplog.records] == [1, 4]
    assert "wrong" not in str([record.__dict__ for record in caplog.records]).replace(
        "the user name or the signature is wrong", ""
    )


@pytest.mark.parametrize("after_ms", [-WINDOW_MS, WINDOW_MS])
def test_a_signature_may_be_twenty_seconds_off(after_ms):
    door = Door()

    assert door.ask(door.signed(after_ms=after_ms)) == ALICE


@pytest.mark.parametrize("after_ms", [-WINDOW_MS - 1, WINDOW_MS + 1, -(1 << 40), 1 << 40])
def test_but_not_more(after_ms):
    door = Door()

    with pytest.raises(AuthenticationFailed, match="time"):
        door.ask(door.signed(after_ms=after_ms))


@pytest.mark.parametrize("wait_ms", [0, WINDOW_MS, 2 * WINDOW_MS])
def test_a_signature_is_good_for_once(wait_ms):
    door = Door()
    signed = door.signed(after_ms=WINDOW_MS)
    door.ask(signed)

    door.now_ms += wait_ms
    with pytest.raises(AuthenticationFailed, match="before"):
        door.ask(signed, "c2")


def test_signatures_that_are_over_are_not_kept(monkeypatch):
    monkeypatch.setattr(authentication, "SIGNATURES_MAX", 2)
    door = Door()
    door.ask(door.signed(nonce=1))
    door.ask(door.signed(nonce=2))
    with pytest.raises(AuthenticationFailed, match="too many"):
        door.ask(door.signed(nonce=3))

    door.now_ms += 2 * WINDOW_MS + 1
    assert door.ask(door.signed(nonce=3)) == ALICE


@pytest.mark.parametrize(
    "bad",
    [
        None,
        MasterCertificateInfo(),
        certificate("", NOW_MS, 1, "x"),
        certificate("alice", NOW_MS, 1, ""),
        certificate("alice", NOW_MS, 1, "x" * 129),
        certificate("a" * 129, NOW_MS, 1, "x"),
        certificate("alice", NOW_MS, 1, "ÄÖÜ"),
        certificate("alice", NOW_MS, -1, signature("alice", b"wonder+land/=", NOW_MS, 1)),
    ],
)
def test_what_is_no_proof_is_refused(bad):
    with pytest.raises(AuthenticationFailed):
        Door().ask(bad)


# -- tokens of the master


def test_the_master_gives_a_token_that_serves_instead_of_a_signature():
    door = Door()

    assert door.ask(with_token(door.token())) == ALICE
    assert door.ask(at_broker(door.token("c2")), "c2") == ALICE


def test_nobody_gets_such_a_token_without_having_signed():
    info = Door(frozenset()).rules.authorized_info(ANONYMOUS, "c1")

    assert info.HasField("visitAuthorizedToken")
    assert not info.HasField("authAuthorizedToken")


def test_a_token_is_of_no_use_to_another_client():
    door = Door()
    token = door.token("c1")

    for proof in (with_token(token), at_broker(token)):
        with pytest.raises(AuthenticationFailed):
            door.ask(proof, "c2")


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_a_token_that_was_touched_is_refused(at):
    door = Door()
    token = door.token()
    at %= len(token)
    other = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]

    with pytest.raises(AuthenticationFailed):
        door.ask(with_token(other))


@pytest.mark.parametrize("token", ["x", "...", "a.b.c.d", "ä.1.b.c", "x" * 5_000, "1 2 3"])
def test_what_is_no_token_of_ours_is_refused(token):
    door = Door()

    for proof in (with_token(token), at_broker(token)):
        with pytest.raises(AuthenticationFailed):
            door.ask(proof)


def test_tokens_outlive_a_restart_with_the_same_secret_and_no_other():
    door = Door()
    token = door.token()

    door.rules = door.again()
    assert door.ask(with_token(token)) == ALICE
    door.rules = door.again(key=b"other")
    with pytest.raises(AuthenticationFailed):
        door.ask(with_token(token), peer=Peer())


def test_another_password_ends_tokens_and_what_connections_remember():
    door = Door()
    token = door.token()
    door.ask(at_broker(token))
    assert door.ask(None) == ALICE

    door.passwords["alice"] = b"new"
    for proof in (with_token(token), at_broker(token), None):
        with pytest.raises(AuthenticationFailed):
            door.ask(proof)


def test_who_is_no_user_any_more_is_out_at_once():
    door = Door()
    token = door.token()
    door.ask(with_token(token))

    del door.passwords["alice"]
    for proof in (with_token(token), at_broker(token), None):
        with pytest.raises(AuthenticationFailed):
            door.ask(proof)


def test_a_token_is_renewed_with_every_heartbeat():
    door = Door()
    token = door.token()
    for _ in range(10):
        door.now_ms += TOKEN_MS - 1
        assert door.ask(with_token(token)) == ALICE
        assert not door.rules.require_auth(P, door.peer, "c1", with_token(token))
        token = door.rules.authorized_info(ALICE, "c1").authAuthorizedToken


def test_a_token_that_is_over_serves_once_more_to_be_told_to_sign_and_gets_no_new_one():
    door = Door()
    token = with_token(door.token())
    door.now_ms += TOKEN_MS

    assert door.ask(token) == ALICE
    assert door.rules.require_auth(P, door.peer, "c1", token)
    assert not door.rules.authorized_info(ALICE, "c1").HasField("authAuthorizedToken")
    with pytest.raises(AuthenticationFailed):
        door.ask(at_broker(token.authorizedToken), peer=Peer())
    signed = door.signed()
    door.ask(signed)
    assert not door.rules.require_auth(P, door.peer, "c1", signed)
    assert door.rules.authorized_info(ALICE, "c1").HasField("authAuthorizedToken")


def test_long_after_its_end_a_token_is_nothing():
    door = Door()
    token = with_token(door.token())
    door.now_ms += TOKEN_MS + GRACE_MS

    with pytest.raises(AuthenticationFailed):
        door.ask(token)


# -- at the broker


def blanks(door: Door, user="alice", *, nonce=9, password=None) -> AuthorizedInfo:
    secret = password or door.passwords[user]
    signed = signature(user, secret, door.now_ms, nonce)
    return at_broker(f"{user} {door.now_ms} {nonce} {signed}")


def test_consumers_sign_in_a_text_with_blanks_and_are_known_on_that_connection():
    door = Door()

    assert door.ask(blanks(door), role=C) == ALICE
    assert door.ask(None, role=C) == ALICE
    assert door.ask(at_broker(), role=C) == ALICE
    for client, peer in (("c2", door.peer), ("c1", Peer())):
        with pytest.raises(AuthenticationFailed):
            door.ask(None, client, role=C, peer=peer)


def test_consumers_are_asked_to_sign_again_in_time():
    door = Door()
    assert door.rules.require_auth(C, door.peer, "c1", at_broker())
    door.ask(blanks(door), role=C)
    assert not door.rules.require_auth(C, door.peer, "c1", at_broker())

    door.now_ms += TOKEN_MS // 2
    assert door.rules.require_auth(C, door.peer, "c1", at_broker())
    door.ask(blanks(door), role=C)
    door.now_ms += TOKEN_MS
    with pytest.raises(AuthenticationFailed):
        door.ask(None, role=C)


def test_a_signature_for_the_master_is_none_for_the_broker_as_well():
    door = Door()
    door.ask(door.signed(nonce=9))

    with pytest.raises(AuthenticationFailed, match="before"):
        door.ask(blanks(door, nonce=9), role=C)


@pytest.mark.parametrize("text", ["alice", "alice 1 2", "alice x 2 s", "alice 1 2 3 4", "  ", " "])
def test_a_text_that_is_no_signature_is_refused(text):
    with pytest.raises(AuthenticationFailed):
        Door().ask(at_broker(text), role=C)


def test_a_connection_remembers_only_so_many_clients():
    door = Door()
    for number in range(ADMITTED_MAX + 1):
        door.ask(blanks(door, nonce=number), f"c{number}", role=C)

    assert len(door.peer.admitted) == ADMITTED_MAX
    with pytest.raises(AuthenticationFailed):
        door.ask(None, "c0", role=C)


def test_a_visit_token_of_who_is_known_at_the_master_admits_at_the_broker():
    """Java's consumer brings no more than that."""
    door = Door()
    door.ask(door.signed(), role=C)
    visit = door.rules.authorized_info(ALICE, "c1").visitAuthorizedToken
    at_other = Peer()

    assert door.ask(at_broker(visit=visit), role=C, peer=at_other) == ALICE
    assert door.ask(None, role=C, peer=at_other) == ALICE


@pytest.mark.parametrize("how", ["other client", "other role", "no user", "guess", "late", "gone"])
def test_but_no_other_one_does(how):
    door = Door()
    door.ask(door.signed(), role=C)
    visit = door.rules.authorized_info(ALICE, "c1").visitAuthorizedToken
    if how == "no user":
        visit = door.rules.authorized_info(ANONYMOUS, "c1").visitAuthorizedToken
    if how == "guess":
        visit += 1
    if how == "late":
        door.now_ms += TOKEN_MS
    if how == "gone":
        del door.passwords["alice"]

    with pytest.raises(AuthenticationFailed):
        door.ask(
            at_broker(visit=visit),
            "c2" if how == "other client" else "c1",
            role=P if how == "other role" else C,
            peer=Peer(),
        )


def test_heartbeats_keep_who_was_admitted_by_a_visit_token():
    door, broker = Door(), Peer()
    master = door.signed()
    for _ in range(20):
        door.ask(master, role=C)
        info = door.rules.authorized_info(ALICE, "c1")
        master = with_token(info.authAuthorizedToken)
        door.ask(at_broker(visit=info.visitAuthorizedToken), role=C, peer=broker)
        assert door.ask(None, role=C, peer=broker) == ALICE
        door.now_ms += 60_000


# -- visit tokens


def test_the_visit_token_changes_every_five_minutes_and_the_last_three_are_good():
    door = Door(frozenset(), checks_visit=True)
    first = door.rules.tokens.visit("c1")
    assert 0 <= first < 1 << 63
    for _ in range(2):
        door.now_ms += VISIT_MS
        assert door.rules.tokens.visit("c1") != first
        door.ask(at_broker(visit=first))

    door.now_ms += VISIT_MS
    with pytest.raises(AuthenticationFailed, match="Visit Authorized Token is invalid!"):
        door.ask(at_broker(visit=first))


def test_visit_tokens_are_looked_at_only_where_they_are_checked():
    door = Door(frozenset())

    assert door.ask(at_broker(visit=12)) == ANONYMOUS
    door.rules.tokens.check_visit(12, "c1")


def test_a_good_token_does_not_stand_in_for_the_visit_token_where_both_are_asked_for():
    door = Door(checks_visit=True)
    token = door.token()
    visit = door.rules.authorized_info(ALICE, "c1").visitAuthorizedToken

    assert door.ask(at_broker(token, visit)) == ALICE
    with pytest.raises(AuthenticationFailed, match="Visit"):
        door.ask(at_broker(token, visit + 1))


def test_visit_tokens_are_the_same_after_a_restart_and_another_for_each_client():
    def visit(key, client="c1", user=""):
        return Tokens(key, lambda: NOW_MS, checks_visit=True).visit(client, user)

    assert visit(b"a") == visit(b"a")
    assert len({visit(b"a"), visit(b"b"), visit(b"a", "c2"), visit(b"a", "c1", "alice")}) == 4


@pytest.mark.parametrize("client", ["\0c1", "c1\0c1", "\0"])
def test_no_client_id_makes_a_token_that_another_could_have_been_given(client):
    """Ids may have any characters, those too that stand between what is signed."""
    tokens = Tokens(b"k" * 32, lambda: NOW_MS, checks_visit=True)
    said, _, mac = tokens.issue("alice", client, b"secret", NOW_MS + 1).rpartition(".")
    moved, _, rest = client.rpartition("\0")

    assert tokens.read(f"{said}.{mac}", client) is not None
    assert tokens.read(f"{said}\0{moved}.{mac}", rest) is None
