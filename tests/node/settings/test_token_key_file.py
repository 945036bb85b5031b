"""The file of the keys that check tokens: read again when it changes, and never half."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from trilogue.broker.access.tokens import TokenKeyError, TokenRules, TokenValidator
from trilogue.broker.errors import AuthenticationFailed
from trilogue.node.access import KEY_BYTES_MAX, RELOAD_S, TokenKeyFile

NOW_MS = 1_800_000_000_000
KEYS = {name: rsa.generate_private_key(65537, 2_048) for name in ("old", "new")}


def jwks(*names: str) -> bytes:
    rows = []
    for name in names:
        row = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEYS[name].public_key()))
        rows.append({**row, "kid": name, "use": "sig", "alg": "RS256"})
    return json.dumps({"keys": rows}).encode()


class KeyFile:
    """A file, a validator that uses it, and the clock of its looks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_s = 100.0
        self.write(jwks("old"))
        self.file = TokenKeyFile(path, lambda: self.now_s)
        self.validator = TokenValidator(self.file.keys, TokenRules(), now_ms=lambda: NOW_MS)

    def write(self, content: bytes, mode: int = 0o600) -> None:
        """Replace the file in one step, as an administrator should."""
        new = self.path.with_suffix(".new")
        new.write_bytes(content)
        new.chmod(mode)
        new.rename(self.path)

    def accepts(self, name: str) -> bool:
        """Return whether a token of a key is valid, at the next look."""
        self.now_s += RELOAD_S
        token = jwt.encode({"sub": "alice"}, KEYS[name], "RS256", headers={"kid": name})
        try:
            return self.validator.validate(token).principal.name == "alice"
        except AuthenticationFailed:
            return False


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def test_keys_are_rotated_while_the_node_serves(keys: KeyFile):
    assert [keys.accepts(name) for name in ("old", "new")] == [True, False]

    keys.write(jwks("old", "new"))
    assert [keys.accepts(name) for name in ("old", "new")] == [True, True]

    keys.write(jwks("new"))
    assert [keys.accepts(name) for name in ("old", "new")] == [False, True]


def test_a_signer_is_accepted_as_long_as_its_key_is_there(keys: KeyFile):
    token = jwt.encode({"sub": "alice"}, KEYS["old"], "RS256", headers={"kid": "old"})
    signer = keys.validator.validate(token).signer

    def accepted() -> bool:
        keys.now_s += RELOAD_S
        return keys.validator.accepts(signer)

    assert accepted()
    keys.write(jwks("new", "old"))
    assert accepted()
    keys.write(jwks("new"))
    assert not accepted()
    other = json.loads(jwks("new"))
    other["keys"][0]["kid"] = "old"
    keys.write(json.dumps(other).encode())
    assert not accepted(), "another key of the same name"
    keys.write(jwks("old").replace(b"RS256", b"RS512"))
    assert not accepted(), "the key is for another algorithm"


def test_a_key_that_was_removed_is_refused_within_a_second(keys: KeyFile):
    keys.write(jwks("new"))
    assert keys.file.keys().keys() == {"old"}, "it looks once in a while"
    keys.now_s += RELOAD_S
    assert keys.file.keys().keys() == {"new"}


def test_a_file_of_the_same_size_and_time_is_another_one(keys: KeyFile):
    before = keys.path.stat()
    keys.write(jwks("new"))
    os.utime(keys.path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert keys.accepts("new")


BROKEN: dict[str, Callable[[KeyFile], None]] = {
    "half": lambda keys: keys.write(jwks("new")[:-10]),
    "empty": lambda keys: keys.write(b""),
    "too large": lambda keys: keys.write(jwks("new") + b" " * KEY_BYTES_MAX + b"x"),
    "gone": lambda keys: keys.path.unlink(),
    "a directory": lambda keys: (keys.path.unlink(), keys.path.mkdir())[1],
    "a secret for all to read": lambda keys: keys.write(b"s" * 40, 0o644),
    "a private key for all to read": lambda keys: keys.write(
        json.dumps(
            {
                "keys": [
                    {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEYS["new"])), "kid": "new"}
                ]
            }
        ).encode(),
        0o644,
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_old_keys_stay_where_the_new_file_cannot_be_used(keys: KeyFile, case: str):
    BROKEN[case](keys)

    assert [keys.accepts(name) for name in ("old", "new")] == [True, False]
    if case not in {"a directory", "gone"}:
        keys.write(jwks("new"))
        assert keys.accepts("new"), "the next file is read"


def test_a_start_needs_a_file_that_can_be_used(tmp_path: Path):
    with pytest.raises(TokenKeyError):
        TokenKeyFile(tmp_path / "nothing", lambda: 0.0)
