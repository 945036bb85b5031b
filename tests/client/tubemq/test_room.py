"""How many messages of a producer are under way, and who of those that wait comes next."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.tubemq.scripted import TOPIC, Peer, ScriptedTube, on_server
from trilogue.client.tubemq import Message, TubeClient, TubeError


@on_server
async def test_room_that_one_cannot_use_any_more_is_given_to_the_next(
    server: ScriptedTube, client: TubeClient
):
    """The last answer wakes one who waits; when its topic was given up, the next must hear."""
    server.topics["other"] = 1
    held: list[tuple[Peer, int]] = []
    server.next_up["sendMessageP2B"].append(lambda peer, serial, _: held.append((peer, serial)))
    producer = await client.producer(TOPIC, "other", max_pending=1)
    first = await producer.submit(Message(TOPIC, b"a"))
    others = [
        asyncio.create_task(producer.send(Message(topic, b"b"))) for topic in ("other", TOPIC)
    ]
    await server.saw("sendMessageP2B")
    await producer.unpublish("other")
    ((peer, serial),) = held
    peer.send(serial, "sendMessageP2B", messageId=1, appendTime=5, appendOffset=0)
    await first

    with pytest.raises(TubeError):
        await others[0]
    async with asyncio.timeout(60):
        assert (await others[1]).topic == TOPIC


@on_server
async def test_a_large_message_leaves_room_for_many(server: ScriptedTube, client: TubeClient):
    held: list[tuple[Peer, int]] = []
    server.always["sendMessageP2B"] = lambda peer, serial, _: held.append((peer, serial))
    producer = await client.producer(TOPIC, max_memory_bytes=1000)
    large = await producer.submit(Message(TOPIC, b"x" * 1000))
    small = [asyncio.create_task(producer.submit(Message(TOPIC, b"x"))) for _ in range(10)]
    await server.saw("sendMessageP2B")
    peer, serial = held.pop()
    peer.send(serial, "sendMessageP2B", messageId=1, appendTime=5, appendOffset=0)
    await large

    await server.saw("sendMessageP2B", 11)
    for peer, serial in held:
        peer.send(serial, "sendMessageP2B", messageId=1, appendTime=5, appendOffset=0)
    await asyncio.gather(*[await one for one in small])
