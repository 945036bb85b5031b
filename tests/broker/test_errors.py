from __future__ import annotations

import pytest

from trilogue.broker import errors
from trilogue.broker.access.authorizer import CLUSTER, Operation
from trilogue.log import errors as log_errors


def test_every_reason_is_listed_once():
    assert len(errors.ALL_ERRORS) == len(set(errors.ALL_ERRORS))
    assert set(errors.ALL_ERRORS) == {
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.BrokerError)
    }


def test_access_denied_names_operation_and_resource():
    error = errors.AccessDenied(Operation.ALTER, CLUSTER)

    assert str(error) == "alter on cluster 'cluster' is denied"
    assert (error.operation, error.resource) == (Operation.ALTER, CLUSTER)


@pytest.mark.parametrize(
    ("refusal", "meant"),
    [
        (log_errors.DiskFull("full"), errors.DiskFull),
        (log_errors.TailFull("full"), errors.DiskFull),
        (log_errors.FrameTooLarge("large"), errors.TooLarge),
        (log_errors.StorageFailed("broken"), errors.StorageFailed),
        (log_errors.LogError("else"), errors.StorageFailed),
    ],
)
def test_a_refusal_of_the_log_has_its_meaning(
    refusal: log_errors.LogError, meant: type[errors.BrokerError]
):
    assert type(errors.convert_log_error(refusal)) is meant
