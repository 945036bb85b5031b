"""Users from a file, which are brought into the cluster's users.

`access.users-file` names a file with a line for each user:

    # producers of aeroplanes
    alice:her password
    bob:with:colons is fine

Only its owner may read or write the file. It is read at the start and when it changes. A line that
is new, or has another password than before, creates or changes its user; a user whose line is gone
is deleted, unless its password was changed since by other means. Lines that stay as they are change
nothing: what `trilogue users` did to their users holds. Meta has a keyed digest of each line
(`access/users-file/alice`), not the password.

If the file cannot be read after the start, the users stay as they are and the log has an error.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from trilogue.broker.access.passwords import check_new_password
from trilogue.broker.access.users import USERS_MAX, Users, check_name, make_user
from trilogue.broker.errors import BrokerError, ConcurrentChange, InvalidRequest
from trilogue.broker.metadata_change import MetadataChange
from trilogue.meta.operations import DeleteSetting, PutSetting

log = logging.getLogger(__name__)

PREFIX = "access/users-file/"
FILE_SIZE_MAX = 16 << 20
RELOAD_S = 0.5
OTHERS = 0o077  # mode bits for group and others


class UsersFileError(Exception):
    """A file of users that cannot be read; the message has the file and the reason, no secret."""


class UsersFile:
    """Brings the users of a file into the users of the cluster.

    `stored` are the settings of meta, `signing_password` returns the password of a user that has
    one for signatures, `key` is the content of the key file.
    """

    def __init__(
        self,
        path: Path,
        users: Users,
        *,
        stored: Mapping[str, str],
        write_metadata: Callable[[MetadataChange[Any]], Awaitable[object]],
        signing_password: Callable[[str], bytes | None],
        key: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self._path = path
        self._users = users
        self._stored = stored
        self._write_metadata = write_metadata
        self._signing_password = signing_password
        self._key = key
        self._now_ms = now_ms
        self._version: tuple[int, ...] = ()

    async def load(self) -> None:
        """Bring the users of the file over, if it changed; raises UsersFileError, BrokerError."""
        version = _version(self._path)
        if version == self._version:
            return
        passwords = await asyncio.to_thread(read_users, self._path)
        changed = 0
        for name, password in passwords.items():
            changed += await self._bring(name, password)
        for key in [key for key in self._stored if key.startswith(PREFIX)]:
            name = key.removeprefix(PREFIX)
            if name not in passwords:
                changed += await self._remove(name)
        self._version = version
        log.info("users_file.read", extra={"users": len(passwords), "changed": changed})

    async def run(self) -> None:
        """Follow the file, without end."""
        reported = ""
        while True:
            await asyncio.sleep(RELOAD_S)
            try:
                await self.load()
            except (UsersFileError, BrokerError) as problem:
                if str(problem) != reported:
                    log.error("users_file.not_read", extra={"problem": str(problem)})  # noqa: TRY400
                reported = str(problem)
            else:
                reported = ""

    async def _bring(self, name: str, password: bytes) -> bool:
        """Create or change the user of a line; return whether that was needed."""
        digest = self._digest(name, password)
        if self._stored.get(PREFIX + name) == digest:
            return False
        current = self._signing_password(name)
        is_other = current is None or not hmac.compare_digest(current, password)
        if is_other:
            revoked_ms = self._users.tokens_from_ms(name)
            user = await asyncio.to_thread(
                make_user, name, password, self._now_ms(), key=self._key, tokens_from_ms=revoked_ms
            )
            await self._write_metadata(self._users.plan_put(user))
        await self._write_metadata(_put(PutSetting(PREFIX + name, digest)))
        return is_other

    async def _remove(self, name: str) -> bool:
        """Delete the user whose line is gone, unless it has another password since."""
        current = self._signing_password(name)
        is_ours = current is not None and hmac.compare_digest(
            self._digest(name, current), self._stored[PREFIX + name]
        )
        if is_ours:
            await self._write_metadata(self._users.plan_delete(name, self._now_ms()))
        await self._write_metadata(_put(DeleteSetting(PREFIX + name)))
        return is_ours

    def _digest(self, name: str, password: bytes) -> str:
        content = f"{len(name)}:{name}:".encode() + password
        return hmac.digest(self._key, content, "sha256").hex()


async def forget_lines(
    stored: Mapping[str, str], write_metadata: Callable[[MetadataChange[Any]], Awaitable[object]]
) -> None:
    """Forget the lines of a file that is no longer configured: its users stay."""
    for key in [key for key in stored if key.startswith(PREFIX)]:
        await write_metadata(_put(DeleteSetting(key)))


def read_users(path: Path) -> dict[str, bytes]:
    """Read a file of `user:password` lines; UsersFileError."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mode & OTHERS:
                raise UsersFileError(f"{path}: others than its owner may read it: chmod 600")
            if status.st_size > FILE_SIZE_MAX:
                raise UsersFileError(f"{path}: at most {FILE_SIZE_MAX} bytes are read")
            content = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise UsersFileError(f"{path}: {error.strerror}") from error
    return parse_users(content, str(path))


def parse_users(content: bytes, where: str) -> dict[str, bytes]:
    """Parse `user:password` lines; empty lines and `#` comments are skipped."""
    users: dict[str, bytes] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip() or line.startswith(b"#"):
            continue
        name, colon, password = line.partition(b":")
        at = f"{where}, line {number}"
        try:
            user = name.decode()
        except UnicodeDecodeError:
            raise UsersFileError(f"{at}: a name is UTF-8") from None
        if not colon or not password:
            raise UsersFileError(f"{at}: a line is user:password")
        if any(c.isspace() for c in user):
            raise UsersFileError(f"{at}: a name has no blanks")
        try:
            check_name(user)
            check_new_password(password)
        except InvalidRequest as error:
            raise UsersFileError(f"{at}: {error}") from None
        if user in users:
            raise UsersFileError(f"{at}: {user} is there twice")
        users[user] = password
        if len(users) > USERS_MAX:
            raise UsersFileError(f"{where}: at most {USERS_MAX} users")
    return users


def _put(operation: PutSetting | DeleteSetting) -> MetadataChange[None]:
    return MetadataChange(
        lambda: [operation],
        (),
        lambda: None,
        on_conflict=ConcurrentChange("the users of the file were changed meanwhile"),
    )


def _version(path: Path) -> tuple[int, ...]:
    """Return what identifies a version of a file: modification time, size, inode, mode."""
    try:
        found = path.stat()
    except OSError as error:
        raise UsersFileError(f"{path}: {error.strerror}") from error
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
