"""Signatures and tokens: what authenticates a client, and what does not."""

from __future__ import annotations

import pytest

from tests.gateway.tubemq.rig import SIGNING_KEY, put_users
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import ANONYMOUS, Principal
from trilogue.broker.access.passwords import decrypt_password
from trilogue.broker.access.users import User, Users
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway import authentication as login
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.tubemq import authentication
from trilogue.gateway.tubemq.auth_tokens import VISIT_MS, AuthTokens
from trilogue.gateway.tubemq.authentication import (
    ADMITTED_MAX,
    ALL_ROLES,
    GRACE_MS,
    SIGNATURE_WINDOW_MS,
    TOKEN_MS,
    AdmittedClients,
    Authentication,
    AuthenticationSettings,
    Role,
    signature,
)
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo
from trilogue.wire.tubemq.master_pb2 import AuthenticateInfo, MasterCertificateInfo

NOW_MS = 1_795_262_482_479
ALICE = Principal("User", "alice")
P, C = Role.PRODUCER, Role.CONSUMER


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


# -- signatures


def test_the_signature_is_that_of_the_java_client():
    """Computed by TStringUtils.getAuthSignature of the Java client 1.13.0."""
    assert signature("alice", b"wonder+land/=", 1795262482479, 1717) == (
        "S8iyenX4IXz5osv0HSYAbVLeZu4%3D"
    )


def test_a_good_signature_is_who_it_says():
    gateway = AuthenticationRig()

    assert gateway.request(gateway.signed()) == ALICE


def test_nobody_is_asked_where_authentication_is_off():
    gateway = AuthenticationRig(frozenset())

    assert gateway.request(None) == ANONYMOUS
    assert gateway.request(gateway.signed(password=b"wrong")) == ANONYMOUS
    assert not gateway.rules.needs_signature(P, gateway.peer, "c1", None)


def test_producers_and_consumers_are_asked_each_for_themselves():
    gateway = AuthenticationRig(frozenset({P}))

    assert gateway.request(None, role=C) == ANONYMOUS
    with pytest.raises(AuthenticationFailed):
        gateway.request(None, role=P)


def test_an_unknown_user_is_refused_in_the_words_of_a_wrong_password():
    gateway = AuthenticationRig()
    with pytest.raises(AuthenticationFailed) as wrong:
        gateway.request(gateway.signed(password=b"wrong"))
    with pytest.raises(AuthenticationFailed) as unknown:
        gateway.request(gateway.signed("carol"))

    assert str(wrong.value) == str(unknown.value)
    assert "trilogue users set-password" in str(wrong.value)


def test_each_refusal_is_a_line_of_the_audit_log_without_secrets():
    gateway = AuthenticationRig()
    gateway.users.plan_put(User("external", 1)).apply()
    proofs = [
        gateway.signed(password=b"wrong"),
        gateway.signed("carol"),
        gateway.signed("external"),
    ]
    for proof in (*proofs, with_token("x.y"), None):
        with pytest.raises(AuthenticationFailed):
            gateway.request(proof)

    assert [(line["event"], line["principal"], line["method"]) for line in gateway.lines] == [
        ("login.failed", "alice", "signature"),
        ("login.failed", "carol", "signature"),
        ("login.failed", "external", "signature"),
        ("login.failed", "", "token"),
        ("login.failed", "", "session"),
    ]
    reasons = [line["reason"] for line in gateway.lines]
    assert reasons[0] == "the signature is wrong"
    assert "no such user" in reasons[1]
    assert "set-password" in reasons[2]
    assert "wonder" not in str(gateway.lines)


@pytest.mark.parametrize("user", ["alice", "carol", "external"])
def test_a_password_is_decrypted_for_every_user_so_that_time_tells_no_name(user, monkeypatch):
    gateway = AuthenticationRig()
    gateway.users.plan_put(User("external", 1)).apply()
    decrypted: list[bytes | None] = []

    def decrypt(stored: str, key: bytes) -> bytes | None:
        decrypted.append(decrypt_password(stored, key))
        return decrypted[-1]

    monkeypatch.setattr(login, "decrypt_password", decrypt)
    with pytest.raises(AuthenticationFailed):
        gateway.request(gateway.signed(user, password=b"wrong"))

    assert len(decrypted) == 1
    assert decrypted[0] is not None


def test_a_key_file_that_cannot_be_read_is_named_in_the_audit_log_only(monkeypatch):
    gateway = AuthenticationRig()

    def fail(_user: str) -> bytes:
        raise PermissionError(13, "Permission denied", "/secret/path")

    monkeypatch.setattr(gateway.rules._authenticator, "signing_password", fail)
    with pytest.raises(AuthenticationFailed) as refused:
        gateway.request(gateway.signed())

    assert "key file" in str(refused.value)
    assert "Permission" not in str(refused.value)
    assert "Permission denied" in str(gateway.lines[0]["reason"])


@pytest.mark.parametrize("after_ms", [-SIGNATURE_WINDOW_MS, SIGNATURE_WINDOW_MS])
def test_a_signature_may_be_twenty_seconds_off(after_ms):
    gateway = AuthenticationRig()

    assert gateway.request(gateway.signed(after_ms=after_ms)) == ALICE


@pytest.mark.parametrize(
    "after_ms", [-SIGNATURE_WINDOW_MS - 1, SIGNATURE_WINDOW_MS + 1, -(1 << 40), 1 << 40]
)
def test_but_not_more(after_ms):
    gateway = AuthenticationRig()

    with pytest.raises(AuthenticationFailed, match="time"):
        gateway.request(gateway.signed(after_ms=after_ms))


@pytest.mark.parametrize("wait_ms", [0, SIGNATURE_WINDOW_MS, 2 * SIGNATURE_WINDOW_MS])
def test_a_signature_is_good_for_once(wait_ms):
    gateway = AuthenticationRig()
    signed = gateway.signed(after_ms=SIGNATURE_WINDOW_MS)
    gateway.request(signed)

    gateway.now_ms += wait_ms
    with pytest.raises(AuthenticationFailed, match="before"):
        gateway.request(signed, "c2")


def test_signatures_that_are_over_are_not_kept(monkeypatch):
    monkeypatch.setattr(authentication, "SIGNATURES_MAX", 2)
    gateway = AuthenticationRig()
    gateway.request(gateway.signed(nonce=1))
    gateway.request(gateway.signed(nonce=2))
    with pytest.raises(AuthenticationFailed, match="too many"):
        gateway.request(gateway.signed(nonce=3))

    gateway.now_ms += 2 * SIGNATURE_WINDOW_MS + 1
    assert gateway.request(gateway.signed(nonce=3)) == ALICE


@pytest.mark.parametrize(
    "bad",
    [
        None,
        MasterCertificateInfo(),
        certificate("", NOW_MS, 1, "x"),
        certificate("alice", NOW_MS, 1, ""),
        certificate("alice", NOW_MS, 1, "x" * 129),
        certificate("a" * 257, NOW_MS, 1, "x"),
        certificate("alice", NOW_MS, 1, "ÄÖÜ"),
        certificate("alice", NOW_MS, -1, signature("alice", b"wonder+land/=", NOW_MS, 1)),
    ],
)
def test_what_is_no_proof_is_refused(bad):
    with pytest.raises(AuthenticationFailed):
        AuthenticationRig().request(bad)


# -- tokens of the master


def test_the_master_gives_a_token_that_serves_instead_of_a_signature():
    gateway = AuthenticationRig()

    assert gateway.request(with_token(gateway.token())) == ALICE
    assert gateway.request(at_broker(gateway.token("c2")), "c2") == ALICE


def test_nobody_gets_such_a_token_without_having_signed():
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
def test_what_is_no_token_of_ours_is_refused(token):
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


def test_who_is_no_user_any_more_is_out_at_once():
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


def test_a_token_that_is_over_serves_once_more_to_be_told_to_sign_and_gets_no_new_one():
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


def blanks(gateway: AuthenticationRig, user="alice", *, nonce=9, password=None) -> AuthorizedInfo:
    secret = password or gateway.passwords[user]
    signed = signature(user, secret, gateway.now_ms, nonce)
    return at_broker(f"{user} {gateway.now_ms} {nonce} {signed}")


def test_consumers_sign_in_a_text_with_blanks_and_are_known_on_that_connection():
    gateway = AuthenticationRig()

    assert gateway.request(blanks(gateway), role=C) == ALICE
    assert gateway.request(None, role=C) == ALICE
    assert gateway.request(at_broker(), role=C) == ALICE
    for client, peer in (("c2", gateway.peer), ("c1", AdmittedClients())):
        with pytest.raises(AuthenticationFailed):
            gateway.request(None, client, role=C, peer=peer)


def test_consumers_are_asked_to_sign_again_in_time():
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


def test_a_visit_token_of_who_is_known_at_the_master_admits_at_the_broker():
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


def test_heartbeats_keep_who_was_admitted_by_a_visit_token():
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
    def visit(key, client="c1", user=""):
        return AuthTokens(key, lambda: NOW_MS, checks_visit=True).visit_token(client, user)

    assert visit(b"a") == visit(b"a")
    assert len({visit(b"a"), visit(b"b"), visit(b"a", "c2"), visit(b"a", "c1", "alice")}) == 4


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
