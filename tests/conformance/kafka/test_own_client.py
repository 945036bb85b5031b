"""Our Kafka client on our broker, and with TRILOGUE_TEST_REAL=1 the same on a real Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tools.servers.kafka import RealKafka
from tools.servers.probe import free_port

from tests.brokers import Broker
from tests.client.kafka.admin_cases import ADMIN_CASES
from tests.client.kafka.cases import (
    CASES,
    Case,
    Service,
    members_share_what_the_server_says,
    name,
    numbers,
    take,
)
from tests.client.kafka.cases_sending import SENDING_CASES
from tests.client.kafka.cases_transactions import TRANSACTION_CASES
from tests.client.kafka.session_renewals import Renewals, check_renewals
from tests.tools import require_jars
from trilogue.client.kafka import EARLIEST, Acks, KafkaClient, Sent, TimedOut

SLOW = (members_share_what_the_server_says,)
ALL = [
    pytest.param(case, marks=pytest.mark.long if case in SLOW else (), id=name(case))
    for case in (*SENDING_CASES, *CASES, *ADMIN_CASES, *TRANSACTION_CASES)
]


@pytest.mark.parametrize("case", ALL)
def test_promises_are_kept(address: str, topic: str, case: Case):
    asyncio.run(asyncio.wait_for(case(Service(address, topic)), 60))


def test_a_kill_of_the_server_is_survived_by_what_was_made_before(own_broker: Broker, topic: str):
    """Producer, group and reader go on; nothing with an offset is lost, moved or stored twice."""

    async def work() -> None:
        async with Service(own_broker.address, topic).made(2) as client:
            producer = await client.producer(batch_bytes=1000)
            options = {"group": topic, "reset_to": EARLIEST, "heartbeat_s": 0.2}
            consumer = await client.consumer(topic, **options)
            sent = await numbers(producer, topic, 200)
            got = await take(consumer, 200)
            await consumer.commit()
            await asyncio.to_thread(own_broker.kill9)
            futures = [await producer.submit(topic, b"%d" % one) for one in range(200, 400)]
            await asyncio.to_thread(own_broker.start)
            await producer.flush()
            sent += [future.result() for future in futures]
            got += await take(consumer, 200)

            values = [int(one.value or b"") for one in got]
            assert sorted(values) == list(range(400))
            places = {(one.partition, one.offset): int(one.value or b"") for one in got}
            assert [places[place(one)] for one in sent] == list(range(400))
            with pytest.raises(TimedOut):
                await consumer.get(0.3)
            await consumer.commit()

    asyncio.run(asyncio.wait_for(work(), 90))


def place(sent: Sent) -> tuple[int, int]:
    return sent.partition, sent.offset


@pytest.mark.full
@pytest.mark.java
@pytest.mark.parametrize("acks", [Acks.NONE, Acks.ALL])
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_a_real_kafka_renews_our_sessions_on_their_connections(
    version: str, acks: Acks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    require_jars(version)
    address = f"127.0.0.1:{free_port()}"
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="wonder";'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
        "connections.max.reauth.ms": 2_000,
    }
    secured = {"SASL_PLAINTEXT": address}
    server = RealKafka(tmp_path, version=version, heap="512m", settings=settings, secured=secured)
    counts = Renewals(monkeypatch)

    async def work() -> None:
        async with KafkaClient(
            address,
            security_protocol="sasl_plaintext",
            sasl_mechanism="PLAIN",
            sasl_username="admin",
            sasl_password="wonder",
        ) as client:
            await check_renewals(client, "renewed", acks, counts)

    try:
        server.start()
        asyncio.run(asyncio.wait_for(work(), 60))
    finally:
        server.kill9()
