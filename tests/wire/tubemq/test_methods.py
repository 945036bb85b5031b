"""The tables: methods, codes, class names."""

from __future__ import annotations

import pytest

from trilogue.wire.tubemq import broker_pb2, master_pb2
from trilogue.wire.tubemq.errors import (
    BAD_MESSAGE,
    STANDBY,
    TubeCode,
    exception_name,
    plain_name,
)
from trilogue.wire.tubemq.methods import BY_NAME, METHODS, Service, find_method


def test_a_method_is_found_by_its_number():
    assert [find_method(method.number) for method in METHODS] == list(METHODS)
    assert len(BY_NAME) == len(METHODS) == 17


@pytest.mark.parametrize("number", [-1, 0, 10, 11, 12, 14, 19, 23, 99])
def test_reserved_numbers_are_no_methods(number: int):
    assert find_method(number) is None


def test_request_and_response_of_a_method_belong_together():
    """The response to P2M is M2P and so on; a name ends as its request does."""
    for method in METHODS:
        request, response = method.request.__name__, method.response.__name__
        kind = request.removesuffix("V2")[-3:]
        assert response.removesuffix("V2").endswith(kind[::-1])
        assert request.replace("Request", "Response")[:5] == response[:5]
        assert method.name.removesuffix("V2").endswith(kind)
        module = master_pb2 if method.service is Service.MASTER else broker_pb2
        assert hasattr(module, request)
        assert hasattr(module, response)
        assert (method.service is Service.MASTER) == ("M" in kind)


def test_every_message_between_clients_and_servers_has_its_method():
    """Those of brokers' newer protocol have no number: no known broker sends them."""
    used = {kind.__name__ for method in METHODS for kind in (method.request, method.response)}
    for module in (master_pb2, broker_pb2):
        for name in module.DESCRIPTOR.message_types_by_name:
            if "_V2_" not in name and ("Request" in name or "Response" in name):
                assert name in used


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_class_is_named_by_version_and_known_by_any_name(version: int):
    assert plain_name(exception_name(STANDBY, version)) == STANDBY
    assert exception_name(BAD_MESSAGE, version) == plain_name(BAD_MESSAGE) == BAD_MESSAGE


def test_codes_are_those_of_the_protocol():
    """The protocol has 43 error codes."""
    gaps = {409, 413, 414, 416, 417, 418}

    assert {code for code in range(404, 422) if code not in gaps} <= set(TubeCode)
    assert set(range(422, 432)) | set(range(440, 446)) <= set(TubeCode)
    assert {200, 201, 301, 400, 401, 402, 403, 450, 452, 455, 500, 503, 510, 599} <= set(TubeCode)
