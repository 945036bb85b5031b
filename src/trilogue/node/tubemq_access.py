"""Access control of the TubeMQ listeners: the node's secrets, the authorizer."""

from __future__ import annotations

import os
import secrets
from contextlib import AsyncExitStack
from pathlib import Path

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.errors import ConcurrentChange
from trilogue.broker.metadata_change import MetadataChange
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.tubemq.auth.authentication import (
    ALL_ROLES,
    Authentication,
    AuthenticationSettings,
    Role,
)
from trilogue.meta.operations import PutSetting, SettingIs
from trilogue.node.errors import StartError
from trilogue.node.metadata_writer import MetadataWriter
from trilogue.node.settings.access import roles
from trilogue.node.settings.table import Settings
from trilogue.node.storage import Storage
from trilogue.node.used_signatures import FILE, UsedSignatures

SECRET_KEY, WEB_TOKEN_KEY = "tubemq/secret", "tubemq/web-token"
SECRET_BYTES, WEB_TOKEN_BYTES = 32, 16
WEB_TOKEN_FILE = "tubemq-web-token"  # noqa: S105
OPERATIONS = {Role.PRODUCER: Operation.WRITE, Role.CONSUMER: Operation.READ}


def guarded_operations(settings: Settings) -> frozenset[Operation]:
    """Return what ACLs guard on topics where `access.authorize` is off."""
    return frozenset(OPERATIONS[Role(role)] for role in roles(settings, "tubemq.authorize"))


async def make_authentication(
    settings: Settings,
    storage: Storage,
    metadata: MetadataWriter,
    authenticator: Authenticator,
    stack: AsyncExitStack,
) -> Authentication:
    """Return the authentication of TubeMQ clients; StartError."""
    key = await _kept(storage, metadata, SECRET_KEY, secrets.token_hex(SECRET_BYTES))
    everyone = settings.switch("access.authenticate")
    auth_settings = AuthenticationSettings(
        ALL_ROLES if everyone else frozenset(map(Role, roles(settings, "tubemq.authenticate"))),
        everyone or settings.switch("tubemq.check-visit-tokens"),
    )
    if not auth_settings.authenticate:
        return Authentication(auth_settings, authenticator, key=bytes.fromhex(key))
    path = storage.directory.path / FILE
    try:
        signatures = UsedSignatures(path, bytes.fromhex(key))
    except OSError as error:
        raise StartError(f"the signatures of TubeMQ: {error.strerror}: {path}") from error
    stack.callback(signatures.close)
    return Authentication(
        auth_settings, authenticator, key=bytes.fromhex(key), signatures=signatures
    )


async def web_token(settings: Settings, storage: Storage, metadata: MetadataWriter) -> str:
    """Return the token of the web API; a generated one is also written to a file."""
    configured = settings.text("tubemq.web-token")
    path = storage.directory.path / WEB_TOKEN_FILE
    if configured:
        if storage.place.is_first:
            path.unlink(missing_ok=True)  # it would be wrong
        return configured
    token = await _kept(storage, metadata, WEB_TOKEN_KEY, secrets.token_hex(WEB_TOKEN_BYTES))
    if storage.place.is_first:
        _write(path, token)
    return token


async def _kept(storage: Storage, metadata: MetadataWriter, key: str, new: str) -> str:
    """Return the value of a key in meta, which the first start sets to `new`."""
    found = storage.meta.state.settings.get(key)
    if found is not None:
        return found
    made: MetadataChange[None] = MetadataChange(
        lambda: [PutSetting(key, new)],
        (SettingIs(key, None),),
        lambda: None,
        on_conflict=ConcurrentChange("another node made it"),
    )
    try:
        await metadata.write(made)
    except ConcurrentChange:  # another node starts for the first time, too
        return storage.meta.state.settings[key]
    return new


def _write(path: Path, token: str) -> None:
    """Write a file that only its owner can read, if it does not exist. Raises StartError."""
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
