"""Access control of a node: users, ACLs, keys and the audit log, made from the settings."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import msgspec

from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import AclStore, parse_principal
from trilogue.broker.access.audit import AuditLog, Emit
from trilogue.broker.access.authorizer import AllowAll, Authorizer, Principal
from trilogue.broker.access.certificates import MappingRule, parse_rules
from trilogue.broker.access.permissions import Permissions
from trilogue.broker.access.tokens import (
    TokenKey,
    TokenKeyError,
    TokenRules,
    TokenValidator,
    read_keys,
)
from trilogue.broker.access.users import Users
from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError, InvalidRequest, UnknownNamespace
from trilogue.broker.metadata_change import MetadataChange
from trilogue.gateway.access_administration import AccessAdministration
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.frame_dispatcher import IterationBudget
from trilogue.gateway.kafka.security.sasl_login import MECHANISMS
from trilogue.gateway.tls import TlsContexts, TlsError, TlsFiles
from trilogue.node.delegation_tokens import enable_delegation_tokens
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.metadata_writer import MetadataWriter
from trilogue.node.secure.files import SecureFiles, create_private
from trilogue.node.settings.table import Settings
from trilogue.node.storage import Storage
from trilogue.node.tubemq_access import guarded_operations
from trilogue.node.users_file import UsersFile, UsersFileError, forget_lines

log = logging.getLogger(__name__)

KEY_BYTES_MAX = 1 << 20
RELOAD_S = 1.0
OTHERS = 0o077  # mode bits for group and others
AUDIT_BYTES, AUDIT_FILES = 64 << 20, 4


class AccessControl(msgspec.Struct, frozen=True):
    """What a node passes to its gateways."""

    authorizer: Authorizer
    authenticator: Authenticator
    audit: AuditLog
    token_keys: TokenKeyFile | None


def make_access_control(
    settings: Settings, broker: Broker, data: Path, now_ms: Callable[[], int]
) -> AccessControl:
    """Return the access control of a node; StartError if a file cannot be used."""
    audit = AuditLog(_make_emit(settings), now_ms)
    keys = _open_token_keys(settings)
    authenticator = Authenticator(
        broker.users,
        audit=audit,
        now_ms=now_ms,
        tokens=None if keys is None else _make_validator(keys, settings, broker, now_ms),
        signing_key=lambda: read_signing_key(settings, data),
        certificate_rules=certificate_rules(settings),
        delegation_tokens=broker.delegation_tokens,
    )
    if keys is not None:
        keys.listeners.append(authenticator.end_unsigned_sessions)
    enable_delegation_tokens(settings, broker.delegation_tokens, data)
    return AccessControl(_make_authorizer(settings, broker), authenticator, audit, keys)


def make_administration(
    settings: Settings,
    users: Users,
    acls: AclStore,
    write_metadata: Callable[[MetadataChange[Any]], Awaitable[object]],
    *,
    data: Path,
    now_ms: Callable[[], int],
) -> AccessAdministration:
    """Return the administration of users and ACLs, with the keys that the settings name."""
    return AccessAdministration(
        users,
        acls,
        write_metadata,
        signing_key=lambda: read_signing_key(settings, data),
        token_key=lambda: find_token_key(settings),
        token_rules=token_rules(settings),
        now_ms=now_ms,
    )


def find_token_key(settings: Settings) -> TokenKey | None:
    """Return the key that new tokens are signed with, if one is configured; TokenKeyError."""
    path = settings.text("access.token-key")
    if not path:
        return None
    keys = list(read_key_file(Path(path)).values())
    return next((key for key in keys if key.can_sign), keys[0])


def make_tls(
    settings: Settings, iterations: IterationBudget, client_certificates: str = ""
) -> TlsContexts:
    """Return the certificate of the TLS listeners; StartError if there is none.

    Decrypting is part of `iterations`.
    `client_certificates`: whether clients show one, if not as `tls.client-certificates` has it.
    """
    if not settings.text("tls.certificate") or not settings.text("tls.key"):
        raise StartError(
            "a listener with TLS needs tls.certificate and tls.key (trilogue serve --secure makes "
            "them)",
            WRONG_SETTING,
        )
    client_ca = settings.text("tls.client-ca")
    files = TlsFiles(
        Path(settings.text("tls.certificate")),
        Path(settings.text("tls.key")),
        Path(client_ca) if client_ca else None,
        client_certificates or settings.text("tls.client-certificates"),
    )
    try:
        return TlsContexts(files, time.monotonic, iterations)
    except TlsError as error:
        origin = settings.origin("tls.certificate")
        raise StartError(f"tls.certificate ({origin}): {error}", WRONG_SETTING) from error


def certificate_rules(settings: Settings) -> tuple[MappingRule, ...]:
    """Return how subjects of client certificates become names; StartError."""
    try:
        return tuple(parse_rules(settings.text("tls.principal-rules")))
    except InvalidRequest as error:
        origin = settings.origin("tls.principal-rules")
        raise StartError(f"tls.principal-rules ({origin}): {error}", WRONG_SETTING) from error


def sasl_mechanisms(settings: Settings) -> tuple[str, ...]:
    """Return the mechanisms of Kafka's listeners with SASL; StartError for an unknown one."""
    names = [each.strip() for each in settings.text("kafka.sasl-mechanisms").split(",")]
    for name in names:
        if name not in MECHANISMS:
            origin = settings.origin("kafka.sasl-mechanisms")
            raise StartError(
                f"kafka.sasl-mechanisms ({origin}): {name!r} is none of {', '.join(MECHANISMS)}",
                WRONG_SETTING,
            )
    return tuple(names)


def super_users(settings: Settings) -> list[Principal]:
    """Return the principals of `access.super-users`; StartError."""
    return _read_principals(settings, "access.super-users")


def cluster_principals(settings: Settings) -> frozenset[Principal]:
    """Return the principals of `cluster.principals`; StartError."""
    return frozenset(_read_principals(settings, "cluster.principals"))


def _read_principals(settings: Settings, key: str) -> list[Principal]:
    try:
        parts = (part.strip() for part in settings.text(key).split(";"))
        return [parse_principal(part) for part in parts if part]
    except InvalidRequest as error:
        raise StartError(f"{key} ({settings.origin(key)}): {error}", WRONG_SETTING) from error


def read_signing_key(settings: Settings, data: Path) -> bytes:
    """Return the key that encrypts passwords, which its first use creates; raises OSError."""
    from cryptography.fernet import Fernet

    configured = settings.text("access.key-file")
    path = Path(configured) if configured else SecureFiles(data).signing_key
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().strip()
    return create_private(path, Fernet.generate_key() + b"\n").strip()


def users_file_path(text: str) -> Path:
    """Return the path of a file of users; `~` is the home of the server's user."""
    return Path(text).expanduser()


async def load_users_file(
    settings: Settings, storage: Storage, metadata: MetadataWriter, authenticator: Authenticator
) -> Coroutine[object, object, None] | None:
    """Bring the users of `access.users-file` over; return the work that follows it; StartError."""
    stored = storage.meta.state.settings
    name = next(filter(settings.text, ("access.users-file", "tubemq.users")), None)
    if name is None:
        await forget_lines(stored, metadata.write)
        return None
    if name == "tubemq.users":
        log.warning(
            "settings.deprecated",
            extra={"key": name, "use": "`trilogue users`, or access.users-file for the same file"},
        )
    path = users_file_path(settings.text(name))
    try:
        file = UsersFile(
            path,
            authenticator.users,
            stored=stored,
            write_metadata=metadata.write,
            signing_password=authenticator.signing_password,
            key=read_signing_key(settings, storage.directory.path),
            now_ms=authenticator.now_ms,
        )
        await file.load()
    except (UsersFileError, BrokerError, OSError) as error:
        reason = f"{name} ({settings.origin(name)}): {error}"
        raise StartError(reason, WRONG_SETTING) from error
    return file.run()


def _make_authorizer(settings: Settings, broker: Broker) -> Authorizer:
    guarded = guarded_operations(settings)
    if not settings.switch("access.authorize") and not guarded:
        return AllowAll()
    namespaces = broker.namespaces

    def tenant_admins(tenant: str) -> tuple[str, ...]:
        try:
            return namespaces.tenant(tenant).admin_roles
        except UnknownNamespace:
            return ()

    authorizer = AclAuthorizer(
        broker.acls,
        super_users(settings),
        tenant_admins=tenant_admins,
        allow_without_acl=settings.switch("access.allow-without-acl"),
    )
    namespaces.access_listeners.append(authorizer.move)
    if settings.switch("access.authorize"):
        return authorizer
    return Permissions(authorizer, guarded)


def _open_token_keys(settings: Settings) -> TokenKeyFile | None:
    path = settings.text("access.token-key")
    if not path:
        return None
    try:
        return TokenKeyFile(Path(path), time.monotonic)
    except TokenKeyError as error:
        origin = settings.origin("access.token-key")
        raise StartError(f"access.token-key ({origin}): {error}", WRONG_SETTING) from error


def _make_validator(
    keys: TokenKeyFile, settings: Settings, broker: Broker, now_ms: Callable[[], int]
) -> TokenValidator:
    return TokenValidator(
        keys.keys,
        token_rules(settings),
        now_ms=now_ms,
        tokens_from_ms=broker.users.tokens_from_ms,
    )


def token_rules(settings: Settings) -> TokenRules:
    """Return what tokens must have."""
    return TokenRules(
        settings.text("access.token-role-claim"),
        settings.text("access.token-audience"),
        settings.text("access.token-issuer"),
    )


class TokenKeyFile:
    """The keys of a file, read again when it changes; TokenKeyError at the start.

    `listeners` are called by `run` within a second or two of the change.
    """

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._mark = _mark(path)
        self._keys = read_key_file(path)
        self._checked_s = monotonic()
        self.listeners: list[Callable[[], None]] = []

    def keys(self) -> Mapping[str | None, TokenKey]:
        """Return the keys of the file as it is now; the old ones if it cannot be read."""
        now_s = self._monotonic()
        if now_s - self._checked_s >= RELOAD_S:
            self._checked_s = now_s
            self._reload()
        return self._keys

    def _reload(self) -> None:
        try:
            mark = _mark(self._path)
            if mark == self._mark:
                return
            self._mark = mark
            self._keys = read_key_file(self._path)
        except TokenKeyError as problem:
            log.error("access.keys_not_read", extra={"problem": str(problem)})  # noqa: TRY400
        else:
            log.info("access.keys_read", extra={"path": str(self._path)})

    async def run(self) -> None:
        """Look at the file each second, also while nobody logs in."""
        before = self._keys
        while True:
            await asyncio.sleep(RELOAD_S)
            if self.keys() is not before:
                before = self._keys
                for listener in self.listeners:
                    listener()


def read_key_file(path: Path) -> dict[str | None, TokenKey]:
    """Read the keys of tokens; TokenKeyError."""
    try:
        with path.open("rb") as file:
            content = file.read(KEY_BYTES_MAX + 1)
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise TokenKeyError(f"{path}: {error.strerror}") from error
    if len(content) > KEY_BYTES_MAX:
        raise TokenKeyError(f"{path}: more than {KEY_BYTES_MAX} bytes")
    try:
        keys = read_keys(content)
    except TokenKeyError as error:
        raise TokenKeyError(f"{path}: {error}") from None
    if mode & OTHERS and any(key.can_sign for key in keys.values()):
        raise TokenKeyError(f"{path}: others than its owner may read it: chmod 600")
    return keys


def _mark(path: Path) -> tuple[int, int, int]:
    """Return what identifies a version of a file: modification time, size, inode."""
    try:
        found = path.stat()
    except OSError as error:
        raise TokenKeyError(f"{path}: {error.strerror}") from error
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _make_emit(settings: Settings) -> Emit:
    """Return what stores the lines of the audit log; StartError if its file cannot be opened."""
    path = settings.text("access.audit-log")
    if not path:
        return _emit_to_log
    return make_file_emit(path, f"access.audit-log ({settings.origin('access.audit-log')})")


def make_file_emit(path: str, origin: str) -> Emit:
    """Return what appends the lines of the audit log to a file; StartError, which names `origin`.

    A second call in a process replaces the first file.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.close(descriptor)
        handler = RotatingFileHandler(path, maxBytes=AUDIT_BYTES, backupCount=AUDIT_FILES)
    except OSError as error:
        reason = f"{origin}: {path}: {error.strerror}"
        raise StartError(reason, WRONG_SETTING) from error
    audit_log = logging.getLogger("trilogue.audit.file")
    audit_log.propagate = False
    for old in list(audit_log.handlers):  # of a node before, in the same process
        audit_log.removeHandler(old)
        old.close()
    audit_log.addHandler(handler)
    audit_log.setLevel(logging.INFO)

    def emit(line: dict[str, object]) -> None:
        audit_log.info("%s", json.dumps(line))

    return emit


def _emit_to_log(line: dict[str, object]) -> None:
    fields = {key: value for key, value in line.items() if key not in {"event", "time"}}
    logging.getLogger("trilogue.audit").info(f"audit.{line['event']}", extra=fields)  # noqa: G004
