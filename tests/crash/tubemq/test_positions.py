"""A confirmed offset that a TubeMQ group got a response for survives any end of the server."""

from __future__ import annotations

import threading
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.tubemq.tubemq_reader import TubeReader
from tests.server import Server, start_server

LISTENERS = {
    "kafka": "127.0.0.1:0",
    "tubemq-master": "127.0.0.1:0",
    "tubemq-broker": "127.0.0.1:0",
    "http": "off",
}
KILLS = 4
MESSAGES = 60  # between two kills


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def start(data) -> Server:
    return start_server(data, listen=LISTENERS, settings={"tubemq.hold": "0"})


def reader_of(server: Server, number: int) -> TubeReader:
    return TubeReader(server.doors["tubemq-broker"], f"g_192.0.2.2-{number}-1-1-Pull-1.13.0")


def read_until_killed(
    reader: TubeReader, random: Random, offsets: list[int], problems: list[str]
) -> None:
    """Read in order and record each confirmed offset, until the server ends or a problem occurs."""
    try:
        while not problems:
            found = [int(each) for each in reader.get(consumed=random.random() < 0.3)]
            if found and found[0] < offsets[-1]:
                problems.append(f"{offsets[-1]} was confirmed, and {found[0]} came again")
            if found and found != list(range(found[0], found[0] + len(found))):
                problems.append(f"{found} is not in order")
            offsets.append(reader.commit(consumed=random.random() < 0.7))
            if offsets[-1] < offsets[-2]:
                problems.append(f"from {offsets[-2]} it went back to {offsets[-1]}")
    except OSError:
        pass


def test_confirmed_positions_never_go_back_over_kills(data):
    random, offsets, written = Random(7), [0], 0
    problems: list[str] = []
    server = start(data)
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.create_topics([NewTopic("t", 1)])["t"].result()
    for number in range(KILLS):
        reader, writer = reader_of(server, number), reader_of(server, 99)
        at = reader.register()
        assert offsets[-1] <= at <= written, "between what was told and what there is"
        for _ in range(MESSAGES):
            writer.send(b"%d" % written)
            written += 1
        reading = threading.Thread(
            target=read_until_killed, args=(reader, Random(number), offsets, problems)
        )
        reading.start()
        for _ in range(random.randrange(MESSAGES)):
            writer.send(b"%d" % written)
            written += 1
        server.kill9()
        reading.join()
        assert not problems
        server = start(data)
    with server:
        reader = reader_of(server, KILLS)
        at = reader.register()
        assert 0 < offsets[-1] <= at <= written
        found: list[int] = []
        while bodies := reader.get(consumed=True):
            found += map(int, bodies)
        assert found == list(range(at, written)), "nothing is missing behind it"


def test_positions_survive_a_stop_in_order(data):
    with start(data) as server:
        admin = AdminClient({"bootstrap.servers": server.kafka})
        admin.create_topics([NewTopic("t", 1)])["t"].result()
        reader = reader_of(server, 1)
        for number in range(3):
            reader.send(b"%d" % number)
        reader.register()
        assert len(reader.get(consumed=False)) == 3
        assert reader.commit(consumed=True) == 3
        assert server.stop() == 0
    with start(data) as server:
        assert reader_of(server, 2).register() == 3
