"""Every error of a lower room has a Pulsar code: the table is total."""

from __future__ import annotations

import pytest

from trilogue.broker import errors as broker
from trilogue.entry.entry import CorruptEntry, EntryError
from trilogue.gateway.pulsar.errors import CODES, EXPECTED, PulsarProtocolError, code_of
from trilogue.log.errors import DiskFull, LogError
from trilogue.meta.errors import MetaError
from trilogue.wire.pulsar.errors import ServerError


def below(root: type[Exception]) -> list[type[Exception]]:
    found = [root]
    for kind in root.__subclasses__():
        found += below(kind)
    return found


EVERY = [
    kind
    for root in (broker.BrokerError, EntryError, LogError, MetaError)
    for kind in below(root)
    if kind.__module__.startswith("trilogue.")
]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_has_its_own_code_or_that_of_a_specific_base(kind):
    known = next(base for base in kind.__mro__ if base in CODES)

    assert known is not broker.BrokerError or kind is broker.BrokerError
    assert isinstance(CODES[known], ServerError)


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (CorruptEntry(), ServerError.ChecksumError),
        (DiskFull(), ServerError.PersistenceError),
        (broker.UnknownTopic(), ServerError.TopicNotFound),
        (broker.TopicTerminated(), ServerError.TopicTerminatedError),
        (broker.NotServed(), ServerError.NotAllowedError),
        (PulsarProtocolError(ServerError.ConsumerBusy, "no"), ServerError.ConsumerBusy),
    ],
)
def test_errors_have_codes_that_clients_handle(problem, code):
    assert code_of(problem) == code


def test_expected_exceptions_cover_the_error_table():
    assert all(any(issubclass(kind, root) for root in EXPECTED) for kind in CODES)
