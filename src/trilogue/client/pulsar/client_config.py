"""`client.conf` of Pulsar's clients and command line, as options of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from trilogue.client.errors import InvalidOption
from trilogue.client.properties import read_keys

NAMES: Final = {
    "tlsTrustCertsFilePath": "tls_trust_certs_file_path",
    "tlsCertificateFilePath": "tls_certificate_file_path",
    "tlsKeyFilePath": "tls_private_key_file_path",
}
REFUSED: Final = {
    "tlsAllowInsecureConnection": "certificates are always verified, by tlsTrustCertsFilePath",
    "useKeyStoreTls": "only PEM files are read",
}
"""Switches that are not obeyed when they are on."""


def read_client_config(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the service URL ("" without) and the options of a file; InvalidOption.

    `brokerServiceUrl` is preferred to `webServiceUrl`. Keys that are for other programs are left.
    """
    values: dict[str, str] = {}
    for number, key, value in read_keys(path):
        if key in REFUSED and value.lower() == "true":
            raise InvalidOption(f"{path}, line {number}: {key}: {REFUSED[key]}")
        values[key] = value
    try:
        options = convert_client_keys(values)
    except InvalidOption as error:
        raise InvalidOption(f"{path}: {error}") from None
    return values.get("brokerServiceUrl") or values.get("webServiceUrl", ""), options


def convert_client_keys(values: Mapping[str, str]) -> dict[str, Any]:
    """Return options of the client for keys of `client.conf`; other keys are left. InvalidOption.

    `authPluginClassName` and `authParams` are what Java's client builder calls the login.
    """
    options: dict[str, Any] = {name: values[key] for key, name in NAMES.items() if values.get(key)}
    # Java's default is not to check the name; ours is to check it, unless the file says no.
    options["tls_validate_hostname"] = (
        values.get("tlsEnableHostnameVerification", "true").lower() != "false"
    )
    plugin = values.get("authPlugin") or values.get("authPluginClassName", "")
    return options | _parse_login(plugin, values.get("authParams", ""))


def _parse_login(plugin: str, parameters: str) -> dict[str, Any]:
    """Return the options of an authentication plug-in; no error has its parameters."""
    name = plugin.rpartition(".")[2].removeprefix("Authentication").lower()
    if name in {"", "disabled"}:
        return {}
    if name not in _PLUGINS:
        known = "AuthenticationToken, AuthenticationBasic and AuthenticationTls"
        raise InvalidOption(f"authPlugin={plugin}: only {known} are obeyed")
    return _PLUGINS[name](parameters)


def _parse_token(parameters: str) -> dict[str, Any]:
    text = str(_parse_json(parameters).get("token", parameters)).removeprefix("token:")
    if not text.startswith("file:"):
        return {"token": text}
    path = Path(unquote(urlsplit(text).path))
    return {"token": _make_reader(path)}


def _make_reader(path: Path) -> Callable[[], str]:
    """Return a function that reads the token at each login, since another program renews it."""

    def read() -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise InvalidOption(f"token of {path}: {error.strerror}") from error

    return read


def _parse_basic(parameters: str) -> dict[str, Any]:
    found = _parse_json(parameters)
    if found:
        user = found.get("userId", found.get("username", ""))
        password = found.get("password", "")
    else:
        user, _, password = parameters.partition(":")
    if not user or not password:
        raise InvalidOption('authParams is not {"userId":"…","password":"…"} or userId:password')
    return {"username": str(user), "password": str(password)}


def _parse_tls(parameters: str) -> dict[str, Any]:
    found = _parse_json(parameters) or dict(
        pair.split(":", 1) for pair in parameters.split(",") if ":" in pair
    )
    if not found.get("tlsCertFile") or not found.get("tlsKeyFile"):
        raise InvalidOption("authParams is not tlsCertFile:…,tlsKeyFile:…")
    return {
        "tls_certificate_file_path": found["tlsCertFile"],
        "tls_private_key_file_path": found["tlsKeyFile"],
    }


def _parse_json(parameters: str) -> dict[str, Any]:
    try:
        found = json.loads(parameters)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_PLUGINS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "token": _parse_token,
    "basic": _parse_basic,
    "tls": _parse_tls,
}
