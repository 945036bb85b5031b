"""A server and TubeMQ's web API, as curl would ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import httpx

from tests.server import Server
from trilogue.gateway.http.tubemq_webapi import TABLE

ADMIN = {"createUser": "admin", "modifyUser": "admin"}


class Web:
    """Answers are what the JSON says."""

    def __init__(self, server: Server, data: Path) -> None:
        self.server = server
        self.token = (data / "tubemq-web-token").read_text().strip()
        self.client = httpx.Client(base_url=f"http://{server.doors['http']}", timeout=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.client.close()

    def __call__(self, method: str, path: str = "/webapi.htm", **params: Any) -> Any:
        if TABLE[method].changes:
            params = {"confModAuthToken": self.token, **ADMIN, **params}
        said = self.client.get(path, params={"method": method, **params})
        assert said.status_code == 200
        return said.json()

    def one(self, method: str, **params: Any) -> int:
        """The code of the one thing that is changed."""
        (said,) = self(method, **params)["data"]
        assert said["success"] == (said["errCode"] == 200)
        return int(said["errCode"])

    def told(self, method: str, **params: Any) -> Any:
        """The one thing that is told."""
        said = self(method, **params)
        (found,) = said["data"] if "data" in said else said["dataSet"]
        return found

    def topic(self, name: str, **params: Any) -> str:
        made = self.one("admin_add_new_topic_record", brokerId=1, topicName=name, **params)
        assert made == 200
        return name
