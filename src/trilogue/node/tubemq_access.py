"""Who may do what at the TubeMQ doors: users, the node's secrets, the authorizer."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from trilogue.broker.access import AllowAll, Authorizer, Operation
from trilogue.broker.broker import Broker
from trilogue.broker.commit import Commit
from trilogue.broker.credentials import Credentials, CredentialsError, UserFile, Users
from trilogue.broker.errors import Outrun
from trilogue.broker.permissions import Permissions
from trilogue.gateway.tubemq.authentication import Authentication, AuthenticationSettings, Role
from trilogue.meta.port import PutSetting, SettingIs
from trilogue.node.access_settings import roles
from trilogue.node.commits import Commits
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.settings import Settings
from trilogue.node.storage import Storage, wall_clock_ms

SECRET_KEY, WEB_TOKEN_KEY = "tubemq/secret", "tubemq/web-token"
SECRET_BYTES, WEB_TOKEN_BYTES = 32, 16
WEB_TOKEN_FILE = "tubemq-web-token"  # noqa: S105
OPERATIONS = {Role.PRODUCER: Operation.WRITE, Role.CONSUMER: Operation.READ}


def make_authorizer(settings: Settings, broker: Broker) -> Authorizer:
    """The authorizer below all doors."""
    guarded = {OPERATIONS[Role(role)] for role in roles(settings, "tubemq.authorize")}
    return Permissions(broker.namespaces, broker.cluster, guarded) if guarded else AllowAll()


async def make_authentication(
    settings: Settings, storage: Storage, commits: Commits
) -> Authentication:
    """Who TubeMQ's clients are; StartError where the users cannot be read."""
    key = await _kept(storage, commits, SECRET_KEY, secrets.token_hex(SECRET_BYTES))
    said = AuthenticationSettings(
        frozenset(map(Role, roles(settings, "tubemq.authenticate"))),
        settings.switch("tubemq.check-visit-tokens"),
    )
    users = _users(settings)
    return Authentication(said, users, key=bytes.fromhex(key), now_ms=wall_clock_ms)


def _users(settings: Settings) -> Credentials:
    path = settings.text("tubemq.users")
    if not path:
        return Users()
    try:
        return UserFile(Path(path).expanduser(), time.monotonic)
    except CredentialsError as error:
        origin = settings.origin("tubemq.users")
        raise StartError(f"tubemq.users ({origin}): {error}", WRONG_SETTING) from error


async def web_token(settings: Settings, storage: Storage, commits: Commits) -> str:
    """The token of the web API; one that was made here stands in a file for the administrator."""
    said = settings.text("tubemq.web-token")
    path = storage.directory.path / WEB_TOKEN_FILE
    if said:
        path.unlink(missing_ok=True)  # it would be wrong
        return said
    token = await _kept(storage, commits, WEB_TOKEN_KEY, secrets.token_hex(WEB_TOKEN_BYTES))
    _write(path, token)
    return token


async def _kept(storage: Storage, commits: Commits, key: str, new: str) -> str:
    """What meta keeps under a key; `new` from the first start on."""
    found = storage.meta.state.settings.get(key)
    if found is not None:
        return found
    made: Commit[None] = Commit(
        lambda: [PutSetting(key, new)],
        (SettingIs(key, None),),
        lambda: None,
        outrun=Outrun("somebody else made it"),
    )
    await commits.carry_out(made)
    return new


def _write(path: Path, token: str) -> None:
    """Write it where nobody else may read it, if it is not there; StartError."""
    content = f"{token}\n".encode()
    try:
        if path.exists() and path.read_bytes() == content and not path.stat().st_mode & 0o077:
            return
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise StartError(f"the web API's token: {error.strerror}: {path}") from error
