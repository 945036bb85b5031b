"""Who there is, and with which secret they prove it: one port below all doors.

`Credentials` is what doors ask. The one that answers today is a file with a line for each user:

    # who may write planes
    alice:her password
    bob:with:colons is fine

which nobody but its owner may read or write. It is looked at again when it changes, at most once a
second; one that cannot be read then changes nothing and is said in the log. Secrets are kept as
they are: TubeMQ's signatures are made with the password itself (wire/tubemq: HMAC), so no digest of
it would do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from trilogue.broker.access import Principal

log = logging.getLogger(__name__)

USER = "user"
USERS_MAX = 100_000
FILE_SIZE_MAX = 16 << 20
NAME_SIZE_MAX = 128
SECRET_SIZE_MAX = 1_024
LOOK_AGAIN_S = 1.0
OTHERS = 0o077  # the bits of a file's mode that are for others than its owner


class CredentialsError(Exception):
    """Users that cannot be had; the message says which file, where and why, and no secret."""


class Credentials(Protocol):
    """The users of this cluster."""

    def secret(self, user: str) -> bytes | None:
        """What a user proves to know; None when there is no such user. Never waits for long."""
        ...

    def principal(self, user: str) -> Principal:
        """As whom a user that has proven it acts."""
        ...


class Users:
    """Users that are all known: what tests use, and what a file holds."""

    def __init__(self, secrets: Mapping[str, bytes] | None = None) -> None:
        self._secrets = dict(secrets or {})

    def secret(self, user: str) -> bytes | None:
        """The user's password."""
        return self._secrets.get(user)

    def principal(self, user: str) -> Principal:
        """The user under that name."""
        return Principal(USER, user)


class UserFile:
    """Users from a file; CredentialsError if it cannot be read the first time."""

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._seen = _mark(path)
        self._users = read_users(path)
        self._looked_s = monotonic()

    def secret(self, user: str) -> bytes | None:
        """The user's password, as the file has it now."""
        self._look_again()
        return self._users.get(user)

    def principal(self, user: str) -> Principal:
        """The user under that name."""
        return Principal(USER, user)

    def _look_again(self) -> None:
        now_s = self._monotonic()
        if now_s - self._looked_s < LOOK_AGAIN_S:
            return
        self._looked_s = now_s
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
    """Read `user:password` lines; empty ones and those that begin with # say nothing."""
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
    """What changes when a file does."""
    try:
        found = path.stat()
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
