"""`trilogue serve --secure`: makes a data directory secure, once; every later start obeys it.

The first start writes what is in files.py and the administrator `User:admin`; `secure.toml` is
written last, so a start that was interrupted is repeated. From then on each `serve` on the
directory reads `secure.toml` below all other sources of settings, with or without `--secure`. A
mark in meta remembers it too: without the file a start is refused, not silently insecure.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from trilogue.broker.access.users import Users
from trilogue.meta.operations import PutSetting
from trilogue.node.addresses import (
    Address,
    choose_advertised,
    is_loopback,
    is_wildcard,
    parse_address,
    resolve_if_known,
)
from trilogue.node.errors import StartError
from trilogue.node.offline_access import OfflineAccess, open_offline_access
from trilogue.node.secure.certificates import (
    AuthorityExpired,
    renew_certificates,
    renew_node_certificate,
)
from trilogue.node.secure.clients import ClientAddresses, write_clients
from trilogue.node.secure.files import SECURED_MARK, SecureFiles, write_private
from trilogue.node.settings.table import BY_KEY, Settings

ADMINISTRATOR = "admin"
PASSWORD_BYTES, TOKEN_KEY_BYTES = 24, 48
LISTENERS: Mapping[str, tuple[str, str]] = {
    "kafka": ("kafka-sasl-ssl", "localhost:9092"),
    "pulsar": ("pulsar-ssl", "localhost:6651"),
    "tubemq-master": ("tubemq-master-ssl", "localhost:8716"),
    "tubemq-broker": ("tubemq-broker-ssl", "localhost:8124"),
    "http": ("https", "localhost:8443"),
}
"""The listener with TLS in place of each plain one, and its address."""
NO_MORE: Mapping[str, str] = {}
IN_CLEAR: Mapping[str, str] = {
    "tubemq-master": "localhost:8715",
    "tubemq-broker": "localhost:8123",
}
"""Plain listeners beside those with TLS, for this machine: TubeMQ's Java client cannot use TLS by
its own methods. It signs its requests, and sends no password."""


def secure_directory(settings: Settings) -> Iterator[str]:
    """Secure the directory of `data` if it is not yet; yield lines for the user; StartError."""
    files = SecureFiles(Path(settings.text("data")))
    if files.is_secured:
        return
    try:
        files.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        asyncio.run(_make_administrator(settings, files))
        if not files.token_key.exists():
            write_private(files.token_key, make_token_key())
        write_private(files.settings, settings_text(files).encode())
    except OSError as error:
        raise StartError(f"--secure: {error.strerror}: {error.filename}") from error
    yield from report_secured(files)


def make_password() -> bytes:
    """Return the content of a new file of a password."""
    return secrets.token_urlsafe(PASSWORD_BYTES).encode() + b"\n"


def make_token_key() -> bytes:
    """Return a new key of tokens."""
    return secrets.token_urlsafe(TOKEN_KEY_BYTES).encode()


def report_secured(files: SecureFiles) -> Iterator[str]:
    """Yield lines for the user: where the administrator's credentials are."""
    yield f"secured {files.data}: the administrator is User:{ADMINISTRATOR}"
    yield f"configurations of clients with its credentials are in {files.clients}"


def renew(settings: Settings, node: str = "") -> None:
    """Renew the certificates of a secured directory before its listeners open; StartError.

    `node` is the name of a node of a cluster, which has a certificate of its own.
    """
    files = SecureFiles(Path(settings.text("data")))
    if not files.is_secured:
        return
    try:
        if node and not (files.tls / "ca.pem").exists():
            raise StartError(
                f"{files.tls} has lost the authority of the cluster: remove {files.settings}, and "
                "start with --secure"
            )
        now = dt.datetime.now(dt.UTC)
        renew_certificates(files.tls, _names(settings), now)
        if node:
            renew_node_certificate(files.tls, node, now)
    except AuthorityExpired as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"{files.tls}: {error.strerror}: {error.filename}") from error


def refresh_clients(settings: Settings, bound: Mapping[str, str]) -> None:
    """Write the configurations of clients for the listeners that are open; raises OSError."""
    files = SecureFiles(Path(settings.text("data")))
    if files.is_secured and files.password.exists():
        password = files.password.read_text().strip()
        write_clients(files, ADMINISTRATOR, password, _client_addresses(settings, bound))


async def _make_administrator(settings: Settings, files: SecureFiles) -> None:
    """Create the administrator with the password in its file, and mark the directory."""
    async with open_offline_access(settings) as access:
        users: Users = access.administration.users
        known = users.find(ADMINISTRATOR) is not None
        if known and not files.password.exists():
            raise StartError(
                f"--secure: the user {ADMINISTRATOR} exists: write its password to "
                f"{files.password}, or delete it (`trilogue users delete {ADMINISTRATOR} --data`)"
            )
        if not files.password.exists():
            write_private(files.password, make_password())
        password = files.password.read_bytes().strip()
        put = access.administration.set_password if known else access.administration.create_user
        await put(ADMINISTRATOR, password)
        await _mark(access)


async def _mark(access: OfflineAccess) -> None:
    await access.write_ops([PutSetting(SECURED_MARK, "1")])


def settings_text(files: SecureFiles, more: Mapping[str, str] = NO_MORE) -> str:
    """Return secure.toml, with more settings; relative paths are in the data directory."""
    values: dict[str, bool | str] = {
        "access.authenticate": True,
        "access.authorize": True,
        "access.super-users": f"User:{ADMINISTRATOR}",
        "access.token-key": files.token_key.name,
        "access.audit-log": files.audit_log.name,
        "tls.certificate": f"{files.tls.name}/server.pem",
        "tls.key": f"{files.tls.name}/server.key",
        **more,
    }
    lines = [
        "# Written by `trilogue serve --secure`; each start on this directory obeys it.",
        "# Stronger sources (a config file, the environment, options) may change listeners and",
        "# add to it; paths are relative to this directory.",
    ]
    for plain, (secured, address) in LISTENERS.items():
        values |= {f"listen.{plain}": IN_CLEAR.get(plain, "off"), f"listen.{secured}": address}
    for key, value in values.items():
        text = "true" if value is True else f'"{value}"'
        lines.append(f"{key} = {text}")
    return "\n".join(lines) + "\n"


def _names(settings: Settings) -> set[str]:
    """Return the names and addresses that the certificate of the listeners is for."""
    names = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    for key in BY_KEY:
        text = settings.text(key) if key.startswith(("listen.", "advertise.")) else ""
        if text not in {"", "off"}:
            address = parse_address(text)
            if not any(is_wildcard(literal) for literal in resolve_if_known(address)):
                names.add(address.host)
    return names.union(filter(None, map(str.strip, settings.text("tls.names").split(","))))


def _client_addresses(settings: Settings, bound: Mapping[str, str]) -> ClientAddresses:
    """Return the addresses that clients connect to, by the name of the plain listener.

    It is the one with TLS, but for clients on this machine that are let in in clear.
    """
    addresses: dict[str, tuple[bool, str]] = {}
    for plain, (secured, _) in LISTENERS.items():
        for name in (plain, secured):
            if name not in bound:
                continue
            address = _advertised(settings, name, parse_address(bound[name]))
            literals = resolve_if_known(address)
            is_local = bool(literals) and all(map(is_loopback, literals))
            if not (plain in addresses and plain in IN_CLEAR and is_local):
                addresses[plain] = (name == secured, str(address))
    return addresses


def _advertised(settings: Settings, name: str, bound: Address) -> Address:
    key = f"advertise.{name}"
    return choose_advertised(
        settings.text(key) if key in BY_KEY else "",
        listens=parse_address(settings.text(f"listen.{name}")),
        bound=bound,
        machine_name=socket.gethostname,
    )
