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
def test_every_error_has_a_code_of_its_own_or_of_a_base_that_says_something(kind):
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
def test_clients_are_told_what_they_act_upon(problem, code):
    assert code_of(problem) == code


def test_what_handlers_catch_is_what_the_table_knows():
    assert all(any(issubclass(kind, root) for root in EXPECTED) for kind in CODES)
