"""The administration requests that the tests of Pulsar's clients want."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

NOT_FOUND = 404


class AdminError(Exception):
    """The server refused; `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Admin:
    """`topic` is a bare name or tenant/namespace/name; everything lies in public/default else."""

    def __init__(self, http: str) -> None:
        self.base = f"{http}/admin/v2"

    def request(self, method: str, path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base}/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise AdminError(error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    @staticmethod
    def path(topic: str) -> str:
        return "persistent/" + (topic if "/" in topic else f"public/default/{topic}")

    def make_partitioned(self, topic: str, partitions: int) -> None:
        self.request("PUT", f"{self.path(topic)}/partitions", partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self.request("POST", f"{self.path(topic)}/partitions", partitions)

    def make(self, topic: str) -> None:
        self.request("PUT", self.path(topic))

    def terminate(self, topic: str) -> None:
        self.request("POST", f"{self.path(topic)}/terminate")

    def make_namespace(self, namespace: str) -> None:
        self.request("PUT", f"namespaces/{namespace}", {"replication_clusters": ["standalone"]})

    def deduplicate(self, namespace: str, *, on: bool = True) -> None:
        self.request("POST", f"namespaces/{namespace}/deduplication", on)

    def stats(self, topic: str) -> dict[str, object]:
        got = self.request("GET", f"{self.path(topic)}/stats")
        assert isinstance(got, dict)
        return got

    def subscriptions(self, topic: str) -> list[str]:
        """Their names; none of a topic that does not exist."""
        try:
            got = self.request("GET", f"{self.path(topic)}/subscriptions")
        except AdminError as error:
            if error.status == NOT_FOUND:
                return []
            raise
        assert isinstance(got, list)
        return got
