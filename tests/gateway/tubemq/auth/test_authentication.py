"""Signatures and tokens: what authenticates a client, and what does not."""

from __future__ import annotations

import pytest

from tests.gateway.tubemq.auth.auth_rig import (
    ALICE,
    NOW_MS,
    AuthenticationRig,
    C,
    P,
    PeerAt,
    blanks,
    certificate,
    with_token,
)
from trilogue.broker.access.authorizer import ANONYMOUS
from trilogue.broker.access.passwords import decrypt_password
from trilogue.broker.access.users import User
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway import authentication as login
from trilogue.gateway.failed_logins import FAILURES_MAX, TOO_MANY_FAILURES, FailedLogins
from trilogue.gateway.tubemq.auth import signatures
from trilogue.gateway.tubemq.auth.signatures import SIGNATURE_WINDOW_MS, signature
from trilogue.wire.tubemq.master_pb2 import MasterCertificateInfo

# -- signatures


def test_the_signature_is_that_of_the_java_client():
    """Computed by TStringUtils.getAuthSignature of the Java client 1.13.0."""
    assert signature("alice", b"wonder+land/=", 1795262482479, 1717) == (
        "S8iyenX4IXz5osv0HSYAbVLeZu4%3D"
    )


def test_valid_signature_authenticates_its_user():
    gateway = AuthenticationRig()

    assert gateway.request(gateway.signed()) == ALICE


def test_disabled_authentication_accepts_every_client():
    gateway = AuthenticationRig(frozenset())

    assert gateway.request(None) == ANONYMOUS
    assert gateway.request(gateway.signed(password=b"wrong")) == ANONYMOUS
    assert not gateway.rules.needs_signature(P, gateway.peer, "c1", None)


def test_authentication_is_enabled_per_role():
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


def test_an_address_that_guesses_is_refused_for_a_while_and_tokens_still_serve():
    gateway = AuthenticationRig()
    gateway.rules._failures = FailedLogins(lambda: 0.0)
    token = gateway.token()
    for nonce in range(FAILURES_MAX):
        with pytest.raises(AuthenticationFailed, match="set-password"):
            gateway.request(gateway.signed(password=b"wrong", nonce=nonce))
    lines = len(gateway.lines)

    for proof in (gateway.signed(nonce=998), blanks(gateway, nonce=999)):
        with pytest.raises(AuthenticationFailed, match=TOO_MANY_FAILURES):
            gateway.request(proof)
    assert len(gateway.lines) == lines
    assert gateway.request(with_token(token)) == ALICE
    assert gateway.request(gateway.signed(nonce=998), peer=PeerAt("192.0.2.9")) == ALICE


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
def test_a_stored_password_is_decrypted_for_every_user(user, monkeypatch):
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
    monkeypatch.setattr(signatures, "SIGNATURES_MAX", 2)
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
def test_invalid_auth_info_is_refused(bad):
    with pytest.raises(AuthenticationFailed):
        AuthenticationRig().request(bad)


def test_a_long_client_id_is_remembered_by_a_digest():
    gateway = AuthenticationRig()
    first, second = ("x" * 1_000 + end for end in "ab")

    gateway.request(gateway.signed(), first)

    assert gateway.request(None, first) == ALICE
    with pytest.raises(AuthenticationFailed):
        gateway.request(None, second)
    assert max(map(len, gateway.peer.admitted)) <= 128
