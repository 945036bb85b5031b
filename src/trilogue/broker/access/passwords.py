"""Passwords: their scrypt hashes, the check of one, and their encryption for signatures.

scrypt is OpenSSL's, with 16 MiB and about 50 ms of CPU: `check_password` runs in a thread. It takes
the same time for an unknown user as for a wrong password. TubeMQ's signatures need the password
itself, so it is encrypted (Fernet: AES-128-CBC and HMAC-SHA256) with a key that is in a file of its
own beside the data, which only its owner may read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

import msgspec

from trilogue.broker.access import scram
from trilogue.broker.access.scram import ScramShape, ScramVerifier, imagine_verifier
from trilogue.broker.errors import InvalidRequest

COST, BLOCK, PARALLEL = 1 << 14, 8, 1
MEMORY_MAX = 64 << 20
SALT_BYTES, HASH_BYTES = 16, 32
PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX = 1, 1_024


class PasswordHash(msgspec.Struct, frozen=True):
    """A scrypt hash with its parameters."""

    salt: bytes
    digest: bytes
    cost: int = COST
    block: int = BLOCK
    parallel: int = PARALLEL


DEFAULT_SHAPE = ScramShape(scram.MECHANISMS[0])
_UNKNOWN = PasswordHash(secrets.token_bytes(SALT_BYTES), bytes(HASH_BYTES))


def check_new_password(password: bytes) -> None:
    """Refuse a password that no user can have: InvalidRequest."""
    if not PASSWORD_BYTES_MIN <= len(password) <= PASSWORD_BYTES_MAX or b"\0" in password:
        raise InvalidRequest(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes and no NUL")


def hash_password(password: bytes) -> PasswordHash:
    """Return the hash of a new password, with a random salt; takes 50 ms."""
    salt = secrets.token_bytes(SALT_BYTES)
    return PasswordHash(salt, _scrypt(password, PasswordHash(salt, bytes(HASH_BYTES))))


def check_password(
    password: bytes,
    hashed: PasswordHash | None,
    verifiers: Mapping[str, ScramVerifier],
    shape: ScramShape = DEFAULT_SHAPE,
) -> bool:
    """Return whether a password is that of a user with these secrets; takes as long without any.

    The scrypt hash decides where there is one, otherwise the first SCRAM verifier. `shape` is that
    of the verifier which is checked where there is none.
    """
    known_hash = hashed or _UNKNOWN
    by_hash = hmac.compare_digest(_scrypt(password, known_hash), known_hash.digest)
    imagined = shape.mechanism, imagine_verifier(shape, "", b"")
    mechanism, verifier = next(iter(verifiers.items()), imagined)
    by_scram = scram.check_password(mechanism, verifier, password)
    if hashed is not None:
        return by_hash
    return bool(verifiers) and by_scram


def encrypt_password(password: bytes, key: bytes) -> str:
    """Return a password as it is stored for signatures; `key` is the content of the key file."""
    from cryptography.fernet import Fernet

    return Fernet(key).encrypt(password).decode()


def decrypt_password(stored: str, key: bytes) -> bytes | None:
    """Return a stored password, or None where it was encrypted with another key."""
    from cryptography.fernet import Fernet, InvalidToken

    try:
        return Fernet(key).decrypt(stored.encode())
    except InvalidToken:
        return None


def _scrypt(password: bytes, like: PasswordHash) -> bytes:
    return hashlib.scrypt(
        password,
        salt=like.salt,
        n=like.cost,
        r=like.block,
        p=like.parallel,
        maxmem=MEMORY_MAX,
        dklen=len(like.digest),
    )
