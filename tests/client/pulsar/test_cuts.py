"""A network that breaks: our client by way of a proxy that cuts connections, at our own server.

What has a receipt is stored; all is stored and received in the order it was sent in; and where the
broker removes duplicates it is stored once, however often the client had to send it again.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tools.servers.probe import free_port

from tests.client.cutter import CUTS, Cutter
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.server import start_server
from trilogue.client.pulsar import Batching, Compression, PulsarClient

COUNT = 3000


async def exchange(client: PulsarClient, topic: str) -> list[int]:
    """Send numbers and receive until the last one is there; what came, in order."""
    consumer = await client.subscribe(topic, "s", queue_size=100)
    producer = await client.producer(
        topic, name="mine", batching=Batching(max_messages=10), compression=Compression.LZ4
    )

    async def send() -> None:
        for number in range(COUNT):
            await producer.submit(b"%-20d" % number)
        await producer.flush()

    sending = asyncio.ensure_future(send())
    got: list[int] = []
    while not got or got[-1] != COUNT - 1:
        message = await consumer.receive(30)
        got.append(int(message.value or b""))
        await consumer.ack(message)
    await sending
    assert producer.last_sequence_id == COUNT - 1
    return got


async def stored(address: str, topic: str) -> list[int]:
    """All that the topic has, read without the proxy's help."""
    found = []
    async with PulsarClient(f"pulsar://{address}") as client:
        reader = await client.reader(topic)
        while await reader.has_message_available():
            found += [int(one.value or b"") for one in await reader.receive_many(1000, 30)]
    return found


@pytest.mark.parametrize(
    "once",
    [
        pytest.param(False, id="at least once", marks=pytest.mark.long),
        pytest.param(True, id="exactly once"),
    ],
)
def test_nothing_is_lost_or_moved_by_a_network_that_breaks(tmp_path: Path, once: bool):
    port = free_port()
    doors = dict.fromkeys(("kafka", "http", "pulsar"), "127.0.0.1:0")
    advertised = [f"--advertise=pulsar=127.0.0.1:{port}"]
    with start_server(tmp_path / "data", listen=doors, arguments=advertised) as server:
        if once:
            Admin(server.http).deduplicate("public/default")

        async def work() -> tuple[list[int], list[int], int]:
            async with (
                asyncio.timeout(90),
                Cutter(port, server.doors["pulsar"], random.Random(11)) as cutter,
            ):
                url = f"pulsar://127.0.0.1:{port}"
                async with PulsarClient(url, dice=random.Random(7)) as client:
                    got = await exchange(client, "cut")
                cuts, cutter.cuts = cutter.cuts, CUTS
                return got, await stored(f"127.0.0.1:{port}", "cut"), cuts

        got, there, cuts = asyncio.run(work())

    assert cuts >= 10
    assert list(dict.fromkeys(got)) == list(range(COUNT))
    assert (there if once else list(dict.fromkeys(there))) == list(range(COUNT))
