"""Users and their secrets: one interface for all gateways, and the file that holds them.

Gateways use `Credentials`. `UserFile` reads a file with a line for each user:

    # producers of aeroplanes
    alice:her password
    bob:with:colons is fine

Only its owner may read or write the file. It is read again when it changes, checked at most once a
second; if it cannot be read then, the users stay as they were and the log has a warning. Secrets
are stored in clear: TubeMQ's signatures (HMAC) are made with the password itself, so a digest of it
would not do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from trilogue.broker.access.authorizer import USER, Principal

log = logging.getLogger(__name__)

USERS_MAX = 100_000
FILE_SIZE_MAX = 16 << 20
NAME_SIZE_MAX = 128
SECRET_SIZE_MAX = 1_024
RELOAD_INTERVAL_S = 1.0
OTHERS = 0o077  # mode bits for group and others


class CredentialsError(Exception):
    """Users that cannot be loaded; the message has the file and the reason, no secret."""


class Credentials(Protocol):
    """The users of this cluster."""

    def secret(self, user: str) -> bytes | None:
        """Return the secret of a user, or None for an unknown user; does not wait for long."""
        ...

    def principal(self, user: str) -> Principal:
        """Return the identity of an authenticated user."""
        ...


class UserTable:
    """Users that are all in memory, for tests and as the content of a file."""

    def __init__(self, secrets: Mapping[str, bytes] | None = None) -> None:
        self._secrets = dict(secrets or {})

    def secret(self, user: str) -> bytes | None:
        """The user's password."""
        return self._secrets.get(user)

    def principal(self, user: str) -> Principal:
        """The user under that name."""
        return Principal(USER, user)


class UserFile:
    """Users from a file; CredentialsError if it cannot be read at the start."""

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._seen = _mark(path)
        self._users = read_users(path)
        self._checked_s = monotonic()

    def secret(self, user: str) -> bytes | None:
        """The user's password, as the file has it now."""
        self._reload()
        return self._users.get(user)

    def principal(self, user: str) -> Principal:
        """The user under that name."""
        return Principal(USER, user)

    def _reload(self) -> None:
        now_s = self._monotonic()
        if now_s - self._checked_s < RELOAD_INTERVAL_S:
            return
        self._checked_s = now_s
        try:
            mark = _mark(self._path)
            if mark == self._seen:
                return
            self._seen = mark
            self._users = read_users(self._path)
        except CredentialsError as problem:
            log.error("credentials.not_read", extra={"problem": str(problem)})  # noqa: TRY400
        else:
            log.info("credentials.read", extra={"users": len(self._users)})


def read_users(path: Path) -> dict[str, bytes]:
    """Read a file of `user:password` lines; CredentialsError."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mode & OTHERS:
                raise CredentialsError(f"{path}: others than its owner may read it: chmod 600")
            if status.st_size > FILE_SIZE_MAX:
                raise CredentialsError(f"{path}: at most {FILE_SIZE_MAX} bytes are read")
            content = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error
    return parse_users(content, str(path))


def parse_users(content: bytes, where: str) -> dict[str, bytes]:
    """Parse `user:password` lines; empty lines and `#` comments are skipped."""
    users: dict[str, bytes] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip() or line.startswith(b"#"):
            continue
        name, colon, secret = line.partition(b":")
        at = f"{where}, line {number}"
        try:
            user = name.decode()
        except UnicodeDecodeError:
            raise CredentialsError(f"{at}: a name is UTF-8") from None
        if not colon or not secret:
            raise CredentialsError(f"{at}: a line is user:password")
        if not user or len(name) > NAME_SIZE_MAX or any(c.isspace() for c in user):
            raise CredentialsError(f"{at}: a name has 1 to {NAME_SIZE_MAX} bytes and no blanks")
        if len(secret) > SECRET_SIZE_MAX:
            raise CredentialsError(f"{at}: a password has at most {SECRET_SIZE_MAX} bytes")
        if user in users:
            raise CredentialsError(f"{at}: {user} is there twice")
        users[user] = secret
        if len(users) > USERS_MAX:
            raise CredentialsError(f"{where}: at most {USERS_MAX} users")
    return users


def _mark(path: Path) -> tuple[int, int, int, int]:
    """Return what identifies a version of a file: modification time, size, inode, mode."""
    try:
        found = path.stat()
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
