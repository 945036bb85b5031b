"""Schemas at the size of their bounds: what they and their lists cost, and whom they hold up."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.attacks.node import WAIT_S, AttackedNode, Report, attack
from tests.crash.hostile import dial

KIB = 1 << 10
SIZE = 500 * KIB
ROOT = "/schema-registry"
LISTS = 200
LIST = f"GET {ROOT}/schemas?limit=30 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
PER_LEVEL = 60


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("schemas")).start()
    yield made
    made.kill9()


def request(node: AttackedNode, method: str, path: str, body: str | None = None) -> int:
    """The status of the answer, to a client with an address of its own."""
    host, port = node.doors["http"].rsplit(":", 1)
    source = ("127.0.0.3", 0)
    opened = http.client.HTTPConnection(host, int(port), timeout=WAIT_S, source_address=source)
    with contextlib.closing(opened):
        opened.request(method, ROOT + path, body)
        answer = opened.getresponse()
        answer.read()
        return answer.status


def register(node: AttackedNode, subject: str, text: str, **more: object) -> int:
    body = json.dumps({"schema": text, **more})
    return request(node, "POST", f"/subjects/{subject}/versions", body)


def large_schema(number: int) -> str:
    fields = [{"name": f"f{number}", "type": "int"}]
    return json.dumps({"type": "record", "name": "R", "doc": "x" * SIZE, "fields": fields})


def register_many(node: AttackedNode, count: int, *, same: bool) -> Counter[int]:
    """Register a large schema in so many subjects, several at a time."""
    with ThreadPoolExecutor(8) as pool:
        return Counter(
            pool.map(
                lambda number: register(node, f"s{number}", large_schema(0 if same else number)),
                range(count),
            )
        )


@pytest.mark.parametrize(
    "same", [True, pytest.param(False, marks=pytest.mark.long)], ids=["one", "different ones"]
)
def test_lists_of_large_schemas_that_are_not_read(node: AttackedNode, report: Report, same: bool):
    """Each list is as large as it may be."""
    assert register_many(node, 40, same=same) == {200: 40}
    with attack(node, report, most_s=4.0) as stack:
        assert request(node, "GET", "/schemas") == 422
        for _ in range(LISTS):
            peer = stack.enter_context(dial(node.doors["http"]))
            peer.sendall(
                f"GET {ROOT}/schemas?limit=30 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
        assert request(node, "GET", "/schemas?limit=10") == 200


@pytest.mark.long
@pytest.mark.timeout(300)
def test_large_schemas_in_more_subjects_than_there_is_room_for(node: AttackedNode, report: Report):
    """All definitions and texts together are bounded."""
    with attack(node, report, growth=700 << 20):
        codes = register_many(node, 400, same=False)
    report(f"{codes}")
    assert set(codes) == {200, 422}
    assert 100 < codes[200] < 140
    assert node.running.stop() == 0
    node.start()
    assert request(node, "GET", "/subjects") == 200


@pytest.mark.long
def test_references_of_references(node: AttackedNode, report: Report):
    """Of four levels each subject references all those of the level below."""
    codes: Counter[int] = Counter()
    with attack(node, report, most_s=0.0), ThreadPoolExecutor(4) as pool:
        for level in range(4):
            codes += Counter(pool.map(partial(register_on_level, node, level), range(PER_LEVEL)))
    report(f"{codes}")
    assert codes == {200: 2 * PER_LEVEL, 422: 2 * PER_LEVEL}


def register_on_level(node: AttackedNode, level: int, number: int) -> int:
    text = json.dumps({"type": "record", "name": f"R{level}_{number}", "fields": []})
    below = [
        {"name": f"r{each}", "subject": f"level{level - 1}-{each}", "version": 1}
        for each in range(PER_LEVEL if level else 0)
    ]
    return register(node, f"level{level}-{number}", text, references=below)
