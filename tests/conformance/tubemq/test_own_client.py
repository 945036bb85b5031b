"""Our own TubeMQ client against our own broker: the cases that a real server proves.

With TRILOGUE_TEST_REAL=1 they run on a real TubeMQ here too;
tests/client/tubemq/test_real_server.py does that in every long run that has the jars.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import TrilogueForTubeMQ, TubeBroker
from tests.client.tubemq.cases import CASES, Case, Service, collect, name, sender, take
from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.client.errors import ConnectionLost
from trilogue.client.tubemq import Balance, Message, TimedOut, TubeError


@pytest.mark.parametrize("case", CASES, ids=name)
def test_our_listener(tube: TubeBroker, case: Case):
    with tube.inside():
        asyncio.run(case(Service(tube.address, tube.topic)))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TrilogueForTubeMQ]:
    """A server that may be killed."""
    made = TrilogueForTubeMQ(tmp_path / "data")
    yield made.start()
    made.kill9()


def test_a_kill_of_the_server_is_survived_by_what_was_made_before(own: TrilogueForTubeMQ):
    """Producer and consumer go on; what was stored is read, nothing that was confirmed twice."""
    topic = own.topic(3)

    async def work() -> None:
        async with Service(own.address, own.topic).client(avoid_s=0.0) as client:
            producer = await sender(client, topic)
            consumer = await client.consumer(topic, group="group")
            got: list[bytes] = []
            reading = asyncio.ensure_future(collect(consumer, got))
            for number in range(50):
                await producer.send(Message(topic, b"%d" % number))
            await wait_on_loop(lambda: len(got) == 50)
            await wait_on_loop(lambda: all(one[0] == one[1] for one in consumer.offsets().values()))
            await asyncio.to_thread(own.kill9)
            open_ = await asyncio.gather(
                *(producer.send(Message(topic, b"open")) for _ in range(3)), return_exceptions=True
            )
            await asyncio.to_thread(own.start)
            await wait_on_loop(lambda: producer.registrations > 1)
            for number in range(50, 100):
                await producer.send(Message(topic, b"%d" % number))
            await wait_on_loop(lambda: len(got) >= 100, 30)
            await consumer.close()
            await reading

            assert all(isinstance(one, ConnectionLost | TimedOut) for one in open_)
            assert sorted(map(int, got)) == list(range(100))

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_server_that_wants_proof_lets_our_client_in(tmp_path: Path):
    """Facts, authentication: signatures to the master, its tokens to brokers, and at the end."""
    users = tmp_path / "users"
    users.write_text("me:secret\n")
    users.chmod(0o600)
    settings = {
        "tubemq.authenticate": "both",
        "tubemq.users": users,
        "tubemq.check-visit-tokens": True,
    }
    server = TrilogueForTubeMQ(tmp_path / "data", settings)
    server.start()
    try:
        topic = server.topic(1)
        service = Service(server.address, server.topic)
        asyncio.run(asyncio.wait_for(with_proof(service, topic), 60))
    finally:
        server.kill9()


async def with_proof(service: Service, topic: str) -> None:
    for credentials in ({}, {"user": "me", "password": "wrong"}):
        async with service.client(**credentials) as client:
            for made in (client.producer(topic), client.consumer(topic, group="g")):
                with pytest.raises(TubeError) as refused:
                    await made
                assert refused.value.err_code == 415
    async with service.client(user="me", password="secret") as client:
        producer = await sender(client, topic)
        consumer = await client.consumer(topic, group="g")
        own = await client.consumer(topic, group="v", balance=Balance.CLIENT)
        for number in range(2):
            await producer.send(Message(topic, b"%d" % number))
            for one in (consumer, own):
                assert [message.body for message in await take(one, 1)] == [b"%d" % number]
            await producer.send_heartbeat()
            await consumer.reading.send_heartbeat()
            await consumer.send_heartbeat()
            await own.send_heartbeat()

        assert producer.registrations == consumer.registrations == own.registrations == 1


def test_messages_submitted_during_connect_keep_their_order(own: TrilogueForTubeMQ):
    """A message submitted once the connection is open does not overtake those that waited."""
    topic = own.topic()

    async def offsets(pause_after: int) -> list[int]:
        async with Service(own.address, own.topic).client() as client:
            producer = await client.producer(topic)
            futures = []
            for number in range(60):
                futures.append(await producer.submit(Message(topic, b"%d" % number)))
                if number % pause_after == 0:
                    await run_ready_tasks()
            return [(await each).offset for each in futures]

    for pause_after in (1, 2, 3, 4, 5):
        found = asyncio.run(offsets(pause_after))
        assert found == sorted(found)
