"""SCRAM (RFC 5802) without I/O: verifiers of passwords, and the server's side of one exchange.

    client-first   n,,n=alice,r=<client nonce>
    server-first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final   c=biws,r=<both nonces>,p=<proof>
    server-final   v=<server signature>

A verifier does not have the password. An unknown user gets an exchange with a salt that is made of
the name and a key of the server, and fails at its end as a wrong password does; the length of the
salt and the iterations are those of some user (`ScramShapes`). Clients may state an authorization
identity only if it is their own name (CVE-2017-12610), and the nonce of the last message must be
the one of the first (CVE-2024-56128). librdkafka before 2.6.1 puts its own nonce before both once
more, which Kafka 3.9 accepts and 4.x refuses: it is accepted, since the proof signs the server's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import NamedTuple

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


class ScramShape(NamedTuple):
    """What a server shows of a verifier: its mechanism, the iterations and the size of the salt."""

    mechanism: str
    iterations: int = ITERATIONS
    salt_bytes: int = SALT_BYTES


class ScramShapes:
    """How many users have verifiers of each shape, so that unknown users have them as often."""

    def __init__(self) -> None:
        self._counts: Counter[ScramShape] = Counter()
        self._ends: list[tuple[int, ScramShape]] = []  # running totals, by shape

    def count(self, shape: ScramShape, change: int) -> None:
        """Note a verifier more, or one less with a `change` of -1."""
        self._counts[shape] += change
        if not self._counts[shape]:
            del self._counts[shape]
        self._ends.clear()

    def choose(self, digest: bytes) -> ScramShape | None:
        """Return the shape that a keyed digest of a name stands for; None where there is none."""
        if not self._ends:
            total = 0
            for shape in sorted(self._counts):
                total += self._counts[shape]
                self._ends.append((total, shape))
        if not self._ends:
            return None
        share = int.from_bytes(digest[:8], "big") / 2**64
        place = bisect_right(self._ends, share * self._ends[-1][0], key=itemgetter(0))
        return self._ends[min(place, len(self._ends) - 1)][1]


def imagine_verifier(shape: ScramShape, name: str, key: bytes) -> ScramVerifier:
    """Return the verifier of an unknown user, which no password has.

    The salt is one of the name, the shape and the key: another shape has another, as another
    password of a known user has.
    """
    text = f"{shape.iterations} {name}".encode()
    salt = hashlib.shake_256(hmac.digest(key, text, "sha256")).digest(shape.salt_bytes)
    nothing = bytes(hashlib.new(HASHES[shape.mechanism]).digest_size)
    return ScramVerifier(salt, shape.iterations, nothing, nothing)


FindVerifier = Callable[[str, Mapping[str, str]], ScramVerifier | None]


class ScramExchange:
    """One login. `find_verifier` gets the name and the extensions of the client's first message.

    `imagine` returns what an unknown user is shown.
    """

    def __init__(
        self,
        mechanism: str,
        find_verifier: FindVerifier,
        *,
        imagine: Callable[[str, Mapping[str, str]], ScramVerifier],
        nonce: str | None = None,
    ) -> None:
        self.user = ""
        self.extensions: dict[str, str] = {}
        self.is_done = False
        self._hash = HASHES[mechanism]
        self._find_verifier = find_verifier
        self._imagine = imagine
        self._client_nonce = ""
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
        imagined = self._imagine(self.user, self.extensions)  # takes as long for known ones
        self._is_known = verifier is not None
        self._verifier = verifier or imagined
        self._client_nonce, self._nonce = nonce, nonce + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

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
        same = fields[0][1] == header and self._is_nonce(fields[1][1])
        if not (proven and same and self._is_known):
            raise AuthenticationFailed(FAILED)
        self.is_done = True
        server_signature = hmac.digest(verifier.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(server_signature)

    def _is_nonce(self, text: str) -> bool:
        """Return whether it is the nonce of this exchange, or as librdkafka before 2.6.1 has it."""
        accepted = (self._nonce, self._client_nonce + self._nonce)
        return any(hmac.compare_digest(text.encode(), each.encode()) for each in accepted)


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
