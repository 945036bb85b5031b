"""Our own Pulsar client against our own broker: the cases that a real broker proves.

With TRILOGUE_TEST_REAL=1 they run on a real Pulsar here too;
tests/client/pulsar/test_real_server.py does that in every run that has the jars.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.brokers import PulsarBroker
from tests.client.pulsar.cases import Case, Service, name, receive
from tests.client.pulsar.cases_more import ALL
from tests.client.pulsar.cases_transactions import (
    TRANSACTION_CASES,
    a_transaction_that_takes_too_long_is_aborted_by_the_broker,
    acks_take_effect_when_their_transaction_commits,
)

SLOW = (
    a_transaction_that_takes_too_long_is_aborted_by_the_broker,
    acks_take_effect_when_their_transaction_commits,
)
CASES = [
    pytest.param(case, marks=pytest.mark.full if case in SLOW else (), id=name(case))
    for case in (*ALL, *TRANSACTION_CASES)
]


@pytest.mark.parametrize("case", CASES)
def test_our_listener(pulsar: PulsarBroker, topic: str, case: Case):
    asyncio.run(case(Service(pulsar.address, pulsar.http, topic)))


def test_a_kill_of_the_server_is_survived_by_what_was_made_before(
    own_pulsar: PulsarBroker, topic: str
):
    """Producer, consumer and reader go on; what has a receipt is there, in order."""

    async def work() -> None:
        async with Service(own_pulsar.address, own_pulsar.http, topic).client() as client:
            consumer = await client.subscribe(topic, "s", ack_receipts=True)
            reader = await client.reader(topic)
            producer = await client.producer(topic, batching=None, delivery_timeout_s=60)
            before = [await producer.submit(b"%d" % number) for number in range(50)]
            await producer.flush()
            for message in await receive(consumer, 20):
                await consumer.ack(message)
            await receive(reader, 20)
            await asyncio.to_thread(own_pulsar.kill9)
            after = [await producer.submit(b"%d" % number) for number in range(50, 60)]
            await asyncio.to_thread(own_pulsar.start)
            await asyncio.gather(*after)
            expected = [b"%d" % number for number in range(60)]
            again, read = await receive(consumer, 40), await receive(reader, 40)

            assert [one.value for one in again] == [one.value for one in read] == expected[20:]
            ids = [future.result() for future in before + after]
            assert [one.id for one in again] == ids[20:]
            assert ids == sorted(ids, key=lambda one: one.place)

    asyncio.run(asyncio.wait_for(work(), 60))
