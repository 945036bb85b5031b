"""Transactions that older versions left open, and their pending positions and acks, in any state.

tests/fixtures/transactions-*.tar.xz are data directories that tools/fixture_transactions.py wrote
with the version of its time, once ended in order and once killed. The JSON beside each has what
clients had committed: all else times out, and its positions and acks have no effect.
"""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.crash.transactions.transaction_load import read_committed
from tests.node_ports import find_node_ports
from tests.server import start_server
from trilogue.broker.facts import FactKind
from trilogue.client.pulsar import InitialPosition, PulsarClient, SubscriptionType
from trilogue.log.journal.frame import decode_file_header, iter_facts, iter_frames

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("transactions-*.tar.xz"))
ONE_NODE = {FactKind.TRANSACTION_OFFSETS, FactKind.TRANSACTION_ACKED}
SEVERAL = {
    FactKind.PENDING_OFFSETS,
    FactKind.PENDING_ACKS,
    FactKind.PENDING_ACKS_ENDED,
}
WAIT_S = 60.0


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def fixture(request: pytest.FixtureRequest) -> Path:
    return request.param


def unpack(fixture: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    with tarfile.open(fixture) as archive:
        archive.extractall(folder, filter="data")
    description = fixture.with_name(fixture.name.replace(".tar.xz", ".json"))
    return folder / "data", json.loads(description.read_text())


def kinds_in_journals(data: Path) -> Iterator[int]:
    """Yield the kinds of facts in the journals of all nodes."""
    for path in data.rglob("*.journal"):
        view = memoryview(path.read_bytes())
        header = decode_file_header(view)
        assert header is not None
        for frame in iter_frames(view, header):
            yield from (kind for kind, _ in iter_facts(view, frame))


def committed_position(address: str, group: str, topic: str, partition: int) -> int | None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, partition)], WAIT_S)
    consumer.close()
    return found.offset if found.offset >= 0 else None


async def unacked_values(url: str, topic: str, subscription: str, count: int) -> list[str]:
    """Return the first messages that the subscription has not acked."""
    async with PulsarClient(url) as client:
        consumer = await client.subscribe(
            topic,
            subscription,
            type=SubscriptionType.SHARED,
            initial_position=InitialPosition.EARLIEST,
        )
        return sorted([(await consumer.receive(WAIT_S)).value.decode() for _ in range(count)])


def test_there_are_fixtures_of_one_node_and_of_several(tmp_path: Path):
    for name, kinds in (("transactions-one-node", ONE_NODE), ("transactions-nodes", SEVERAL)):
        (fixture,) = (each for each in FIXTURES if each.name.startswith(name))
        folder = tmp_path / name
        folder.mkdir()
        data, _ = unpack(fixture, folder)

        assert kinds <= set(kinds_in_journals(data))


def test_transactions_of_an_older_version_end_as_they_were_decided(fixture: Path, tmp_path: Path):
    """Also after another start, by when the open ones have been aborted."""
    data, expected = unpack(fixture, tmp_path)
    nodes, topic, partitions = expected["nodes"], expected["topic"], expected["partitions"]
    ports = find_node_ports(nodes, "kafka", "pulsar", "http")
    settings = {"disk.reserve": "0", "disk.min-free": "0", "retention.check-every": "1h"}
    several = {"nodes": nodes} if nodes > 1 else {}
    for _ in range(2):
        with start_server(data, listen=ports.listen, settings={**settings, **several}) as server:
            messages = read_committed(server.kafka, topic, partitions)
            assert sorted(each.value().decode() for each in messages) == sorted(
                expected["committed"]
            )
            for group, offset in expected["positions"].items():
                for number in range(partitions):
                    found = committed_position(server.kafka, group, topic, number)
                    assert found == offset, (group, number)
            url = f"pulsar://{ports.addresses('pulsar')}"
            for name, values in expected["unacked"].items():
                work = unacked_values(url, name, expected["subscription"], len(values))
                assert asyncio.run(work) == sorted(values)
            assert server.stop() == 0
