"""Bad requests to the registry: each gets an error of its own, and the next request is served."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.http.admin_client import Admin

DEEP = 5_000
VERSIONS = "/subjects/hostile/versions"
REFERENCES = [{"name": "x", "subject": "hostile", "version": 1}]


@pytest.fixture(scope="module")
def client(admin: Admin) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{admin.server.http}/schema-registry", timeout=60) as made:
        yield made


def post(text: str, language: str = "AVRO", **more: object) -> dict:
    return {"content": json.dumps({"schema": text, "schemaType": language, **more})}


REQUESTS = {
    "cut": (VERSIONS, {"content": b'{"schema": "'}, 422),
    "empty": (VERSIONS, {"content": b""}, 422),
    "no UTF-8": (VERSIONS, {"content": b'{"schema": "\xff"}'}, 422),
    "no schema": (VERSIONS, {"content": b"{}"}, 422),
    "other type": (VERSIONS, post('"int"', "THRIFT"), 42201),
    "deep lists of Avro": (VERSIONS, post("[" * DEEP + "]" * DEEP), 42201),
    "deep lists of JSON": (VERSIONS, post("[" * DEEP + "]" * DEEP, "JSON"), 42201),
    "deep objects of JSON": (VERSIONS, post('{"not":' * 900 + "{}" + "}" * 900, "JSON"), 42201),
    "deep messages": (VERSIONS, post("message A {" * 900 + "}" * 900, "PROTOBUF"), 42201),
    "long text": (VERSIONS, post("/" * 70_000, "PROTOBUF"), 42201),
    "large schema": (VERSIONS, post(json.dumps("x" * (600 << 10))), 42201),
    "large body": (VERSIONS, {"content": b" " * (2 << 20)}, 413),
    "no descriptor": (VERSIONS, post("CgA=", "PROTOBUF"), 42201),
    "unknown reference": (VERSIONS, post('"int"', references=REFERENCES), 42201),
    "many references": (VERSIONS, post('"int"', references=REFERENCES * 101), 42201),
    "rules": (VERSIONS, post('"int"', ruleSet={"domainRules": [{"name": "x"}]}), 42201),
    "own id": (VERSIONS, post('"int"', id=7), 42205),
    "long subject": (f"/subjects/{'s' * 1_025}/versions", post('"int"'), 42208),
    "control character": ("/subjects/a%01b/versions", post('"int"'), 42208),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_a_bad_request_gets_its_error(client: httpx.Client, case: str):
    path, content, code = REQUESTS[case]
    reply = client.post(path, **content)

    assert reply.json()["error_code"] == code, reply.text
    assert str(code).startswith(str(reply.status_code))
    assert reply.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert client.get("/subjects/hostile/versions").json()["error_code"] == 40401


@pytest.mark.parametrize("offset", ["-1", "x", "9" * 30])
def test_a_bad_page_of_a_list_is_refused_or_empty(client: httpx.Client, offset: str):
    reply = client.get("/subjects", params={"offset": offset, "limit": 1})

    assert reply.status_code in {200, 422}


def test_a_web_page_changes_nothing(client: httpx.Client):
    reply = client.post(VERSIONS, **post('"int"'), headers={"origin": "http://example.com"})

    assert reply.status_code == 403


def test_a_subject_that_is_read_only_takes_no_schema(client: httpx.Client):
    client.put("/mode/kept", json={"mode": "READONLY"})

    assert client.post("/subjects/kept/versions", **post('"int"')).json()["error_code"] == 42205
    assert client.get("/mode/kept").json() == {"mode": "READONLY"}
    assert client.delete("/mode/kept").json() == {"mode": "READONLY"}
    assert client.post("/subjects/kept/versions", **post('"int"')).status_code == 200


@pytest.mark.parametrize(
    ("path", "text", "code", "message"),
    [
        ("subjects/empty/versions", " ", 42201, "Empty schema"),
        ("compatibility/subjects/absent/versions/1", '"int"', 40402, "Version 1 not found."),
    ],
)
def test_errors_have_the_words_of_the_real_registry(
    client: httpx.Client, path: str, text: str, code: int, message: str
):
    reply = client.post(path, json={"schema": text})

    assert reply.json() == {"error_code": code, "message": message}
