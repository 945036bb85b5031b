"""Our Pulsar client against a real Apache Pulsar, which also proves the cases."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from tools.servers.pulsar import RealPulsar

from tests.client.pulsar.cases import (
    Case,
    Service,
    a_failover_subscription_has_one_active_consumer_at_a_time,
    an_exclusive_consumer_gets_everything_again_in_order,
    name,
    numbers,
    receive,
)
from tests.client.pulsar.cases_more import ALL
from tests.client.pulsar.cases_transactions import TRANSACTION_CASES
from tests.tools import require_pulsar_jars

pytestmark = [pytest.mark.java, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
_numbers = itertools.count(1)
# On a busy machine a real broker takes its time: who is active may change a second later, and what
# was on its way comes between what comes again. Ours keeps both promises in every run.
LEISURELY = (
    a_failover_subscription_has_one_active_consumer_at_a_time,
    an_exclusive_consumer_gets_everything_again_in_order,
)
CASES = [
    pytest.param(case, marks=pytest.mark.long if case in LEISURELY else ())
    for case in (*ALL, *TRANSACTION_CASES)
]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPulsar]:
    require_pulsar_jars()
    server = RealPulsar(tmp_path_factory.mktemp("pulsar"))
    yield server.start()
    server.kill9()


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_real_broker(real: RealPulsar, case: Case):
    topic = f"{name(case).replace('_', '-')}.{next(_numbers)}"
    asyncio.run(case(Service(real.address, real.http, topic)))


@pytest.mark.long
def test_a_kill_of_the_real_broker_is_survived(real: RealPulsar):
    """The same producer and consumer objects go on; nothing with a receipt is lost."""

    async def work() -> None:
        service = Service(real.address, real.http, f"killed.{next(_numbers)}")
        async with service.client() as client:
            consumer = await client.subscribe(service.topic, "s")
            producer = await client.producer(service.topic, batching=None, delivery_timeout_s=90)
            await producer.send(b"before")
            await asyncio.to_thread(real.kill9)
            sending = [await producer.submit(b"%d" % number) for number in range(5)]
            await asyncio.to_thread(real.start)
            await asyncio.gather(*sending)
            got = []
            while len(got) < 6:
                message = await consumer.receive(60)
                if message.value not in got:
                    got.append(message.value)

            assert got == [b"before", b"0", b"1", b"2", b"3", b"4"]
            assert producer.name
            ids = await numbers(client, service.topic, 2)
            assert [one.id.place for one in await receive(consumer, 2)] == [
                one.place for one in ids
            ]

    asyncio.run(asyncio.wait_for(work(), 110))
