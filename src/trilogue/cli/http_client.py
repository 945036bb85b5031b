"""Requests to a server's HTTP listener, with the standard library: others take longer to import.

Credentials are in a file of curl's form (`curl -K http.conf`), so that one file is for both:

    # server: https://localhost:8443
    user = "admin:…"            or oauth2-bearer = "…"
    cacert = "/data/tls/ca.pem"
    cert = "client.pem"         and key = "client.key": a certificate of the client
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from trilogue.cli.cluster import CommandError
from trilogue.cli.options import USAGE_ERROR
from trilogue.client.errors import ClientError, describe_os_error
from trilogue.client.pool import address

PORT: Final = 8080
NAMES: Final = 3
"""Tenant, namespace and topic; old names have a cluster, too."""
OFF: Final = "off"
BODY_MAX: Final = 64 << 20
SERVER: Final = "server"
OPTIONS: Final = ("user", "oauth2-bearer", "cacert", "cert", "key")


class HttpError(Exception):
    """No HTTP response, or not one of Trilogue."""


class HttpConnection:
    """One connection to `where`; `is_guess` if the address is a default."""

    def __init__(
        self, where: str, server: str, timeout_s: float, options: Mapping[str, str] | None = None
    ) -> None:
        options = options or {}
        where = where or options.get(SERVER, "")
        self.is_guess = not where
        try:
            if where:
                is_tls, text = where.startswith("https://"), where.removeprefix("https://")
                host, port = address(text.removeprefix("http://").rstrip("/"), PORT)
            else:
                is_tls = False
                host, port = address(server.partition(",")[0], PORT)[0], PORT
        except ClientError as error:
            raise CommandError(f"--http: {error}", USAGE_ERROR) from error
        self.where = f"{host}:{port}"
        self._headers = {"accept": "application/json", **_authorization(options)}
        if is_tls:
            context = _tls_context(options)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)

    def get(self, path: str) -> tuple[int, Any]:
        """Request a path; return the status, and the body, decoded if it is JSON."""
        return self.request("GET", path)

    def request(self, verb: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request, with JSON if there is a body; return as `get`."""
        content = None if body is None else json.dumps(body)
        try:
            self._connection.request(verb, path, content, self._headers)
            answer = self._connection.getresponse()
            received = answer.read(BODY_MAX)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise HttpError(f"{self.where}: {_describe_error(error)}") from error
        try:
            return answer.status, json.loads(received)
        except ValueError:
            return answer.status, received.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()


def _describe_error(error: Exception) -> str:
    """Return the cause of a request without a response, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not trusted ({error.verify_message}): --config FILE "
            "names its authority, as DATA/clients/http.conf of a secured data directory does"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS handshake, leave out https:// for a listener without TLS ({error.reason})"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the server closed the connection, as a listener of another protocol or of TLS does"
    return describe_os_error(error) if isinstance(error, OSError) else str(error)


def topic_path(topic: str) -> str:
    """Return the path of a topic in Pulsar's admin API, from its Kafka name."""
    parts = topic.split("/")
    if len(parts) == 1:
        parts = ["public", "default", topic]
    root = "/admin/v2/persistent/" if len(parts) == NAMES else "/admin/persistent/"
    return root + "/".join(quote(part, safe="") for part in parts)


def read_http_config(path: Path) -> dict[str, str]:
    """Return the options of a file of curl's form; CommandError where it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise CommandError(f"--config {path}: {reason}", USAGE_ERROR) from error
    options: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith(f"# {SERVER}:"):
            options[SERVER] = text.partition(":")[2].strip()
        elif text and not text.startswith("#"):
            name, equals, value = text.partition("=")
            key = name.strip().lstrip("-")
            if not equals or key not in OPTIONS:
                raise CommandError(
                    f"--config {path}: line {number}: one of {', '.join(OPTIONS)} is expected",
                    USAGE_ERROR,
                )
            options[key] = _unquote(value.strip())
    return options


def _unquote(value: str) -> str:
    """Return a value of curl's form: in quotes a backslash is before a quote or a backslash."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return value


def _authorization(options: Mapping[str, str]) -> dict[str, str]:
    if "oauth2-bearer" in options:
        return {"authorization": f"Bearer {options['oauth2-bearer']}"}
    if "user" in options:
        encoded = base64.b64encode(options["user"].encode()).decode()
        return {"authorization": f"Basic {encoded}"}
    return {}


def _tls_context(options: Mapping[str, str]) -> Any:
    try:
        context = ssl.create_default_context(cafile=options.get("cacert"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except OSError as error:
        raise CommandError(f"--config: the certificates: {error}", USAGE_ERROR) from error
    return context
