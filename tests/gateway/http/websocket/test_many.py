"""A thousand consumers at once, and the limits of WebSockets."""

from __future__ import annotations

import base64
import json
import resource

import pytest
import trio
from trio_websocket import open_websocket_url

from tests.server import start_server
from trilogue.client.pulsar.sync import PulsarClient

CONSUMERS, MESSAGES, LIMIT_S = 1_000, 5_000, 240
DESCRIPTORS, OPENED_AT_ONCE = 8_192, 20


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S + 60)
def test_a_thousand_consumers_get_each_message_once(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip("the descriptors of this machine are too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    with start_server(tmp_path / "data") as server, PulsarClient(server.pulsar) as client:
        found = trio.run(consume, server, client)

    assert sorted(found) == list(range(MESSAGES))


async def consume(server, client) -> list[int]:
    found: list[int] = []
    all_found = trio.Event()
    url = f"ws://{server.doors['http']}/ws/v2/consumer/persistent/public/default/many/s"
    ready, at_once = 1, trio.CapacityLimiter(OPENED_AT_ONCE)

    async def run_consumer(task_status=trio.TASK_STATUS_IGNORED) -> None:
        async with open_websocket_url(f"{url}?subscriptionType=Shared") as socket:
            task_status.started()
            while True:
                message = json.loads(await socket.get_message())
                found.append(int(base64.b64decode(message["payload"])))
                await socket.send_message(json.dumps({"messageId": message["messageId"]}))
                if len(found) >= MESSAGES:
                    all_found.set()

    async def open_one(nursery: trio.Nursery) -> None:
        nonlocal ready
        async with at_once:
            await nursery.start(run_consumer)
        ready += 1

    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(run_consumer)  # it creates the topic
            async with trio.open_nursery() as opening:
                for _ in range(CONSUMERS - 1):
                    opening.start_soon(open_one, nursery)
            await trio.to_thread.run_sync(produce, client)
            await all_found.wait()
            nursery.cancel_scope.cancel()
    assert ready == CONSUMERS
    return found


def produce(client) -> None:
    producer = client.producer("many", batching=None)
    for number in range(MESSAGES):
        producer.send(b"%d" % number)
