"""Every exception has a Kafka code: no class of any layer is missing in the table."""

from __future__ import annotations

import pytest

from trilogue.broker import errors as broker
from trilogue.broker.access.authorizer import CLUSTER, Operation, Resource, ResourceKind
from trilogue.entry.entry import EntryError
from trilogue.gateway.kafka.errors import CODES, EXPECTED, to_error_code
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError
from trilogue.wire.kafka.errors import ErrorCode

ROOTS = {broker.BrokerError, LogError, MetaError}


def below(root: type[Exception]) -> list[type[Exception]]:
    found = [root]
    for kind in root.__subclasses__():
        found += below(kind)
    return found


ALL_ROOTS = (broker.BrokerError, EntryError, LogError, MetaError)
EVERY = [kind for root in ALL_ROOTS for kind in below(root)]


def in_our_rooms(kind: type) -> bool:
    return kind.__module__.startswith("trilogue.") and not kind.__name__.startswith("_")


@pytest.mark.parametrize("kind", [k for k in EVERY if in_our_rooms(k)], ids=lambda k: k.__name__)
def test_every_error_has_its_own_code_or_that_of_a_specific_base(kind):
    if kind is broker.AccessDenied:
        return  # the resource decides: see below
    known = next(base for base in kind.__mro__ if base in CODES)

    assert known not in ROOTS or kind in CODES
    assert isinstance(CODES[known], ErrorCode)


def test_the_broker_lists_every_error_that_it_has():
    assert set(broker.ALL_ERRORS) == {
        kind for kind in below(broker.BrokerError) if in_our_rooms(kind)
    }


@pytest.mark.parametrize("kind", list(ResourceKind))
def test_a_denial_is_reported_in_the_words_of_its_resource(kind):
    problem = broker.AccessDenied(Operation.READ, Resource(kind, "it"))

    assert "AUTHORIZATION_FAILED" in to_error_code(problem).name


def test_a_denied_cluster_is_31():
    assert to_error_code(broker.AccessDenied(Operation.CREATE, CLUSTER)) == 31


def test_expected_exceptions_cover_the_error_table():
    assert all(any(issubclass(kind, root) for root in EXPECTED) for kind in CODES)


def test_a_stranger_is_an_unknown_server_error():
    assert to_error_code(ZeroDivisionError()) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (broker.StorageFailed(), 56),
        (broker.DiskFull(), 56),
        (broker.OutOfOrderSequence(), 45),
        (broker.StaleProducerEpoch(), 47),
        (broker.InvalidRecord(), 87),
        (broker.CorruptRecord(), 2),
        (broker.TooLarge(), 10),
        (broker.UnsupportedCompression(), 76),
        (broker.MemberIdRequired("id"), 79),
    ],
)
def test_the_codes_of_the_specification(problem, code):
    """docs/reference/wire/kafka.md"""
    assert to_error_code(problem) == code
