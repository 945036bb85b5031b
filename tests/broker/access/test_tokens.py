"""JSON web tokens: valid ones, and every way in which a token is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from trilogue.broker.access.tokens import (
    TokenKeyError,
    TokenRules,
    TokenValidator,
    issue_token,
    read_keys,
)
from trilogue.broker.errors import AuthenticationFailed

SECRET = b"s" * 32
NOW_MS = 1_800_000_000_000
NOW = NOW_MS // 1_000
RSA = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())


def pem(key):
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def private_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def validator(content=SECRET, rules=None, revoked=None):
    keys = read_keys(content)
    return TokenValidator(
        lambda: keys,
        rules or TokenRules(),
        now_ms=lambda: NOW_MS,
        tokens_from_ms=lambda user: (revoked or {}).get(user, 0),
    )


def token(claims, key=SECRET, algorithm="HS256", **header):
    return jwt.encode({"sub": "alice", **claims}, key, algorithm=algorithm, headers=header or None)


@pytest.mark.parametrize(
    ("content", "key", "algorithm"),
    [
        (SECRET, SECRET, "HS256"),
        (base64.b64encode(b"\x01" * 64), b"\x01" * 64, "HS512"),
        (pem(RSA), RSA, "RS256"),
        (pem(CURVE), CURVE, "ES256"),
        (private_pem(RSA), RSA, "RS512"),
    ],
)
def test_a_valid_token_names_its_user_and_end(content, key, algorithm):
    claims = validator(content).validate(token({"exp": NOW + 60}, key, algorithm))

    assert str(claims.principal) == "User:alice"
    assert claims.expires_ms == (NOW + 60) * 1_000


def forged_with_public_key():
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(b'{"sub":"alice"}').rstrip(b"=")
    mac = hmac.digest(pem(RSA), head + b"." + body, hashlib.sha256)
    return (head + b"." + body + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (SECRET, ""),
        (SECRET, "a.b.c"),
        (SECRET, "x" * 20_000),
        (SECRET, token({}, b"t" * 32)),
        (SECRET, jwt.encode({"sub": "alice"}, None, algorithm="none")),
        (SECRET, token({"exp": NOW - 60})),
        (SECRET, token({"nbf": NOW + 60})),
        (SECRET, jwt.encode({}, SECRET, algorithm="HS256")),
        (SECRET, jwt.encode({"sub": ""}, SECRET, algorithm="HS256")),
        (pem(RSA), forged_with_public_key()),
        (pem(RSA), token({}, CURVE, "ES256")),
        (SECRET, token({}, kid="../../etc/passwd", key=b"u" * 32)),
    ],
)
def test_a_token_that_is_not_valid(content, text):
    with pytest.raises(AuthenticationFailed):
        validator(content).validate(text)


def test_audience_issuer_and_role_claim_are_those_of_the_settings():
    rules = TokenRules("role", "trilogue", "https://issuer")
    good = {"role": "ops", "aud": ["x", "trilogue"], "iss": "https://issuer"}

    assert validator(rules=rules).validate(token(good)).principal.name == "ops"
    for wrong in ({"aud": "y"}, {"iss": "z"}, {"role": None}):
        with pytest.raises(AuthenticationFailed):
            validator(rules=rules).validate(token({**good, **wrong}))
    with pytest.raises(AuthenticationFailed):
        validator(rules=rules).validate(token({"role": "ops"}))


def test_tokens_issued_before_a_revocation_are_refused():
    check = validator(revoked={"alice": NOW_MS})

    check.validate(token({"iat": NOW}))
    for old in ({"iat": NOW - 1}, {}):
        with pytest.raises(AuthenticationFailed, match="revoked"):
            check.validate(token(old))


def test_keys_of_a_jwks_are_chosen_by_their_id():
    rows = []
    for kid, key in (("one", RSA), ("two", CURVE)):
        maker = jwt.algorithms.RSAAlgorithm if key is RSA else jwt.algorithms.ECAlgorithm
        rows.append({**json.loads(maker.to_jwk(key.public_key())), "kid": kid})
    check = validator(json.dumps({"keys": rows}).encode())

    check.validate(token({}, RSA, "RS256", kid="one"))
    check.validate(token({}, CURVE, "ES256", kid="two"))
    for kid in ("two", "three"):
        with pytest.raises(AuthenticationFailed):
            check.validate(token({}, RSA, "RS256", kid=kid))


def test_issued_tokens_are_valid():
    key = read_keys(SECRET)[None]
    rules = TokenRules(audience="here", issuer="me")
    text = issue_token(key, "bob", now_ms=NOW_MS, lifetime_ms=5_000, rules=rules)

    claims = validator(rules=rules).validate(text)
    assert (claims.principal.name, claims.expires_ms) == ("bob", NOW_MS + 5_000)
    with pytest.raises(TokenKeyError):
        issue_token(read_keys(pem(RSA))[None], "bob", now_ms=0, lifetime_ms=None, rules=rules)


@pytest.mark.parametrize(
    "content", [b"short", b"", b"{", b'{"keys":[]}', b"-----BEGIN PUBLIC KEY-----\nx\n"]
)
def test_files_without_a_usable_key(content):
    with pytest.raises(TokenKeyError):
        read_keys(content)
