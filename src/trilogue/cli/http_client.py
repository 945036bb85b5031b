"""Requests to a server's HTTP listener, with the standard library: others take longer to import."""

from __future__ import annotations

import http.client
import json
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from trilogue.cli.cluster import CommandError
from trilogue.cli.options import USAGE_ERROR
from trilogue.client.errors import ClientError
from trilogue.client.pool import address

PORT: Final = 8080
NAMES: Final = 3
"""Tenant, namespace and topic; old names have a cluster, too."""
OFF: Final = "off"
BODY_MAX: Final = 64 << 20


class HttpError(Exception):
    """No HTTP response, or not one of Trilogue."""


class HttpConnection:
    """One connection to `where`; `is_guess` if the address is a default."""

    def __init__(self, where: str, server: str, timeout_s: float) -> None:
        self.is_guess = not where
        try:
            if where:
                host, port = address(where.removeprefix("http://").rstrip("/"), PORT)
            else:
                host, port = address(server.partition(",")[0], PORT)[0], PORT
        except ClientError as error:
            raise CommandError(f"--http: {error}", USAGE_ERROR) from error
        self.where = f"{host}:{port}"
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)

    def get(self, path: str) -> tuple[int, Any]:
        """Request a path; return the status, and the body, decoded if it is JSON."""
        try:
            self._connection.request("GET", path, headers={"accept": "application/json"})
            answer = self._connection.getresponse()
            body = answer.read(BODY_MAX)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise HttpError(f"{self.where}: {error!s}") from error
        try:
            return answer.status, json.loads(body)
        except ValueError:
            return answer.status, body.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()


def topic_path(topic: str) -> str:
    """Return the path of a topic in Pulsar's admin API, from its Kafka name."""
    parts = topic.split("/")
    if len(parts) == 1:
        parts = ["public", "default", topic]
    root = "/admin/v2/persistent/" if len(parts) == NAMES else "/admin/persistent/"
    return root + "/".join(quote(part, safe="") for part in parts)
