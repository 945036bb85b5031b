"""Share groups and streams groups on three nodes, each of which is killed in turn."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients import DEADLINE, IN_PROCESS, Record
from tests.conformance.clients.kafka_apps import WordCount, wait
from tests.conformance.clients.kafka_shares import Shares
from tests.conformance.kafka.programs.test_streams import (
    INPUT,
    OUTPUT,
    Lines,
    app_settings,
    last_counts,
    make_topics,
    reached,
)
from tests.node.supervisor.test_nodes import pids_of_nodes
from tests.server import Server, start_server
from tests.waiting import wait_until

LISTEN = {"kafka": "127.0.0.1:0", "http": "127.0.0.1:0"}
NODES = 3
RECORDS = 60  # in each round

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "data", listen=LISTEN, nodes=NODES) as started:
        yield started
        assert started.stop() == 0


@pytest.fixture
def shares() -> Iterator[Shares]:
    made = Shares()
    yield made
    made.stop()


def test_a_member_of_a_share_group_gets_all_records(server: Server, shares: Shares):
    address, topic, group = server.kafka, "topic", "survivors"
    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic(topic, 2 * NODES)])[topic].result(DEADLINE)
    shares.configure(address, group, {"share.auto.offset.reset": "earliest"})
    member = shares.open(address, group, topic, {"max.poll.records": 20})
    accepted: Counter[str] = Counter()

    def accept() -> None:
        records = member.poll()
        member.acknowledge("accept", records)
        if not any(member.commit().values()):
            accepted.update(each.value for each in records)

    def has_accepted(count: int) -> bool:
        accept()
        return len(accepted) >= count

    expected: set[str] = set()
    for number, pid in enumerate(pids_of_nodes(server)):
        values = [f"v{number}-{each}" for each in range(RECORDS)]
        expected.update(values)
        records = [Record(value.encode(), value.encode()) for value in values]
        IN_PROCESS[0].write(address, topic, records)
        half = number * RECORDS + RECORDS // 2
        wait_until(lambda half=half: has_accepted(half), 2 * DEADLINE)
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: has_accepted(len(expected)), 3 * DEADLINE)
    member.close()

    assert accepted.keys() == expected


@pytest.mark.long
def test_words_are_counted_on(server: Server, tmp_path: Path):
    """At least once: what was not committed may be counted again."""
    make_topics(server.kafka)
    lines = Lines()

    class Named:  # what the helpers need of a broker
        address = server.kafka

    chosen = app_settings(Named, tmp_path, group__protocol="streams")  # type: ignore[arg-type]
    with WordCount(tmp_path / "app", "4.3.1", (INPUT, OUTPUT), chosen) as app:
        for pid in [None, *pids_of_nodes(server)]:
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            IN_PROCESS[0].write(server.kafka, INPUT, lines.records(200))
            wait("all words", lambda: reached(last_counts(server.kafka), lines.counts))
        assert "failed" not in app.output
        app.close()
