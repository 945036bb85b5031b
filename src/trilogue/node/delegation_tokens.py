"""Delegation tokens of a node: their secret, which is a file, and their limits."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from trilogue.broker.access.delegation_tokens import DelegationTokenLimits, DelegationTokens
from trilogue.broker.errors import StorageFailed
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.secure.files import SecureFiles, create_private
from trilogue.node.settings.table import Settings

SETTING = "kafka.delegation-token-key"
SECRET_BYTES = 32
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 16, 1 << 16
OTHERS = 0o077  # mode bits for group and others


class DelegationTokenKey:
    """The file of the secret, which `read` creates if the data directory has none yet.

    A file that the settings name is not created. Raises StartError where it cannot be used.
    """

    def __init__(self, settings: Settings, data: Path) -> None:
        configured = settings.text(SETTING)
        self._path = (
            Path(configured).expanduser() if configured else SecureFiles(data).delegation_key
        )
        self._secret = b""
        if configured or self._path.exists():
            try:
                self._secret = _read(self._path)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                origin = settings.origin(SETTING)
                raise StartError(
                    f"{SETTING} ({origin}): {self._path}: {reason}", WRONG_SETTING
                ) from error

    def read(self) -> bytes:
        """Return the secret; raises StorageFailed if it cannot be stored."""
        if not self._secret:
            secret = secrets.token_hex(SECRET_BYTES).encode()
            try:  # another node of the directory may have made it
                self._secret = create_private(self._path, secret + b"\n").strip()
            except OSError as error:
                raise StorageFailed(f"{self._path}: {error.strerror}") from error
        return self._secret


def enable_delegation_tokens(settings: Settings, tokens: DelegationTokens, data: Path) -> None:
    """Enable the tokens of a node, if its settings allow them; StartError."""
    if not settings.switch("kafka.delegation-tokens"):
        return
    key = DelegationTokenKey(settings, data)
    limits = DelegationTokenLimits(
        lifetime_ms=settings.number("kafka.delegation-token-max-lifetime"),
        renewal_ms=settings.number("kafka.delegation-token-expiry"),
        tokens_max=settings.number("kafka.delegation-tokens-limit"),
    )
    tokens.enable(key.read, limits)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & OTHERS:
            raise ValueError("others than its owner may read it: chmod 600")
        secret = file.read(SECRET_BYTES_MAX + 1).strip()
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ValueError(f"a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
    return secret
