"""SCRAM (RFC 5802) without I/O: verifiers of passwords, and the server's side of one exchange.

    client-first   n,,n=alice,r=<client nonce>
    server-first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final   c=biws,r=<both nonces>,p=<proof>
    server-final   v=<server signature>

A verifier does not have the password. An unknown user gets an exchange with a salt that is made of
the name and a key of the server, and fails at its end as a wrong password does. Clients may state
an authorization identity only if it is their own name (CVE-2017-12610), and the nonce of the last
message must be the one of the first (CVE-2024-56128).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping

import msgspec

from trilogue.broker.errors import AuthenticationFailed

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = tuple(HASHES)
ITERATIONS = 4_096
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
SALT_BYTES = 32
NONCE_BYTES = 24
MESSAGE_BYTES_MAX = 8_192
FAILED = "the user or the password is wrong"


class ScramVerifier(msgspec.Struct, frozen=True):
    """What a server stores of a password for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def make_verifier(
    mechanism: str, password: bytes, *, iterations: int = ITERATIONS
) -> ScramVerifier:
    """Return the verifier of a new password, with a random salt."""
    salt = secrets.token_bytes(SALT_BYTES)
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, salt, iterations)
    return verifier_of(mechanism, salt, salted, iterations)


def verifier_of(mechanism: str, salt: bytes, salted: bytes, iterations: int) -> ScramVerifier:
    """Return the verifier of a salted password (what KIP-554 sends)."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramVerifier(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", name))


def check_password(mechanism: str, verifier: ScramVerifier, password: bytes) -> bool:
    """Return whether a password is the one of a verifier; takes milliseconds of CPU."""
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, verifier.salt, verifier.iterations)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return hmac.compare_digest(stored_key, verifier.stored_key)


FindVerifier = Callable[[str, Mapping[str, str]], ScramVerifier | None]


class ScramExchange:
    """One login. `find_verifier` gets the name and the extensions of the client's first message."""

    def __init__(
        self, mechanism: str, find_verifier: FindVerifier, *, key: bytes, nonce: str | None = None
    ) -> None:
        self.user = ""
        self.extensions: dict[str, str] = {}
        self.is_done = False
        self._hash = HASHES[mechanism]
        self._find_verifier = find_verifier
        self._key = key  # salts of unknown users are derived from it
        self._nonce = nonce or secrets.token_urlsafe(NONCE_BYTES)
        self._verifier: ScramVerifier | None = None
        self._is_known = False
        self._first = ""  # both first messages, without the header
        self._header = ""

    def is_against(self, verifier: ScramVerifier | None) -> bool:
        """Return whether the client has proven to know the password of this verifier."""
        return self.is_done and verifier is not None and verifier == self._verifier

    def respond(self, message: bytes) -> bytes:
        """Return the server's answer to a message; raises AuthenticationFailed.

        `is_done` is whether the client is authenticated with this answer.
        """
        if len(message) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed("a SCRAM message is too long")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("a SCRAM message is not UTF-8") from None
        if self.is_done:
            raise AuthenticationFailed("the SCRAM exchange is over")
        return (self._answer_first if self._verifier is None else self._answer_final)(text)

    def _answer_first(self, text: str) -> bytes:
        flag, comma, rest = text.partition(",")
        authzid, second, bare = rest.partition(",")
        if flag not in {"n", "y"} or not comma or not second:
            raise AuthenticationFailed("a SCRAM exchange without channel binding begins with n,,")
        fields = _fields(bare)
        if [name for name, _ in fields[:2]] != ["n", "r"]:
            raise AuthenticationFailed("the first SCRAM message has no name or no nonce")
        self.user = _unescape(fields[0][1])
        nonce = fields[1][1]
        if not self.user or not nonce or not nonce.isprintable():
            raise AuthenticationFailed("the first SCRAM message has no name or no nonce")
        if authzid and (authzid[:2] != "a=" or _unescape(authzid[2:]) != self.user):
            raise AuthenticationFailed("a client may act for itself only")
        self.extensions = dict(fields[2:])
        self._header = f"{flag},{authzid},"
        verifier = self._find_verifier(self.user, self.extensions)
        self._is_known = verifier is not None
        self._verifier = verifier or self._imagine_verifier()
        self._nonce = nonce + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def _imagine_verifier(self) -> ScramVerifier:
        salt = hmac.digest(self._key, self.user.encode(), "sha256")[:SALT_BYTES]
        nothing = bytes(hashlib.new(self._hash).digest_size)
        return ScramVerifier(salt, ITERATIONS, nothing, nothing)

    def _answer_final(self, text: str) -> bytes:
        verifier = self._verifier
        assert verifier is not None
        without_proof, separator, proof_text = text.rpartition(",p=")
        fields = _fields(without_proof)
        if not separator or [name for name, _ in fields[:2]] != ["c", "r"]:
            raise AuthenticationFailed("the last SCRAM message has no nonce or no proof")
        header = base64.b64encode(self._header.encode()).decode()
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except (binascii.Error, ValueError):
            raise AuthenticationFailed("the proof of a SCRAM exchange is not base64") from None
        signed = f"{self._first},{without_proof}".encode()
        signature = hmac.digest(verifier.stored_key, signed, self._hash)
        client_key = _xor(proof, signature)
        computed = hashlib.new(self._hash, client_key).digest()
        proven = hmac.compare_digest(computed, verifier.stored_key)
        same = fields[0][1] == header and hmac.compare_digest(
            fields[1][1].encode(), self._nonce.encode()
        )
        if not (proven and same and self._is_known):
            raise AuthenticationFailed(FAILED)
        self.is_done = True
        server_signature = hmac.digest(verifier.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(server_signature)


def _fields(text: str) -> list[tuple[str, str]]:
    fields = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise AuthenticationFailed("a field of a SCRAM message has no value")
        fields.append((name, value))
    return fields


def _unescape(text: str) -> str:
    """Return a name without RFC 5802's escapes of ',' and '='; raises AuthenticationFailed."""
    if "=" in text.replace("=2C", "").replace("=3D", ""):
        raise AuthenticationFailed("a name in a SCRAM message has an invalid escape")
    return text.replace("=2C", ",").replace("=3D", "=")


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        return b""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
