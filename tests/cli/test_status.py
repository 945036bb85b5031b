"""`trilogue status` at a real node: figures, lag of readers, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.security.test_http_login import PASSWORD, make_files
from tests.server import run_trilogue, start_server
from trilogue.cli.status import parse_samples


def test_a_node_is_shown_with_its_readers_that_lag(tmp_path: Path):
    with start_server(tmp_path / "data") as server:
        producer = Producer({"bootstrap.servers": server.kafka})
        for number in range(9):
            producer.produce("orders", str(number))
        producer.flush()
        consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()
        place = f"{server.http}/admin/v2/persistent/public/default/orders"
        assert httpx.put(f"{place}/subscription/analytics", content="null").status_code == 204
        ran = run_trilogue("status", "--http", server.http)
        found = json.loads(run_trilogue("status", "--http", server.http, "--json").stdout)

    assert ran.returncode == 0, ran.stderr
    assert "serving" in ran.stdout
    assert "billing" in ran.stdout
    assert found["figures"]["topics"] == 1
    assert found["figures"]["messages"] == 9
    assert found["connections"].keys() >= {"kafka", "pulsar", "http"}
    assert found["lagging"] == [
        {"protocol": "kafka", "reader": "billing", "topic": "orders", "lag": 7}
    ]


def test_a_node_that_is_away_has_an_exit_code_of_its_own():
    ran = run_trilogue("status", "--http", "127.0.0.1:9")

    assert ran.returncode not in {0, 1}
    assert "127.0.0.1:9" in ran.stderr


def test_a_user_without_rights_sees_the_state_only(tmp_path: Path):
    config = tmp_path / "http.conf"
    config.write_text(f'user = "alice:{PASSWORD}"\n')
    with start_server(tmp_path / "data", settings=make_files(tmp_path)) as server:
        arguments = ("status", "--http", server.http)
        anonymous = run_trilogue(*arguments)
        alice = json.loads(run_trilogue(*arguments, "--config", str(config), "--json").stdout)

    assert anonymous.returncode == 0
    assert "credentials are needed" in anonymous.stdout
    assert alice["state"] == "serving"
    assert alice["figures"] is None


def test_labels_are_read_with_their_escapes():
    page = '# HELP a b\na{topic="x\\"y\\\\z",n="1"} 2.0\nb 3\n'

    assert parse_samples(page) == [("a", {"topic": 'x"y\\z', "n": "1"}, 2.0), ("b", {}, 3.0)]
