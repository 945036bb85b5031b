"""Asks the HTTP door of a server; large libraries take longer than the answer."""

from __future__ import annotations

import http.client
import json
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from trilogue.cli.asking import Refusal
from trilogue.cli.options import USAGE_ERROR
from trilogue.client.errors import ClientError
from trilogue.client.pool import address

PORT: Final = 8080
NAMES: Final = 3
"""Tenant, namespace and topic; old names have a cluster, too."""
OFF: Final = "off"
BODY_MAX: Final = 64 << 20


class HttpError(Exception):
    """Nobody answers there, or not as our HTTP door does."""


class HttpDoor:
    """One connection; `where` is the address, and `is_guess` that nobody said it."""

    def __init__(self, where: str, server: str, timeout_s: float) -> None:
        self.is_guess = not where
        try:
            if where:
                host, port = address(where.removeprefix("http://").rstrip("/"), PORT)
            else:
                host, port = address(server.partition(",")[0], PORT)[0], PORT
        except ClientError as problem:
            raise Refusal(f"--http: {problem}", USAGE_ERROR) from problem
        self.where = f"{host}:{port}"
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)

    def get(self, path: str) -> tuple[int, Any]:
        """Status and body of a path, as JSON where it is some."""
        try:
            self._connection.request("GET", path, headers={"accept": "application/json"})
            answer = self._connection.getresponse()
            body = answer.read(BODY_MAX)
        except (OSError, http.client.HTTPException) as problem:
            self._connection.close()
            raise HttpError(f"{self.where}: {problem!s}") from problem
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
    """Where Pulsar's administration has a topic, by the name that Kafka clients have for it."""
    parts = topic.split("/")
    if len(parts) == 1:
        parts = ["public", "default", topic]
    root = "/admin/v2/persistent/" if len(parts) == NAMES else "/admin/persistent/"
    return root + "/".join(quote(part, safe="") for part in parts)
