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


OTHER_KEYS = [
    {"kid": "e", "use": "enc", "alg": "RSA-OAEP"},
    {"kid": "p", "alg": "PS256"},
    {"kid": "c", "use": "enc"},
    {"kid": "o", "kty": "OKP", "crv": "X448", "x": "AAAA"},
    {"kid": "n", "kty": "of a later standard"},
]


def jwk(key, **more):
    return {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key)), **more}


def secret_jwk(secret, **more):
    text = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
    return {"kty": "oct", "k": text, "kid": "secret", **more}


@pytest.mark.parametrize("other", OTHER_KEYS)
def test_keys_of_other_uses_and_kinds_are_left_out_of_a_jwks(other):
    """Identity providers list the keys of their encryption, too (Keycloak: RSA-OAEP)."""
    rows = [jwk(RSA.public_key(), kid="one", use="sig", alg="RS256"), jwk(RSA.public_key()) | other]
    check = validator(json.dumps({"keys": rows}).encode())

    check.validate(token({}, RSA, "RS256", kid="one"))
    for algorithm in ("RS256", "PS256"):
        with pytest.raises(AuthenticationFailed):
            check.validate(token({}, RSA, algorithm, kid=other["kid"]))


def test_a_key_of_a_jwks_checks_by_its_own_algorithm_only():
    long = bytes(range(64))  # HS512 wants one as long as its hash
    rows = [jwk(RSA.public_key(), kid="rsa"), secret_jwk(long, alg="HS512")]
    check = validator(json.dumps({"keys": rows}).encode())

    check.validate(token({}, long, algorithm="HS512", kid="secret"))
    for text in (
        token({}, long, kid="secret"),
        token({}, long, algorithm="HS512", kid="rsa"),
        token({}, RSA, "RS256", kid="secret"),
        token({}, long, algorithm="HS512"),
    ):
        with pytest.raises(AuthenticationFailed):
            check.validate(text)


def test_private_keys_of_a_jwks_check_too_and_are_known_as_private():
    rows = [jwk(RSA, kid="one"), secret_jwk(SECRET)]
    content = json.dumps({"keys": rows}).encode()

    validator(content).validate(token({}, RSA, "RS256", kid="one"))
    assert [key.can_sign for key in read_keys(content).values()] == [True, True]


def signed(payload, head='{"alg":"HS256"}'):
    """Return a token with this text as its payload, which no library would write."""
    parts = [
        base64.urlsafe_b64encode(each.encode()).rstrip(b"=").decode() for each in (head, payload)
    ]
    mac = hmac.digest(SECRET, ".".join(parts).encode(), "sha256")
    return ".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=").decode()])


@pytest.mark.parametrize("name", ["", "a" * 257, "a\0b", "a\nb", "\ud800", ["alice"], 7])
def test_a_role_that_is_no_name_of_a_user_is_refused(name):
    with pytest.raises(AuthenticationFailed):
        validator().validate(signed(json.dumps({"sub": name})))


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["NaN", "1e400", "-1e400", "9" * 400, '"1"', "true", "[]"])
def test_a_time_that_is_none_is_refused(claim, value):
    with pytest.raises(AuthenticationFailed):
        validator().validate(signed(f'{{"sub": "alice", "{claim}": {value}}}'))


@pytest.mark.parametrize(
    "head",
    [
        '{"alg":"none"}',
        '{"alg":"hs256"}',
        '{"alg":["HS256"]}',
        '{"alg":"HS256","kid":["one"]}',
        '{"alg":"HS256","crit":["later"],"later":1}',
        '{"alg":"HS256","b64":false,"crit":["b64"]}',
        "[]",
        '"HS256"',
        "[" * 9_000,
    ],
)
def test_a_header_that_is_none_is_refused(head):
    with pytest.raises(AuthenticationFailed):
        validator().validate(signed('{"sub":"alice"}', head))


def test_a_key_that_a_token_brings_along_is_not_used():
    own = '{"alg":"HS256","jwk":{"kty":"oct","k":"%s"},"jku":"http://192.0.2.1/","x5u":"file:///"}'
    with pytest.raises(AuthenticationFailed):
        validator(b"t" * 32).validate(signed('{"sub":"alice"}', own % ("c3Nz" * 11)))


@pytest.mark.parametrize("text", ["a.b.c" + "é", "\ud800.a.b", "a" * 20_000])
def test_a_text_that_cannot_be_a_token_is_refused(text):
    with pytest.raises(AuthenticationFailed):
        validator().validate(text)


def test_issued_tokens_are_valid():
    key = read_keys(SECRET)[None]
    rules = TokenRules(audience="here", issuer="me")
    text = issue_token(key, "bob", now_ms=NOW_MS, lifetime_ms=5_000, rules=rules)

    claims = validator(rules=rules).validate(text)
    assert (claims.principal.name, claims.expires_ms) == ("bob", NOW_MS + 5_000)
    with pytest.raises(TokenKeyError):
        issue_token(read_keys(pem(RSA))[None], "bob", now_ms=0, lifetime_ms=None, rules=rules)


@pytest.mark.parametrize(
    "content",
    [
        b"short",
        b"",
        b"{",
        b'{"keys":[]}',
        b'{"keys":7}',
        b'{"keys":["a"]}',
        json.dumps({"keys": [secret_jwk(b"short")]}).encode(),
        json.dumps({"keys": [jwk(RSA.public_key(), use="enc")]}).encode(),
        b'{"keys":' + b"[" * 5_000,
        b"-----BEGIN PUBLIC KEY-----\nx\n",
    ],
)
def test_files_without_a_usable_key(content):
    with pytest.raises(TokenKeyError):
        read_keys(content)
