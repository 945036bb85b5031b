"""The dispatch table: every method has a handler, its access, and a valid error response."""

from __future__ import annotations

import pytest

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.tubemq.methods import BROKER, MASTER, SERVICES
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.methods import METHODS, Service

ROWS = [*MASTER, *BROKER]


def test_every_method_has_one_row():
    assert [row.method.number for row in sorted(ROWS)] == [each.number for each in METHODS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.method.name)
def test_every_row_names_its_resource_and_operation(row):
    assert isinstance(row.resource, ResourceKind)
    assert isinstance(row.operation, Operation)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.method.name)
def test_a_refusal_has_every_required_field(row):
    """The Java client rejects a message without one."""
    response = row.error_response(TubeCode.BAD_REQUEST, "no")

    assert response.IsInitialized()
    assert (response.errCode, response.errMsg) == (400, "no")
    names = {field.name: getattr(response, field.name) for field in response.DESCRIPTOR.fields}
    assert not names.get("success", False)
    assert names.get("brokerCheckSum", -1) == -1
    assert names.get("currOffset", -1) == -1


def test_methods_of_a_master_are_in_its_service_and_those_of_a_broker_in_theirs():
    assert {row.method.service for row in MASTER} == SERVICES["master"] == {Service.MASTER}
    assert {row.method.service for row in BROKER} == SERVICES["broker"]
