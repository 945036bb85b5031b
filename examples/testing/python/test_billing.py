"""Tests of the service, and of other clients: `trilogue_broker` is a broker of one test."""

from __future__ import annotations

import asyncio

import pulsar
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from billing import Billing
from confluent_kafka import KafkaException, Producer

ORDERS = [b"book", b"lamp"]
WAIT_S = 60


@pytest.fixture
def broker(trilogue_broker):
    producer = Producer({"bootstrap.servers": trilogue_broker.kafka, "linger.ms": 0})
    for order in ORDERS:
        producer.produce("orders", order)
    assert producer.flush(WAIT_S) == 0
    return trilogue_broker


@pytest.fixture
def billing(broker):
    service = Billing(broker.kafka)
    yield service
    service.close()


def bills(broker):
    return [message.value for message in broker.messages("bills")]


def test_each_order_is_billed(broker, billing):
    assert [billing.bill_next(WAIT_S) for _ in ORDERS] == ORDERS

    assert bills(broker) == [b"bill of book", b"bill of lamp"]


def test_a_bill_whose_response_is_lost_is_written_once(broker, billing):
    lost = broker.add_fault("drop-response", request="Produce", topic="bills")

    assert billing.bill_next(WAIT_S) == b"book"

    assert lost.applied == 1
    assert bills(broker) == [b"bill of book"]


def test_an_order_that_cannot_be_billed_is_billed_later(broker, billing):
    broker.add_fault("error", request="Produce", topic="bills", error="TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        billing.bill_next(WAIT_S)
    billing.close()
    assert not [each for each in broker.requests if each.name == "OffsetCommit"]

    again = Billing(broker.kafka)
    assert again.bill_next(WAIT_S) == b"book"
    again.close()


def test_the_delivery_callback_of_a_producer_is_called(broker):
    """What librdkafka#2536 wants: a producer's delivery report without a cluster."""
    reports = []
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 0})
    producer.produce("t", b"one", on_delivery=lambda *report: reports.append(report))
    producer.flush(WAIT_S)

    ((error, message),) = reports
    assert (error, message.offset()) == (None, 0)


def test_aiokafka_consumes_what_it_produced(broker):
    """What aiokafka#561 and mockafka-py#35 want: asynchronous clients, without mocks."""

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=broker.kafka) as producer:
            await producer.send_and_wait("t", b"one", key=b"k")
        async with AIOKafkaConsumer(
            "t", bootstrap_servers=broker.kafka, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            message = await consumer.getone()
            await consumer.commit()
        return [message.key, message.value]

    assert asyncio.run(run()) == [b"k", b"one"]
    assert broker.wait_for_request("OffsetCommit").protocol == "kafka"


def test_a_pulsar_client_reads_the_orders_of_kafkas(broker):
    client = pulsar.Client(broker.pulsar)
    try:
        consumer = client.subscribe(
            "orders-partition-0", "audit", initial_position=pulsar.InitialPosition.Earliest
        )
        assert [consumer.receive(WAIT_S * 1000).data() for _ in ORDERS] == ORDERS
    finally:
        client.close()
