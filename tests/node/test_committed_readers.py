"""Real clients with read_committed at a node whose log has transactions.

No gateway writes transactions yet, so the log is filled as a coordinator will do it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients.java import CONSOLE_CONSUMER, Java, as_read
from tests.conformance.clients.kafka_tools import TOOLS, ToolOutput, Tools
from tests.log.ledger import marker
from tests.node.test_node import started
from trilogue.entry.control import Outcome
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.entry.walk import read_header
from trilogue.node.node import Node

A, B, C = 101, 102, 103
LAST = b"the last one"
DEADLINE = 30.0
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def batch(*values: bytes, producer: int | None = None) -> bytes:
    records = [Record(at, 1_700_000_000_000, None, value) for at, value in enumerate(values)]
    if producer is None:
        return build_batch(records)
    return build_batch(
        records, transactional=True, producer_id=producer, producer_epoch=0, base_sequence=0
    )


HISTORY = (
    batch(b"plain 0"),  # 0
    batch(b"aborted 1", b"aborted 2", producer=A),  # 1, 2
    batch(b"committed 3", producer=B),  # 3
    marker(A, Outcome.ABORT),  # 4
    batch(b"committed 5", producer=A),  # 5: the same producer's next transaction
    batch(b"aborted 6", producer=C),  # 6
    marker(B, Outcome.COMMIT),  # 7
    batch(b"aborted 8", producer=C),  # 8
    marker(A, Outcome.COMMIT),  # 9
    marker(B, Outcome.ABORT),  # 10: ends nothing
    marker(C, Outcome.ABORT),  # 11
    batch(LAST),  # 12
    batch(b"open 13", producer=B),  # 13
    batch(b"plain 14"),  # 14
)
COMMITTED = [(0, b"plain 0"), (3, b"committed 3"), (5, b"committed 5"), (12, LAST)]
EVERYTHING = [0, 1, 2, 3, 5, 6, 8, 12, 13, 14]


def by_librdkafka(address: str, level: str, last: int) -> list[tuple[int, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([Place("t", 0, OFFSET_BEGINNING)])
    reads: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + DEADLINE
    while (not reads or reads[-1][0] < last) and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            reads.append((message.offset(), message.value()))
    reads += [  # nothing more comes
        (message.offset(), message.value())
        for message in consumer.consume(10, 0.3)
        if message.error() is None
    ]
    consumer.close()
    return reads


async def by_aiokafka(address: str, level: str, last: int) -> list[tuple[int, bytes]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level=level, enable_auto_commit=False, group_id=None
    )
    await consumer.start()
    try:
        place = TopicPartition("t", 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        reads: list[tuple[int, bytes]] = []
        async with asyncio.timeout(DEADLINE):
            while not reads or reads[-1][0] < last:
                found = await consumer.getmany(timeout_ms=500)
                reads += [(each.offset, each.value) for each in found.get(place, [])]
        found = await consumer.getmany(timeout_ms=300)
        return reads + [(each.offset, each.value) for each in found.get(place, [])]
    finally:
        await consumer.stop()


def by_java(address: str, level: str, last: int) -> list[tuple[int, bytes]]:
    """As many as there should be; more would come before what is missing."""
    java = Java("4.3.1")
    count = len(COMMITTED) if last == 12 else len(EVERYTHING)
    options = [*java.reading(address, "t", None), f"--isolation-level={level}"]
    options += [f"--max-messages={count}", f"--timeout-ms={int(DEADLINE * 1000)}"]
    reads = [as_read(line) for line in java.run(CONSOLE_CONSUMER, *options).splitlines() if line]
    return [(each.offset, each.value or b"") for each in reads]


async def read(client: str, address: str, level: str, last: int) -> list[tuple[int, bytes]]:
    if client == "aiokafka":
        return await by_aiokafka(address, level, last)
    by_client = by_java if client == "java" else by_librdkafka
    return await asyncio.to_thread(by_client, address, level, last)


async def fill(node: Node) -> None:
    """Make the topic and append the history, durably."""
    admin = AdminClient({"bootstrap.servers": str(node.gateways.addresses["kafka"])})
    (made,) = admin.create_topics([NewTopic("t", 1)]).values()
    await asyncio.to_thread(made.result, DEADLINE)
    (topic,) = node.storage.broker.cluster
    for entry in HISTORY:
        topic.partitions[0].log.append(memoryview(entry), read_header(entry))
    reported: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    node.storage.log.journal.on_commit(reported.set_result)
    assert await reported is None


@pytest.mark.filterwarnings("ignore")  # what a foreign client warns about is not for us to mend
@pytest.mark.parametrize(
    ("where", "client"),
    [
        ("memory", "librdkafka"),
        ("memory", "aiokafka"),
        ("segments", "librdkafka"),
        ("segments", "aiokafka"),
        ("segments", "java"),
        ("after a restart", "librdkafka"),
    ],
)
def test_a_client_with_read_committed_gets_what_was_committed(
    tmp_path: Path, client: str, where: str
):
    async def scenario():
        async with started(tmp_path / "data") as node:
            await fill(node)
            if where == "segments":
                await node.flusher.finish()
            address = str(node.gateways.addresses["kafka"])
            if where != "after a restart":
                return await both(address)
        async with started(tmp_path / "data") as node:
            return await both(str(node.gateways.addresses["kafka"]))

    async def both(address: str):
        committed, everything = await asyncio.gather(
            read(client, address, "read_committed", 12),
            read(client, address, "read_uncommitted", 14),
        )
        return committed, [offset for offset, _ in everything]

    assert asyncio.run(scenario()) == (COMMITTED, EVERYTHING)


@pytest.mark.java
@pytest.mark.full
@pytest.mark.parametrize("tools", TOOLS, ids=lambda tools: tools.version)
def test_javas_tool_finds_and_aborts_a_transaction_that_hangs(tmp_path: Path, tools: Tools):
    """One that is open in its partition, and that no coordinator knows (KIP-664)."""
    tools.require()

    async def scenario():
        async with started(tmp_path / "data") as node:
            await fill(node)  # without producers, as if they were forgotten
            address = str(node.gateways.addresses["kafka"])

            async def run(*words: str) -> ToolOutput:
                arguments = ("--bootstrap-server", address, *words)
                return await asyncio.to_thread(tools.run, TRANSACTIONS, *arguments)

            find = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
            before = await run(*find)
            place = ("--topic", "t", "--partition", "0")
            producers = await run("describe-producers", *place)
            aborted = await run("abort", *place, "--start-offset", "13")
            after = await run(*find)
            reads = await read("librdkafka", address, "read_committed", 14)
            return before, producers, aborted, after, reads

    try:
        before, producers, aborted, after, reads = asyncio.run(scenario())
    finally:
        tools.stop()

    (row,) = before.text.strip().splitlines()[1:]
    assert row.split()[:3] == ["t", "0", str(B)]
    assert row.split()[5] == "13"
    started_at = {line.split()[0]: line.split()[-1] for line in producers.text.splitlines()[1:]}
    assert started_at[str(B)] == "13"
    assert aborted.status == 0, aborted.text
    assert after.text.strip().splitlines()[1:] == []
    assert reads == [*COMMITTED, (14, b"plain 14")]
