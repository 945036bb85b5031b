"""JSON web tokens: checked for Pulsar's token method, OAUTHBEARER and HTTP's bearer; issued too.

The algorithm is pinned by the key, not read from the token: a secret allows HS256 to HS512, an RSA
public key RS256 to RS512, an elliptic curve's ES256 to ES512 by its curve. So `none`, and an HS256
signed with a public key, are refused. A JWKS file has several keys, chosen by `kid`; those of other
kinds and uses, as identity providers list them too, are left out (RFC 7517, section 5).

The role claim (`sub` unless set) names the principal. `exp` and `nbf` are checked where they are
there; the audience and the issuer where the settings name one. A token that was issued before its
user's tokens were revoked is refused; so is one with `iat` in whole seconds of that same second.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from trilogue.broker.access.authorizer import USER, Principal
from trilogue.broker.access.users import check_name
from trilogue.broker.errors import AuthenticationFailed, InvalidRequest

TOKEN_BYTES_MAX = 16 << 10
LEEWAY_S = 5
SECRET_BYTES_MIN = 32
NUMBER_MAX = 1 << 53  # of a claim that is a time in seconds
HMAC_ALGORITHMS = ("HS256", "HS384", "HS512")
RSA_ALGORITHMS = ("RS256", "RS384", "RS512")
CURVE_ALGORITHMS = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}


class TokenKeyError(Exception):
    """A key file that cannot be used; the message has the reason, no secret."""


class TokenKey(msgspec.Struct, frozen=True):
    """A key that checks tokens, the algorithms that it is for, and what signs them, if known."""

    key: Any
    algorithms: tuple[str, ...]
    signing: Any = None

    @property
    def can_sign(self) -> bool:
        """Whether tokens can be issued with it: the file has to be kept secret."""
        return self.signing is not None


class TokenSigner(msgspec.Struct, frozen=True):
    """The key that a token was checked with, by its name in the token and its algorithm there."""

    kid: str | None
    algorithm: str
    key: TokenKey


class TokenClaims(msgspec.Struct, frozen=True):
    """A valid token: its principal, its end in ms of the epoch (None: no end), and its signer."""

    principal: Principal
    expires_ms: int | None
    issued_ms: int | None
    signer: TokenSigner


class TokenRules(msgspec.Struct, frozen=True):
    """What a token must have besides a valid signature."""

    role_claim: str = "sub"
    audience: str = ""
    issuer: str = ""


class TokenValidator:
    """Checks tokens; `keys` returns the current keys by `kid`, with None for the only key.

    `tokens_from_ms` returns the time before which tokens of a user were revoked.
    """

    def __init__(
        self,
        keys: Callable[[], Mapping[str | None, TokenKey]],
        rules: TokenRules,
        *,
        now_ms: Callable[[], int],
        tokens_from_ms: Callable[[str], int] = lambda _user: 0,
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms
        self._tokens_from_ms = tokens_from_ms

    def validate(self, token: str) -> TokenClaims:
        """Return the claims of a valid token; raises AuthenticationFailed with the reason."""
        import jwt

        if len(token) > TOKEN_BYTES_MAX or not token.isascii():
            raise AuthenticationFailed("the token is too long, or is no ASCII")
        keys = self._keys()
        try:
            header = jwt.get_unverified_header(token)
            kid = header.get("kid")
            key = keys.get(kid) or keys.get(None)
            if key is None:
                raise AuthenticationFailed("no key is configured for this token")
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=self._rules.audience or None,
                issuer=self._rules.issuer or None,
                options={
                    "verify_exp": False,  # by this node's clock, below
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": bool(self._rules.audience),
                },
            )
        except (jwt.InvalidTokenError, RecursionError) as problem:
            raise AuthenticationFailed(f"the token is not valid: {problem}") from None
        return self._read(claims, TokenSigner(kid, header["alg"], key))

    def accepts(self, signer: TokenSigner) -> bool:
        """Return whether a token that this signer had signed would be checked by the same key."""
        keys = self._keys()
        key = keys.get(signer.kid) or keys.get(None)
        if key is None or signer.algorithm not in key.algorithms:
            return False
        return key is signer.key or bool(key.key == signer.key.key)

    def _read(self, claims: Mapping[str, object], signer: TokenSigner) -> TokenClaims:
        now_s = self._now_ms() / 1_000
        expires, not_before, issued = (_number(claims, name) for name in ("exp", "nbf", "iat"))
        if expires is not None and expires + LEEWAY_S <= now_s:
            raise AuthenticationFailed("the token has expired")
        if not_before is not None and not_before - LEEWAY_S > now_s:
            raise AuthenticationFailed("the token is not valid yet")
        role = claims.get(self._rules.role_claim)
        if not isinstance(role, str) or not role:
            raise AuthenticationFailed(f"the token has no claim {self._rules.role_claim}")
        try:
            check_name(role)
        except InvalidRequest as problem:
            raise AuthenticationFailed(f"{self._rules.role_claim}: {problem}") from None
        revoked_ms = self._tokens_from_ms(role)
        if revoked_ms and (issued is None or round(issued * 1_000) < revoked_ms):
            raise AuthenticationFailed("the token was revoked")
        return TokenClaims(
            Principal(USER, role),
            None if expires is None else int(expires * 1_000),
            None if issued is None else int(issued * 1_000),
            signer,
        )


def issue_token(
    key: TokenKey, role: str, *, now_ms: int, lifetime_ms: int | None, rules: TokenRules
) -> str:
    """Return a signed token for a role; raises TokenKeyError where the key only checks."""
    import jwt

    if not key.can_sign:
        raise TokenKeyError("tokens are issued where the private key is: this key only checks them")
    claims: dict[str, object] = {rules.role_claim: role, "iat": now_ms / 1_000}
    if lifetime_ms is not None:
        claims["exp"] = (now_ms + lifetime_ms) // 1_000
    if rules.audience:
        claims["aud"] = rules.audience
    if rules.issuer:
        claims["iss"] = rules.issuer
    return jwt.encode(claims, key.signing, algorithm=key.algorithms[0])


def read_keys(content: bytes) -> dict[str | None, TokenKey]:
    """Return the keys of a file: a JWKS, a PEM public or private key, or a secret.

    A secret is at least 32 bytes, raw or in base64. Raises TokenKeyError.
    """
    if content.lstrip().startswith(b"{"):
        return _read_jwks(content)
    if b"-----BEGIN" in content:
        return {None: _read_pem(content)}
    return {None: _read_secret(content)}


def _read_secret(content: bytes) -> TokenKey:
    text = content.strip()
    try:
        decoded = base64.b64decode(text, validate=True)
        secret = decoded if len(decoded) >= SECRET_BYTES_MIN else text
    except (binascii.Error, ValueError):
        secret = content
    if len(secret) < SECRET_BYTES_MIN:
        raise TokenKeyError(f"a secret for tokens has at least {SECRET_BYTES_MIN} bytes")
    return TokenKey(secret, HMAC_ALGORITHMS, secret)


def _read_pem(content: bytes) -> TokenKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        if b"PRIVATE KEY" in content:
            private: Any = serialization.load_pem_private_key(content, None)
            return TokenKey(private.public_key(), _algorithms_of(private.public_key()), private)
        if b"CERTIFICATE" in content:
            from cryptography import x509

            public: Any = x509.load_pem_x509_certificate(content).public_key()
        else:
            public = serialization.load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TokenKeyError(f"no key can be read: {error}") from None
    return TokenKey(public, _algorithms_of(public))


def _algorithms_of(public: object) -> tuple[str, ...]:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(public, rsa.RSAPublicKey):
        return RSA_ALGORITHMS
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in CURVE_ALGORITHMS:
        return CURVE_ALGORITHMS[public.curve.name]
    raise TokenKeyError("a key for tokens is RSA or on one of the curves P-256, P-384, P-521")


def _read_jwks(content: bytes) -> dict[str | None, TokenKey]:
    keys: dict[str | None, TokenKey] = {}
    try:
        rows: Sequence[dict[str, Any]] = json.loads(content)["keys"]
        for row in rows:
            key = _read_jwk(row) if row.get("use", "sig") == "sig" else None
            if key is not None:
                keys[row.get("kid")] = key
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TokenKeyError(f"no JWKS can be read: {error}") from None
    if not keys:
        raise TokenKeyError("the JWKS has no key that checks tokens")
    return keys


def _read_jwk(row: dict[str, Any]) -> TokenKey | None:
    """Return a key of a JWKS, None if it is for other algorithms; TokenKeyError for a weak secret.

    A secret and a private key can sign, so that their file has to be as private as they are.
    """
    import jwt

    try:
        found: Any = jwt.PyJWK(row, row.get("alg") or None).key
    except jwt.PyJWTError:
        return None
    if row["kty"] == "oct":
        if len(found) < SECRET_BYTES_MIN:
            raise TokenKeyError(f"a secret for tokens has at least {SECRET_BYTES_MIN} bytes")
        key = TokenKey(found, HMAC_ALGORITHMS, found)
    else:
        private = found if hasattr(found, "public_key") else None
        public = found if private is None else private.public_key()
        try:
            key = TokenKey(public, _algorithms_of(public), private)
        except TokenKeyError:
            return None
    named = (row["alg"],) if "alg" in row else key.algorithms
    algorithms = tuple(name for name in key.algorithms if name in named)
    return TokenKey(key.key, algorithms, key.signing) if algorithms else None


def _number(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AuthenticationFailed(f"the claim {name} of the token is not a number")
    if not -NUMBER_MAX <= value <= NUMBER_MAX:  # NaN neither, which no comparison would end
        raise AuthenticationFailed(f"the claim {name} of the token is no time")
    return float(value)
