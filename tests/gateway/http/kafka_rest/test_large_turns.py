"""Messages that are larger than an instance keeps: instances receive them in turn."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from confluent_kafka import Producer

from tests.gateway.http.kafka_rest.test_rest import make_instance, read
from tests.server import Server, start_server
from trilogue.client.kafka.client import KafkaClient
from trilogue.gateway.http.kafka_rest.large_turns import RESPONSE_BYTES, LargeTurns

MIB = 1 << 20
SIZES = (5 * MIB, 10, 6 * MIB, 7 * MIB, 20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("node") / "data") as made:
        yield made


@pytest.fixture(scope="module")
def topic(server: Server) -> str:
    """A topic with messages of which no response of two has room out of turn."""

    async def create() -> None:
        async with KafkaClient(server.kafka) as client:
            settings = {"max.message.bytes": str(8 * MIB)}
            await client.admin.create_topic("large", 1, settings)

    asyncio.run(create())
    producer = Producer({"bootstrap.servers": server.kafka, "message.max.bytes": 8 * MIB})
    for number, size in enumerate(SIZES):
        producer.produce("large", bytes([number]) * size)
        assert producer.flush(60) == 0
    return "large"


def test_instances_read_large_messages_at_once(server, topic):
    def read_all(number: int) -> list[bytes]:
        with httpx.Client(base_url=f"{server.http}/kafka-rest", timeout=120) as rest:
            address = make_instance(rest, topic, format="binary", name=f"reader-{number}")
            rest.delete(f"{address}/subscription")
            where = {"partitions": [{"topic": topic, "partition": 0}]}
            rest.post(f"{address}/assignments", json=where)
            rest.post(f"{address}/positions/beginning", json=where)
            found = read(rest, address, len(SIZES))
            rest.delete(address)
        return [base64.b64decode(each["value"]) for each in found]

    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(read_all, range(6)))

    for found in replies:
        assert [(each[0], len(each)) for each in found] == list(enumerate(SIZES))


def test_a_consumer_receives_a_large_response_in_its_turn_only(server, topic):
    class Turn:
        limit_bytes = RESPONSE_BYTES
        has_turn = False

        def __init__(self) -> None:
            self.wanted, self.given = asyncio.Event(), asyncio.Event()

        async def wait_for_turn(self) -> None:
            self.wanted.set()
            await self.given.wait()

    async def consume() -> None:
        turn = Turn()
        async with KafkaClient(server.kafka) as client:
            consumer = await client.consumer(large_responses=turn)
            await consumer.assign([(topic, 0)])
            consumer.seek((topic, 0), 0)
            polled = asyncio.ensure_future(consumer.poll(60, 1))
            async with asyncio.timeout(60):
                await turn.wanted.wait()
            assert not polled.done()

            turn.has_turn = True
            turn.given.set()
            (message,) = await polled
            assert (message.offset, len(message.value)) == (0, SIZES[0])

            turn.has_turn = False
            turn.given.clear()
            turn.wanted.clear()
            consumer.release_large()
            assert [each.offset for each in await consumer.poll(60, 1)] == [1]
            polled = asyncio.ensure_future(consumer.poll(60, 1))
            async with asyncio.timeout(60):
                await turn.wanted.wait()
            assert not polled.done()
            polled.cancel()

    asyncio.run(consume())


def test_turns_belong_to_requests():
    async def take_turns() -> None:
        turns = LargeTurns()
        first, second, idle = turns.make_turn(), turns.make_turn(), turns.make_turn()
        waiting = [asyncio.ensure_future(each.wait_for_turn()) for each in (idle, first, second)]
        await asyncio.sleep(0)
        assert not any(each.has_turn for each in (idle, first, second))

        first.begin_request()
        second.begin_request()
        await waiting[1]
        assert first.has_turn
        assert second.is_needed
        assert not second.has_turn

        first.end_request()
        await waiting[2]
        assert (first.has_turn, second.has_turn, idle.has_turn) == (False, True, False)

        second.end_request()
        idle.begin_request()
        await waiting[0]
        assert idle.has_turn
        idle.end_request()
        assert not idle.is_needed

    asyncio.run(take_turns())


def test_a_turn_is_passed_on_by_a_request_that_ended_meanwhile():
    async def take_turns() -> None:
        turns = LargeTurns()
        first, gone, last = turns.make_turn(), turns.make_turn(), turns.make_turn()
        for each in (first, gone, last):
            each.begin_request()
        await first.wait_for_turn()
        waiting = [asyncio.ensure_future(each.wait_for_turn()) for each in (gone, last)]
        await asyncio.sleep(0)

        gone.end_request()
        first.end_request()
        await waiting[1]

        assert last.has_turn
        assert not waiting[0].done()
        waiting[0].cancel()

    asyncio.run(take_turns())
