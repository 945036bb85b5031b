"""Very many ACLs: they are created and deleted in parts, and others are served between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.node import WAIT_S, AttackedNode, Report, attack
from tests.crash.kafka.test_hostile import Line, framed
from trilogue.broker.access.acls import ACLS_MAX
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import RequestHeader, encode_request_header
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.security.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
)

VERSION = 1  # not flexible: a response has its correlation id alone before it
TOPIC, LITERAL, ANY, WRITE, ALLOW = 2, 3, 1, 4, 3
LONG = [pytest.mark.long, pytest.mark.timeout(600)]
REQUEST_MAX = 10_000  # bindings of a request
EVERYTHING = DescribeAclsRequest(
    resource_type_filter=ANY,
    resource_name_filter=None,
    principal_filter=None,
    host_filter=None,
    operation=ANY,
    permission_type=ANY,
)
SECURED = {"access.authorize": "true", "access.super-users": "User:ANONYMOUS"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path, **SECURED).start()
    yield made
    made.kill9()


@pytest.fixture
def line(node: AttackedNode) -> Iterator[Line]:
    with Line(node.address) as made:
        made.peer.settimeout(4 * WAIT_S)
        yield made


def encode(request: object) -> bytes:
    body = bytearray()
    encode_request_header(body, RequestHeader(table(type(request)).key, VERSION, 1, "acls"))
    encoder(type(request), VERSION)(request, body)
    return framed(bytes(body))


def create_acls(line: Line, first: int, count: int) -> list[int]:
    """Allow so many users to write to one topic; return the error codes."""
    creations = [
        AclCreation(
            resource_type=TOPIC,
            resource_name="orders",
            principal=f"User:user-{number}",
            host="*",
            operation=WRITE,
            permission_type=ALLOW,
        )
        for number in range(first, first + count)
    ]
    response = line.request(encode(CreateAclsRequest(creations=creations)))
    found, _ = decoder(CreateAclsResponse, VERSION)(memoryview(response), 4)
    return [each.error_code for each in found.results]


def delete_acls(line: Line) -> int:
    """Delete all by one filter; return how many there were."""
    every = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="orders",
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = line.request(encode(DeleteAclsRequest(filters=[every])))
    found, _ = decoder(DeleteAclsResponse, VERSION)(memoryview(response), 4)
    (result,) = found.filter_results
    assert {each.error_code for each in result.matching_acls} <= {ErrorCode.NONE}
    return len(result.matching_acls)


@pytest.mark.parametrize("count", [REQUEST_MAX, pytest.param(10 * REQUEST_MAX, marks=LONG)])
def test_very_many_acls(node: AttackedNode, line: Line, report: Report, count: int):
    """All are of one topic, until there is no room for more, and one filter deletes them."""
    with attack(node, report, most_s=0.0):
        codes = [
            code
            for first in range(0, count, REQUEST_MAX)
            for code in create_acls(line, first, REQUEST_MAX)
        ]
        line.request(encode(EVERYTHING))
        deleted = delete_acls(line)

    assert len(codes) == count
    assert codes.count(ErrorCode.NONE) == deleted == min(count, ACLS_MAX)


def test_more_acls_than_a_request_may_have(node: AttackedNode, line: Line):
    """100,000 bindings of one request are refused before any of them is read."""
    with pytest.raises(ConnectionError):
        create_acls(line, 0, 10 * REQUEST_MAX)
    with Line(node.address) as other:
        assert delete_acls(other) == 0
