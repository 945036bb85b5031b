"""A member of a group whose connections break, or fall silent, at any step: it reads everything.

Joining takes a handful of requests on three connections, and each may be lost, done without its
answer, or held for ever by a connection that is only half there. The server is ours; the proxy
between them breaks the step of a rule (tests/client/breaker.py).
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from tools.servers.probe import free_port

from tests.client.breaker import Breaker, How, Rule
from tests.server import start_server
from trilogue.client.errors import ServerUnreachable
from trilogue.client.kafka import (
    EARLIEST,
    Consumer,
    GroupProtocol,
    KafkaClient,
    Message,
    Partition,
)

FETCH, METADATA, OFFSET_FETCH, FIND = 1, 3, 9, 10
JOIN, BEAT, SYNC, CONSUMER_BEAT = 11, 12, 14, 68
REQUESTS = {
    GroupProtocol.CLASSIC: (FIND, JOIN, SYNC, BEAT, OFFSET_FETCH, FETCH, METADATA),
    GroupProtocol.CONSUMER: (FIND, CONSUMER_BEAT, OFFSET_FETCH, FETCH, METADATA),
}
AGAIN = {FETCH: (1, 2), METADATA: (1, 2), JOIN: (1, 2), CONSUMER_BEAT: (1, 2, 3)}
PARTITIONS = 2
WAIT_S = 90.0  # ten suffice; on a machine that does much else they have been twenty-two


def steps(protocol: GroupProtocol) -> dict[str, Rule]:
    """A rule for each way that each step may go wrong, by the name of a client."""
    rules = {
        f"{key} {number} {how.value}": Rule(key, number, how)
        for key, how in itertools.product(REQUESTS[protocol], How)
        for number in AGAIN.get(key, (1,))
    }
    joining = CONSUMER_BEAT if protocol is GroupProtocol.CONSUMER else JOIN
    return rules | {f"static {how.value}": Rule(joining, 1, how) for how in How}


@pytest.mark.parametrize("protocol", list(GroupProtocol))
def test_a_member_reads_everything_whatever_step_broke(tmp_path: Path, protocol: GroupProtocol):
    port = free_port()
    with start_server(
        tmp_path / "data",
        listen={"kafka": "127.0.0.1:0"},
        arguments=[f"--advertise=kafka=127.0.0.1:{port}"],
        groups__initial_delay=0,
    ) as server:

        async def work() -> list[str]:
            rules = steps(protocol)
            async with Breaker(port, server.kafka, rules), KafkaClient(f"127.0.0.1:{port}") as us:
                for name in rules:
                    await us.admin.create_topic(topic(name), PARTITIONS)
                tries = [read_all(us, port, name, rules[name], protocol) for name in rules]
                return [name for name in await asyncio.gather(*tries) if name is not None]

        stuck = asyncio.run(work())

    assert stuck == []


def topic(name: str) -> str:
    return name.replace(" ", "-")


async def read_all(
    us: KafkaClient, port: int, name: str, rule: Rule, protocol: GroupProtocol
) -> str | None:
    """What stands there before the step breaks, and what comes after it; what was not read."""
    producer = await us.producer()
    for partition in range(PARTITIONS):
        await producer.send(topic(name), b"before", partition=partition)
    seen: dict[int, list[bytes]] = {}

    def read_again(partitions: list[Partition]) -> None:
        """Nothing is committed: a partition that a slow machine lost is read from its start."""
        for partition in partitions:
            seen.pop(partition.number, None)

    async with KafkaClient(f"127.0.0.1:{port}", client_id=name, request_timeout_s=1.0) as client:
        consumer = await client.consumer(
            topic(name),
            group=name,
            protocol=protocol,
            reset_to=EARLIEST,
            heartbeat_s=0.2,
            session_timeout_s=10.0,
            max_poll_s=2.0,
            max_wait_s=0.1,
            auto_commit_s=None,
            instance_id=name if "static" in name else None,
            on_assigned=read_again,
        )
        try:
            async with asyncio.timeout(WAIT_S):
                await reading(consumer, seen, b"before")
                while not rule.met.is_set():
                    await poll(consumer, 0.05)
                for partition in range(PARTITIONS):
                    await producer.send(topic(name), b"after", partition=partition)
                await reading(consumer, seen, b"after")
        except TimeoutError:
            return f"{name} ({rule.met.is_set()}): {seen}"
        return None


async def reading(consumer: Consumer, seen: dict[int, list[bytes]], until: bytes) -> None:
    """Read until the last of every partition is this."""
    while [seen.get(number, [b""])[-1] for number in range(PARTITIONS)] != [until] * PARTITIONS:
        for message in await poll(consumer, 0.2):
            assert message.value not in seen.get(message.partition, ()), "read twice"
            seen.setdefault(message.partition, []).append(message.value)


async def poll(consumer: Consumer, timeout_s: float) -> list[Message]:
    """Messages, or none while a broken connection is made again."""
    try:
        return await consumer.poll(timeout_s)
    except ServerUnreachable:
        return []
