"""A server and a client of TubeMQ's web API, as curl would call it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import httpx

from tests.server import Server
from trilogue.gateway.http.tubemq.routes import TABLE

ADMIN = {"createUser": "admin", "modifyUser": "admin"}


class Web:
    """A client of the web API: calls return the JSON of the response."""

    def __init__(self, server: Server, data: Path) -> None:
        self.server = server
        self.token = (data / "tubemq-web-token").read_text().strip()
        self.client = httpx.Client(base_url=f"http://{server.doors['http']}", timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.client.close()

    def __call__(self, method: str, path: str = "/webapi.htm", **params: Any) -> Any:
        if TABLE[method].changes:
            params = {"confModAuthToken": self.token, **ADMIN, **params}
        response = self.client.get(path, params={"method": method, **params})
        assert response.status_code == 200
        return response.json()

    def change_one(self, method: str, **params: Any) -> int:
        """Change one item; return its code."""
        (response,) = self(method, **params)["data"]
        assert response["success"] == (response["errCode"] == 200)
        return int(response["errCode"])

    def query_one(self, method: str, **params: Any) -> Any:
        """Return the only item of a query."""
        response = self(method, **params)
        (found,) = response["data"] if "data" in response else response["dataSet"]
        return found

    def topic(self, name: str, **params: Any) -> str:
        made = self.change_one("admin_add_new_topic_record", brokerId=1, topicName=name, **params)
        assert made == 200
        return name
