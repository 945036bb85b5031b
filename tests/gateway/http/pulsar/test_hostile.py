"""Malformed requests over HTTP are answered below 500 on every path and affect no other client."""

from __future__ import annotations

import re

from tests.gateway.http.admin_client import Admin
from trilogue.gateway.http.pulsar.routes import OLD_PLACE, all_routes

BODIES = [
    b"",
    b"null",
    b"{",
    b"[" * 50_000,
    b'{"a":' * 20_000,
    b"\xff\xfe\x00",
    b'"x"',
    b"-1",
    b"99999999999999999999999999",
    b"1e999",
    b"[1,null,{}]",
    b'{"ledgerId":-9,"entryId":9223372036854775807,"batchIndex":2147483647,"isExcluded":true}',
    b'{"limit":"x","policy":5,"partitions":{},"properties":[],"adminRoles":{"a":1}}',
]
VALUES = {"tenant": "acme", "namespace": "hostile", "topic": "t", "subscription": "s"}
PACKAGES = "/admin/v3/packages"
NUMBERS = ["1", "-1", "x", "99999999999999999999", "٣"]


def paths(odd: str) -> list[tuple[str, str]]:
    """Yield each path with existing tenants, namespaces and topics, and odd values elsewhere."""
    found = []
    for row in all_routes():
        if OLD_PLACE in row.path or "/tenants/" in row.path:
            continue
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda part: VALUES.get(part[1], odd), row.path)
        found += [(method, path) for method in row.methods.split()]
    return found


def is_failure(path: str, status: int) -> bool:
    """Whether the server failed; 503 is what a real one without packages answers about them."""
    return status >= 500 and not (status == 503 and path.startswith(PACKAGES))


def test_hostile_bytes_are_answered_on_every_path(admin: Admin):
    name = admin.namespace("hostile")
    admin.do("PUT", f"persistent/{name}/t/subscription/s")
    keep = {
        ("DELETE", f"/admin/v2/namespaces/{name}"),
        ("DELETE", f"/admin/v2/persistent/{name}/t"),
    }
    worst: list[tuple[object, ...]] = []

    for method, path in paths("1"):
        if (method, path) in keep:
            continue
        for body in BODIES if method in {"PUT", "POST"} else [b""]:
            answer = admin.client.request(method, path, content=body)
            if is_failure(path, answer.status_code):
                worst.append((method, path, body[:30], answer.text))
    for odd in NUMBERS:
        for method, path in paths(odd):
            if odd in path and (method, path) not in keep:
                answer = admin.client.request(method, path)
                if is_failure(path, answer.status_code):
                    worst.append((method, path, odd, answer.text))

    assert worst == []
    assert admin.get("brokers/configuration/values") == {}


def test_odd_paths_are_answered(admin: Admin):
    for path in (
        "/admin/v2/persistent/acme/hostile/%00/stats",
        "/admin/v2/persistent/acme/hostile/%0a/stats",
        "/admin/v2/persistent/acme/hostile/%ff%fe/stats",
        "/admin/v2/persistent/acme/hostile/%ed%a0%80/stats",
        "/admin/v2/persistent/%2e%2e/%2e%2e/t/stats",
        "/admin/v2/persistent/acme%2Fx/hostile/t/stats",
        "/admin/v2/persistent/" + "x" * 5_000 + "/ns/t/stats",
        "/admin/v2//persistent///",
        "/lookup/v2/topic/persistent/a/b/c/d/e/f",
        "/lookup/v2/topic/persistent/a/b/%25%00",
    ):
        answer = admin.client.get(path)
        assert 400 <= answer.status_code < 500, (path, answer.status_code)
