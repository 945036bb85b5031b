"""A closed connection is not in memory any more, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.gateway.kafka.fetch.test_fetch_bytes import fetch, fill
from tests.gateway.kafka.rig import Rig as KafkaRig
from tests.gateway.pulsar.rig import Rig as PulsarRig
from tests.gateway.tubemq.rig import Rig as TubeRig
from trilogue.broker.access.authorizer import ANONYMOUS
from trilogue.broker.quotas.quotas import QuotaEntity, QuotaKind
from trilogue.gateway.stream import STOP_QUOTA

TOPIC = "persistent://public/default/t"


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def kafka() -> None:
    async with KafkaRig() as rig:
        rig.topic("t")
        await fill(rig, "t", "x" * 100)
        peer = rig.peer()
        await peer.request(fetch("t", 0), 11)
        await check(peer, [weakref.ref(peer.stream), weakref.ref(peer.session)])


async def pulsar() -> None:
    async with PulsarRig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.request("producer", "producer_success", topic=TOPIC, producer_id=1)
        await peer.request(
            "subscribe", "success", topic=TOPIC, subscription="s", subType=0, consumer_id=1
        )
        await check(peer, [weakref.ref(peer.stream), weakref.ref(peer.connection)])


async def pulsar_over_its_quota() -> None:
    async with PulsarRig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.request("producer", "producer_success", topic=TOPIC, producer_id=1)
        rates = {QuotaKind.PRODUCED: 10.0}
        rig.broker.quotas.plan_alter([(QuotaEntity(ANONYMOUS.name), rates)]).apply()
        peer.send(1, 0, b"x" * 1_000)
        await peer.answer("send_receipt")
        assert peer.stream.stops & STOP_QUOTA
        await check(peer, [weakref.ref(peer.stream), weakref.ref(peer.connection)])


async def tubemq() -> None:
    async with TubeRig() as rig:
        peer = rig.broker_peer()
        await peer.request(
            "consumerRegisterC2B",
            opType=31,
            readStatus=0,
            clientId="c",
            groupName="g",
            topicName="t",
            partitionId=0,
        )
        await check(peer, [weakref.ref(peer.stream), weakref.ref(peer.connection)])


async def check(peer: Any, parts: list[weakref.ref[Any]]) -> None:
    peer.transport.close()
    await asyncio.sleep(0)
    peer.transport.__dict__.clear()
    peer.__dict__.clear()

    assert [each() for each in parts] == [None, None]


@pytest.mark.parametrize("protocol", [kafka, pulsar, pulsar_over_its_quota, tubemq])
def test_nothing_refers_to_a_closed_connection(protocol: Callable[[], Awaitable[None]]):
    asyncio.run(protocol())
