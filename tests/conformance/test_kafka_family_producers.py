"""Producers and transactions that a broker knows of: each client that has words for them."""

from __future__ import annotations

import pytest
from tests.conformance.clients import EVERYONE, Client, Record, each
from tests.conformance.clients.administrators import (
    CONFLUENT,
    KAFKA_PYTHON,
    Administrator,
    able,
)
from tests.conformance.families import refusal


@pytest.mark.parametrize("client", each(EVERYONE))
def test_every_idempotent_producer_is_known(address: str, topic: str, client: Client):
    CONFLUENT.create(address, topic, 1)
    client.write(address, topic, [Record(b"k", b"v")] * 3, idempotent=True)

    (told,) = KAFKA_PYTHON.producers(address, topic, 0)

    assert told["id"] >= 0
    assert (told["epoch"], told["sequence"], told["open_from"]) == (0, 2, -1)


@pytest.mark.parametrize("admin", able("producers"))
def test_every_client_sees_the_same_producers(address: str, topic: str, admin: Administrator):
    CONFLUENT.create(address, topic, 1)
    for _ in range(2):
        EVERYONE[0].write(address, topic, [Record(b"k", b"v")] * 3, idempotent=True)
    EVERYONE[0].write(address, topic, [Record(b"k", b"v")] * 3, idempotent=False)

    told = admin.ask("producers", address, topic=topic, partition=0)

    assert len({one["id"] for one in told}) == 2
    assert [(one["epoch"], one["sequence"], one["open_from"]) for one in told] == [(0, 2, -1)] * 2


@pytest.mark.parametrize("admin", able("transactions", "describe_transaction"))
def test_a_transaction_that_nobody_began_is_not_there(
    address: str, topic: str, admin: Administrator
):
    """A real one makes its topic for them when it is first asked, and kafka-python does not wait
    for that."""
    assert topic not in admin.ask("transactions", address)

    told = refusal(lambda: admin.ask("describe_transaction", address, transaction=topic))

    names = ("transactionalidnotfound", "coordinatornotavailable")
    assert any(name in told for name in names), told
