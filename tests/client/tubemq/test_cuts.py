"""A network that breaks: our client by way of proxies that cut connections, at our own server.

Every confirmed message is stored and read; unconfirmed ones may be. There are no others.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tools.servers.probe import free_port

from tests.brokers import make_topic
from tests.client.cutter import CUTS, Cutter
from tests.server import start_server
from tests.waiting import wait_on_loop
from trilogue.client.errors import ConnectionLost
from trilogue.client.tubemq import Batch, Message, TimedOut, TubeClient, TubeError

COUNT = 2000


async def exchange(client: TubeClient, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """Send numbers and read until all that were acknowledged came: message ids by number."""
    consumer = await client.consumer(topic, group="group")
    producer = await client.producer(topic, max_pending=20)
    acknowledged: dict[int, int] = {}
    got: dict[int, int] = {}

    async def send(number: int) -> None:
        try:
            sent = await producer.send(Message(topic, b"%-20d" % number))
        except (ConnectionLost, TimedOut, TubeError):
            return
        acknowledged[number] = sent.message_id

    async def callback(batch: Batch) -> None:
        for message in batch:
            assert message.message_id is not None
            number = int(message.body)
            assert got.setdefault(message.message_id, number) == number

    reading = asyncio.ensure_future(consumer.run(callback, at_once=2))
    for at in range(0, COUNT, 20):
        await asyncio.gather(*(send(number) for number in range(at, at + 20)))
    await wait_on_loop(lambda: set(acknowledged.values()) <= set(got), 60)
    await consumer.close()
    await reading
    return acknowledged, got


def test_stored_messages_are_read_over_an_unreliable_network(tmp_path: Path):
    ports = {"tubemq-master": free_port(), "tubemq-broker": free_port()}
    doors = dict.fromkeys(("kafka", *ports), "127.0.0.1:0")
    arguments = [f"--advertise=tubemq-broker=127.0.0.1:{ports['tubemq-broker']}"]
    with start_server(tmp_path / "data", listen=doors, arguments=arguments) as server:
        make_topic(server.doors["kafka"], "cut", 3)

        async def work() -> tuple[dict[int, int], dict[int, int], int]:
            to_master = Cutter(
                ports["tubemq-master"], server.doors["tubemq-master"], random.Random(3)
            )
            to_broker = Cutter(
                ports["tubemq-broker"], server.doors["tubemq-broker"], random.Random(11)
            )
            async with asyncio.timeout(100), to_master, to_broker:
                address = f"127.0.0.1:{ports['tubemq-master']}"
                options = {"avoid_s": 0.0, "heartbeat_s": 0.5, "request_timeout_s": 5.0}
                async with TubeClient(address, **options) as client:
                    acknowledged, got = await exchange(client, "cut")
                    cuts, to_master.cuts, to_broker.cuts = to_broker.cuts, CUTS, CUTS
            return acknowledged, got, cuts

        acknowledged, got, cuts = asyncio.run(work())

    assert cuts >= 10
    assert len(acknowledged) > COUNT * 0.6
    assert {got[number] for number in acknowledged.values()} == set(acknowledged)
    assert set(got.values()) <= set(range(COUNT))
